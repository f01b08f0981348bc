// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "io/http.h"

// The one form of a REST error: {"error":{"code":"invalid","message":"...","hint":"..."}}.
namespace rn::io {

/// What the status needs to know beside the code.
struct HttpErrorContext {
  bool has_credentials = true;  ///< kDenied: 403 when true, 401 when the caller gave none
  bool is_storage = false;      ///< kExhausted: 507 when a disk is full, 429 otherwise
};

/// invalid 400, denied 403 or 401, not_found 404, conflict 409, corrupt 422, exhausted 429 or 507,
/// internal 500, unsupported 501, unavailable 503, timeout 504.
int http_status(ErrorCode code, HttpErrorContext context = {});
std::string error_json(const Error& error);
/// error_json with its status; 429 and 503 carry "Retry-After: 1", 401 carries "WWW-Authenticate:
/// Bearer".
HttpResponse error_response(const Error& error, HttpErrorContext context = {});
/// Inverse, for clients: reads the JSON form if `body` is one, otherwise derives the code from the
/// status.
Error error_from_http(int status, std::string_view body);

}  // namespace rn::io
