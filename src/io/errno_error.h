// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "base/error.h"

namespace rn::io {

/// ENOENT, ENOTDIR, ESRCH → kNotFound; EEXIST, ENOTEMPTY, EISDIR, EADDRINUSE → kConflict; ENOSPC,
/// EDQUOT, EMFILE, ENFILE, ENOMEM, EAGAIN on fork → kExhausted; EACCES, EPERM, EROFS, ELOOP →
/// kDenied; ENOTSUP, ENOSYS, ... → kUnsupported; ECONNREFUSED, ECONNRESET, EPIPE, EHOSTUNREACH, ...
/// → kUnavailable; ETIMEDOUT → kTimeout; EINVAL, ENAMETOOLONG → kInvalid; EIO and all others →
/// kInternal. The message is "`what`: text of errno".
Error error_from_errno(int number, std::string_view what);

}  // namespace rn::io
