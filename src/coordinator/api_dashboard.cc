// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "coordinator/api_answers.h"

namespace rn::coordinator {

namespace {

constexpr const char* kFolder = "/ui/";

/// Nothing but our own files, no code in the page itself, and no other page around this one: what
/// is shown was written by strangers (names, messages, logs), and a token lies in the page's
/// memory.
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for "
    "'script'";

const DashboardFile* find_file(std::span<const DashboardFile> files, std::string_view name) {
  const auto found = std::find_if(files.begin(), files.end(), [&](const DashboardFile& file) {
    return file.name == name;
  });
  return found == files.end() ? nullptr : &*found;
}

/// An encoding that is named with a weight of 0 is refused; nobody's browser does that.
bool takes_gzip(const io::HttpRequest& request) {
  const std::string_view accepted = request.header("Accept-Encoding");
  return accepted.find("gzip") != std::string_view::npos &&
         accepted.find("gzip;q=0") == std::string_view::npos;
}

}  // namespace

void open_dashboard(ApiContext&, ApiRequest, io::Responder responder) {
  io::HttpResponse response;
  response.status = 303;
  response.headers = {{"Location", kFolder}};
  responder.send(std::move(response));
}

void serve_dashboard(ApiContext& context, ApiRequest request, io::Responder responder) {
  const auto named = request.path.find("file");
  const std::string name = named == request.path.end() ? "index.html" : named->second;
  const DashboardFile* file = find_file(context.dashboard, name);
  if (file == nullptr) {
    const bool is_built_in = !context.dashboard.empty();
    return responder.send_error(Error{
        ErrorCode::kNotFound,
        is_built_in ? "the dashboard has no file " + name.substr(0, 100)
                    : "this coordinator was built without the dashboard",
        is_built_in ? "open /ui/"
                    : "`reclaim` shows the same; docs/dashboard.md says how to build it"});
  }
  const bool is_gzip = !file->gzip.empty() && takes_gzip(request.http);
  const std::string tag = "\"" + std::string(file->hash) + (is_gzip ? "-gzip\"" : "\"");
  io::HttpResponse response;
  response.headers = {
      {"ETag", tag},
      {"Vary", "Accept-Encoding"},
      {"Cache-Control", file->has_hashed_name ? "public, max-age=31536000, immutable" : "no-cache"},
      {"Content-Security-Policy", kPolicy},
      {"X-Content-Type-Options", "nosniff"},
      {"Referrer-Policy", "no-referrer"},
      {"Cross-Origin-Opener-Policy", "same-origin"},
      {"Cross-Origin-Resource-Policy", "same-origin"}};
  if (request.http.header("If-None-Match").find(tag) != std::string_view::npos) {
    response.status = 304;
    return responder.send(std::move(response));
  }
  response.headers.emplace_back("Content-Type", file->type);
  if (is_gzip) response.headers.emplace_back("Content-Encoding", "gzip");
  response.body = std::string(is_gzip ? file->gzip : file->plain);
  responder.send(std::move(response));
}

}  // namespace rn::coordinator
