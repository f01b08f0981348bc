// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include <fcntl.h>
#include <linux/bpf.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "traffic/guest_cut_abi.h"
#include "traffic/transfer_edge_abi.h"

/// Shutting pinned gates without the C library: on x86-64 nothing here calls it, reads errno or
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

/// The descriptor of the map that is pinned as `name` in `folder`, or -errno.
inline long open_pinned_map(const char* folder, const char* name) {
  char path[512];
  if (!join_path(path, folder, name)) return -ENAMETOOLONG;

  // The beginning of bpf_attr: the kernel takes what is not given for zero.
  struct {
    std::uint64_t pathname;
    std::uint32_t bpf_fd;
    std::uint32_t file_flags;
  } const get = {reinterpret_cast<std::uintptr_t>(path), 0, 0};

  static_assert(offsetof(bpf_attr, file_flags) == offsetof(decltype(get), file_flags));
  return ask_kernel(SYS_bpf, BPF_OBJ_GET, as_argument(&get), sizeof get);
}

/// Writes zeros to this key of a map of gates: shut, in every layout. 0, or -errno.
inline int shut_gate(long map, std::uint32_t key) {
  // Enough of it for a gate that another version has made longer.
  static constexpr unsigned char kShut[256] = {};
  static_assert(sizeof(rn_cut_gate) <= sizeof kShut && sizeof(rn_edge_gate) <= sizeof kShut);

  struct {
    std::uint64_t map_fd;
    std::uint64_t key;
    std::uint64_t value;
    std::uint64_t flags;
  } const update = {
      static_cast<std::uint64_t>(map),
      reinterpret_cast<std::uintptr_t>(&key),
      reinterpret_cast<std::uintptr_t>(kShut),
      BPF_ANY};

  static_assert(offsetof(bpf_attr, flags) == offsetof(decltype(update), flags));
  return static_cast<int>(
      ask_kernel(SYS_bpf, BPF_MAP_UPDATE_ELEM, as_argument(&update), sizeof update)
  );
}

/// Shuts the one gate of the map that is pinned as `name` in `folder`. 0, or -errno. Does not
/// block.
inline int shut_pinned_gate(const char* folder, const char* name) {
  const long map = open_pinned_map(folder, name);
  if (map < 0) return static_cast<int>(map);
  const int done = shut_gate(map, 0);
  ask_kernel(SYS_close, map, 0, 0);
  return done;
}

/// The slots whose guests have one of these GPUs, as the file of masks at `path` says; and how it
/// went.
struct SlotsShut {
  int count = 0;
  int result = 0;  ///< 0, or -errno of the first that failed
};

/// Shuts the gates of those slots in the map that is pinned in `folder`. Without a file that is
/// whole nobody is meant.
inline SlotsShut shut_slots_of_gpus(const char* folder, const char* path, std::uint64_t gpus) {
  SlotsShut shut;
  std::uint64_t masks[RN_CUT_SLOTS];
  const long file =
      ask_kernel(SYS_openat, AT_FDCWD, as_argument(path), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return shut;
  const long size = ask_kernel(SYS_read, file, as_argument(masks), sizeof masks);
  ask_kernel(SYS_close, file, 0, 0);
  if (size != static_cast<long>(sizeof masks)) return shut;
  long map = -1;
  for (std::uint32_t slot = 0; slot < RN_CUT_SLOTS; ++slot) {
    if ((masks[slot] & gpus) == 0) continue;
    ++shut.count;
    if (map < 0) map = open_pinned_map(folder, RN_CUT_MAP_SLOT_GATE);
    const int done = map < 0 ? static_cast<int>(map) : shut_gate(map, slot);
    if (shut.result == 0) shut.result = done;
  }
  if (map >= 0) ask_kernel(SYS_close, map, 0, 0);
  return shut;
}

}  // namespace rn::traffic
