// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include <linux/bpf.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "traffic/guest_cut_abi.h"
#include "traffic/transfer_edge_abi.h"

/// Shutting a pinned gate without the C library: on x86-64 nothing here calls it, reads errno or
/// has a stack protector's canary, so that it can be done before the library has set itself up
/// (ADR 0012). No allocation.
namespace rn::traffic {

/// What the kernel answers: a number, or -errno.
inline long ask_kernel(long number, long first, long second, long third) {
#if defined(__x86_64__)
  long answer = number;
  asm volatile("syscall"
               : "+a"(answer)
               : "D"(first), "S"(second), "d"(third)
               : "rcx", "r11", "memory");
  return answer;
#else
  const long answer = syscall(number, first, second, third);
  return answer < 0 ? -errno : answer;
#endif
}

template <typename T>
long as_argument(const T* pointer) {
  return static_cast<long>(reinterpret_cast<std::uintptr_t>(pointer));
}

/// "FOLDER/NAME"; false when it is longer than `path`, which then has no meaning.
template <std::size_t kSize>
bool join_path(char (&path)[kSize], const char* folder, const char* name) {
  std::size_t size = 0;
  const auto append = [&](const char* text) {
    for (; *text != '\0' && size + 1 < kSize; ++text) path[size++] = *text;
    return *text == '\0';
  };
  const bool is_whole = append(folder) && append("/") && append(name);
  path[size] = '\0';
  return is_whole;
}

/// Writes zeros to key 0 of the map that is pinned as `name` in `folder`: shut, in every layout.
/// 0, or -errno. Does not block.
inline int shut_pinned_gate(const char* folder, const char* name) {
  char path[512];
  if (!join_path(path, folder, name)) return -ENAMETOOLONG;

  // The beginning of bpf_attr: the kernel takes what is not given for zero.
  struct {
    std::uint64_t pathname;
    std::uint32_t bpf_fd;
    std::uint32_t file_flags;
  } const get = {reinterpret_cast<std::uintptr_t>(path), 0, 0};

  static_assert(offsetof(bpf_attr, file_flags) == offsetof(decltype(get), file_flags));
  const long fd = ask_kernel(SYS_bpf, BPF_OBJ_GET, as_argument(&get), sizeof get);
  if (fd < 0) return static_cast<int>(fd);

  // Enough of it for a gate that another version has made longer.
  static constexpr unsigned char kShut[256] = {};
  static_assert(sizeof(rn_cut_gate) <= sizeof kShut && sizeof(rn_edge_gate) <= sizeof kShut);
  const std::uint32_t key = 0;

  struct {
    std::uint64_t map_fd;
    std::uint64_t key;
    std::uint64_t value;
    std::uint64_t flags;
  } const update = {
      static_cast<std::uint64_t>(fd),
      reinterpret_cast<std::uintptr_t>(&key),
      reinterpret_cast<std::uintptr_t>(kShut),
      BPF_ANY};

  static_assert(offsetof(bpf_attr, flags) == offsetof(decltype(update), flags));
  const long done = ask_kernel(SYS_bpf, BPF_MAP_UPDATE_ELEM, as_argument(&update), sizeof update);
  ask_kernel(SYS_close, fd, 0, 0);
  return static_cast<int>(done);
}

}  // namespace rn::traffic
