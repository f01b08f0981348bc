// SPDX-License-Identifier: Apache-2.0
#include "cli_config.h"

#include <cstdlib>

#include <pwd.h>
#include <unistd.h>

#include "io/real_fs.h"
#include "io/url.h"
#include "model/codec_detail.h"

namespace rn {

RN_INSTANTIATE_CODEC(cli::Login)

namespace cli {

namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): before any thread
  return value == nullptr ? "" : value;
}

}  // namespace

std::string home_folder() {
  std::string home = environment("HOME");
  if (!home.empty()) return home;
  const passwd* const own = ::getpwuid(::getuid());  // NOLINT(concurrency-mt-unsafe): as above
  return own == nullptr || own->pw_dir == nullptr ? "" : own->pw_dir;
}

std::string login_path() {
  std::string folder = environment("XDG_CONFIG_HOME");
  if (folder.empty() || folder.front() != '/') folder = home_folder() + "/.config";
  return folder + "/reclaimnet/config.json";
}

Result<Login> load_login() {
  Login login;
  io::RealFileSystem fs;
  constexpr const char* kAgain = "log in again: reclaim login URL --token T";
  const std::string told = environment("RECLAIM_URL");
  const std::string token = environment("RECLAIM_TOKEN");
  // All that the file would say.
  const bool is_all_told = !told.empty() && !fingerprint_in_token(token).empty();
  const auto file = is_all_told ? Result<Blob>(fail(ErrorCode::kNotFound, "not asked"))
                                : read_named(fs, login_path(), 64 << 10);
  if (file) {
    if (file->empty()) return fail(ErrorCode::kInvalid, login_path() + " is empty", kAgain);
    auto read = from_json<Login>(as_text(*file), Unknown::kLenient);
    if (!read) return fail(read.error().with(login_path()).hinting(kAgain));
    login = *std::move(read);
  } else if (file.error().code == ErrorCode::kInvalid) {
    return fail(file.error().hinting("move it away; a login writes a file there"));
  } else if (file.error().code != ErrorCode::kNotFound) {
    return fail(file.error().hinting("make the file readable for you"));
  }
  const bool is_told = !told.empty();
  if (is_told) login.url = told;
  if (!token.empty()) {
    login.token = token;
    if (const auto print = fingerprint_in_token(token); !print.empty())
      login.ca_fingerprint = print;
  }
  if (login.url.empty() || login.token.empty()) {
    const char* half = "";
    if (is_told) half = ": RECLAIM_URL is set, RECLAIM_TOKEN is not";
    if (!token.empty()) half = ": RECLAIM_TOKEN is set, RECLAIM_URL is not";
    return fail(
        ErrorCode::kDenied,
        std::string("not logged in") + half,
        "reclaim login https://COORDINATOR:7443 --token T (an admin makes T: reclaim token create)"
    );
  }
  const auto url = io::site_url(login.url);
  if (!url) return fail(url.error().with(is_told ? "RECLAIM_URL" : login_path()));
  login.url = *url;
  if (login.ca_fingerprint.empty()) login.ca_fingerprint = fingerprint_in_token(login.token);
  return login;
}

Status save_login(const Login& login) {
  io::RealFileSystem fs;
  RN_CHECK(make_folders(fs, parent_folder(login_path()), 0700));
  return write_durably(fs, login_path(), as_bytes(to_json(login) + "\n"), 0600)
      .map_error([](const Error& error) {
        return error.with("the login file")
            .hinting("move away what is there, or set XDG_CONFIG_HOME; then log in again");
      });
}

std::string fingerprint_in_token(const std::string& token) {
  const auto dot = token.rfind('.');
  if (dot == std::string::npos) return {};
  const std::string last = token.substr(dot + 1);
  return digest_from_hex(last) ? last : "";
}

}  // namespace cli

}  // namespace rn
