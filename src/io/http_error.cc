// SPDX-License-Identifier: Apache-2.0
#include "io/http_error.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "base/error_words.h"

namespace rn::io {
namespace {

ErrorCode code_of_status(int status) {
  switch (status) {
    case 401:
    case 403:
      return ErrorCode::kDenied;
    case 404:
    case 410:
      return ErrorCode::kNotFound;
    case 408:
    case 504:
      return ErrorCode::kTimeout;
    case 409:
    case 412:
      return ErrorCode::kConflict;
    case 422:
      return ErrorCode::kCorrupt;
    case 429:
    case 507:
      return ErrorCode::kExhausted;
    case 501:
      return ErrorCode::kUnsupported;
    case 502:
    case 503:
      return ErrorCode::kUnavailable;
    default:
      return status >= 400 && status < 500 ? ErrorCode::kInvalid : ErrorCode::kInternal;
  }
}

std::string text_of(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

int http_status(ErrorCode code, HttpErrorContext context) {
  switch (code) {
    case ErrorCode::kInvalid:
      return 400;
    case ErrorCode::kNotFound:
      return 404;
    case ErrorCode::kConflict:
      return 409;
    case ErrorCode::kDenied:
      return context.has_credentials ? 403 : 401;
    case ErrorCode::kUnavailable:
      return 503;
    case ErrorCode::kTimeout:
      return 504;
    case ErrorCode::kExhausted:
      return context.is_storage ? 507 : 429;
    case ErrorCode::kCorrupt:
      return 422;
    case ErrorCode::kUnsupported:
      return 501;
    case ErrorCode::kInternal:
      return 500;
  }
  return 500;
}

std::string error_json(const Error& error) {
  const nlohmann::json body = {
      {"error",
       {{"code", to_string(error.code)}, {"message", error.message}, {"hint", error.hint}}}};
  // NOTE: messages may quote what a peer sent; bytes that are no UTF-8 must not throw here.
  return body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

HttpResponse error_response(const Error& error, HttpErrorContext context) {
  HttpResponse response = json_response(http_status(error.code, context), error_json(error));
  if (response.status == 429 || response.status == 503)
    response.headers.emplace_back("Retry-After", "1");
  if (response.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

Error error_from_http(int status, std::string_view body) {
  Error error{code_of_status(status), {}, {}};
  const auto parsed = nlohmann::json::parse(body, nullptr, false);
  if (parsed.is_object() && parsed.contains("error") && parsed["error"].is_object()) {
    const auto& inner = parsed["error"];
    const std::string code = text_of(inner, "code");
    if (const auto known = error_code_of(code)) error.code = *known;
    error.message = text_of(inner, "message");
    error.hint = text_of(inner, "hint");
  } else if (parsed.is_object()) {
    error.message = text_of(parsed, "message");  // the Docker Engine's form
  }
  if (error.message.empty()) error.message = "HTTP status " + std::to_string(status);
  return error;
}

}  // namespace rn::io
