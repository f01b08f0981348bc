// SPDX-License-Identifier: Apache-2.0
//
// The few calls of the CUDA driver's library that overwrite a GPU's memory, loaded by name: a
// machine need not have CUDA's toolkit, and this program is built where there is no GPU. Names and
// signatures are those of NVIDIA's documented driver API (the versions that <cuda.h> maps the plain
// names to).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace rn {

/// Everything blocks as long as the driver does, which may be for ever: whoever starts the program
/// ends it at a deadline.
class CudaDriver {
 public:
  using Address = unsigned long long;

  /// Why nothing can be done is in `problem()` then.
  explicit CudaDriver(const char* library);
  CudaDriver(const CudaDriver&) = delete;
  CudaDriver& operator=(const CudaDriver&) = delete;

  const std::string& problem() const { return problem_; }

  /// A context on the only GPU that CUDA_VISIBLE_DEVICES lets this process see. False: `problem()`.
  bool take_context();

  /// Bytes that are free now and that the GPU has. False: `problem()`.
  bool memory(std::size_t& free_bytes, std::size_t& all_bytes);

  /// Not cleared. False where there is no room for it, which is no problem.
  bool allocate(std::size_t bytes, Address& address);

  /// Four bytes at a time; `bytes` is a multiple of four. False: `problem()`.
  bool fill(Address address, std::uint32_t word, std::size_t bytes);

  /// Until all that was begun is done. False: `problem()`.
  bool finish();

  /// After `finish()`. False: `problem()`.
  bool read(void* to, Address address, std::size_t bytes);

 private:
  using Context = void*;

  struct Calls {
    int (*init)(unsigned);
    int (*device_count)(int*);
    int (*device)(int*, int);
    int (*retain_primary)(Context*, int);
    int (*set_current)(Context);
    int (*memory_info)(std::size_t*, std::size_t*);
    int (*allocate)(Address*, std::size_t);
    int (*fill)(Address, unsigned, std::size_t);
    int (*synchronize)();
    int (*copy_to_host)(void*, Address, std::size_t);
    int (*error_name)(int, const char**);
  };

  bool is_good(int result, const char* what);

  Calls calls_{};
  std::string problem_;
};

}  // namespace rn
