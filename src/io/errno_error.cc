// SPDX-License-Identifier: Apache-2.0
#include "io/errno_error.h"

#include <cerrno>
#include <string>
#include <system_error>

namespace rn::io {
namespace {

ErrorCode code_of(int number) {
  switch (number) {
    case ENOENT:
    case ENOTDIR:
    case ESRCH:
    case ECHILD:
    case ENXIO:
    case ENODEV:
      return ErrorCode::kNotFound;
    case EEXIST:
    case ENOTEMPTY:
    case EISDIR:
    case EADDRINUSE:
    case EBUSY:
    case ETXTBSY:
      return ErrorCode::kConflict;
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOBUFS:
    case EFBIG:
    case EMLINK:
    case EAGAIN:
      return ErrorCode::kExhausted;
    case EACCES:
    case EPERM:
    case EROFS:
    case ELOOP:
      return ErrorCode::kDenied;
    case ENOSYS:
    case EOPNOTSUPP:
    case EAFNOSUPPORT:
    case EPROTONOSUPPORT:
    case ENOTTY:
    case EXDEV:
      return ErrorCode::kUnsupported;
    case ECONNREFUSED:
    case ECONNRESET:
    case ECONNABORTED:
    case EPIPE:
    case ENOTCONN:
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ENETUNREACH:
    case ENETDOWN:
    case ENETRESET:
    case ESHUTDOWN:
    case EADDRNOTAVAIL:
      return ErrorCode::kUnavailable;
    case ETIMEDOUT:
      return ErrorCode::kTimeout;
    case EINVAL:
    case ENAMETOOLONG:
    case E2BIG:
    case EDESTADDRREQ:
      return ErrorCode::kInvalid;
    default:
      return ErrorCode::kInternal;
  }
}

}  // namespace

Error error_from_errno(int number, std::string_view what) {
  Error error{code_of(number), std::string(what), {}};
  error.message += ": " + std::generic_category().message(number);
  if (number == ENOSPC) error.hint = "free some disk space";
  if (number == EDQUOT) error.hint = "the disk quota is used up; free space or raise it";
  if (number == EMFILE || number == ENFILE) error.hint = "raise the limit of open files";
  return error;
}

}  // namespace rn::io
