// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

/// Reading the kernel's file systems without allocating.
namespace rn::warden::proc {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}

  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }

  int get() const { return fd_; }

  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_;
};

inline int open_folder(int parent, const char* name) {
  return openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

struct DirectoryEntry {  // linux_dirent64, which no header of libc declares
  std::uint64_t inode;
  std::int64_t offset;
  std::uint16_t length;
  std::uint8_t type;
  char name[];
};

/// Calls visit(name, type) or visit(name) for each entry, "." and ".." included, from the start.
/// False, with errno, when there may be more.
template <class Visit>
bool each_entry(int folder, Visit visit) {
  alignas(DirectoryEntry) std::array<char, 4096> buffer;
  lseek(folder, 0, SEEK_SET);
  for (;;) {
    const long got = syscall(SYS_getdents64, folder, buffer.data(), buffer.size());
    if (got <= 0) return got == 0;
    for (long at = 0; at < got;) {
      const auto* entry = reinterpret_cast<const DirectoryEntry*>(buffer.data() + at);
      at += entry->length;
      if constexpr (requires { visit(entry->name, entry->type); }) {
        visit(entry->name, entry->type);
      } else {
        visit(entry->name);
      }
    }
  }
}

/// Calls visit(line, size) for each line, without its newline but with a terminating zero; a line
/// may be changed in place. Lines beyond 8 KiB are cut off. False, with errno, when the file cannot
/// be opened or read.
template <class Visit>
bool each_line(int folder, const char* path, Visit visit) {
  const Descriptor fd(openat(folder, path, O_RDONLY | O_CLOEXEC));
  if (!fd.is_open()) return false;
  std::array<char, 4096> buffer;
  std::array<char, 8192> line;
  std::size_t size = 0;
  ssize_t got = 0;
  while ((got = read(fd.get(), buffer.data(), buffer.size())) > 0) {
    for (ssize_t i = 0; i < got; ++i) {
      const char c = buffer[static_cast<std::size_t>(i)];
      if (c != '\n') {
        if (size + 1 < line.size()) line[size++] = c;
        continue;
      }
      line[size] = '\0';
      visit(line.data(), size);
      size = 0;
    }
  }
  if (got == 0 && size > 0) {
    line[size] = '\0';
    visit(line.data(), size);
  }
  return got == 0;
}

}  // namespace rn::warden::proc
