// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstring>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace rn::init {

/// A listener that does not block and is not inherited; -1, with errno, if there can be none.
inline int listen_at(const sockaddr* name, socklen_t size, int type, int places) {
  const int fd = socket(name->sa_family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  if (bind(fd, name, size) == 0 && listen(fd, places) == 0) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

/// The same at a path, in the place of what the guest may have put there.
inline int listen_at_path(const char* path, int type, int places) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (strlen(path) >= sizeof address.sun_path) {
    errno = ENAMETOOLONG;
    return -1;
  }
  memcpy(address.sun_path, path, strlen(path));
  unlink(path);
  return listen_at(reinterpret_cast<const sockaddr*>(&address), sizeof address, type, places);
}

}  // namespace rn::init
