// SPDX-License-Identifier: Apache-2.0
#include "cuda_driver.h"

#include <dlfcn.h>

namespace rn {
namespace {

constexpr int kOutOfMemory = 2;  ///< CUDA_ERROR_OUT_OF_MEMORY

template <typename Call>
bool load(void* library, const char* name, Call& call) {
  call = reinterpret_cast<Call>(dlsym(library, name));
  return call != nullptr;
}

}  // namespace

CudaDriver::CudaDriver(const char* library) {
  void* const loaded = dlopen(library, RTLD_NOW | RTLD_LOCAL);  // until the process ends
  if (loaded == nullptr) {
    problem_ = std::string("no CUDA driver: ") + dlerror();
    return;
  }
  const bool has_all = load(loaded, "cuInit", calls_.init) &&
                       load(loaded, "cuDeviceGetCount", calls_.device_count) &&
                       load(loaded, "cuDeviceGet", calls_.device) &&
                       load(loaded, "cuDevicePrimaryCtxRetain", calls_.retain_primary) &&
                       load(loaded, "cuCtxSetCurrent", calls_.set_current) &&
                       load(loaded, "cuMemGetInfo_v2", calls_.memory_info) &&
                       load(loaded, "cuMemAlloc_v2", calls_.allocate) &&
                       load(loaded, "cuMemsetD32_v2", calls_.fill) &&
                       load(loaded, "cuCtxSynchronize", calls_.synchronize) &&
                       load(loaded, "cuMemcpyDtoH_v2", calls_.copy_to_host) &&
                       load(loaded, "cuGetErrorName", calls_.error_name);
  if (!has_all) problem_ = std::string(library) + " is no CUDA driver that we know";
}

bool CudaDriver::is_good(int result, const char* what) {
  if (result == 0) return true;
  const char* name = nullptr;
  if (calls_.error_name(result, &name) != 0 || name == nullptr) name = "unknown error";
  problem_ = std::string(what) + ": " + name + " (" + std::to_string(result) + ")";
  return false;
}

bool CudaDriver::take_context() {
  int count = 0;
  int device = 0;
  Context context = nullptr;
  if (!is_good(calls_.init(0), "cuInit") ||
      !is_good(calls_.device_count(&count), "cuDeviceGetCount"))
    return false;
  if (count != 1) {
    problem_ = "the driver shows " + std::to_string(count) + " GPUs of that UUID, not one";
    return false;
  }
  return is_good(calls_.device(&device, 0), "cuDeviceGet") &&
         is_good(calls_.retain_primary(&context, device), "cuDevicePrimaryCtxRetain") &&
         is_good(calls_.set_current(context), "cuCtxSetCurrent");
}

bool CudaDriver::memory(std::size_t& free_bytes, std::size_t& all_bytes) {
  return is_good(calls_.memory_info(&free_bytes, &all_bytes), "cuMemGetInfo");
}

bool CudaDriver::allocate(std::size_t bytes, Address& address) {
  const int result = calls_.allocate(&address, bytes);
  if (result != kOutOfMemory) return is_good(result, "cuMemAlloc");
  return false;
}

bool CudaDriver::fill(Address address, std::uint32_t word, std::size_t bytes) {
  return is_good(calls_.fill(address, word, bytes / sizeof word), "cuMemsetD32");
}

bool CudaDriver::finish() {
  return is_good(calls_.synchronize(), "cuCtxSynchronize");
}

bool CudaDriver::read(void* to, Address address, std::size_t bytes) {
  return is_good(calls_.copy_to_host(to, address, bytes), "cuMemcpyDtoH");
}

}  // namespace rn
