// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "io/http.h"

// What HTTP needs on its way between a browser and a notebook in a guest (ADR 0023): who asks,
// which heads go on, and what of them does not. Pure functions; the guest is believed in nothing.
namespace rn::coordinator::notebook {

/// The name of the session's cookie. A guest neither sees nor sets it.
inline constexpr std::string_view kCookie = "__Secure-reclaim-notebook";
/// Of a head that comes from a guest.
inline constexpr std::size_t kHeadMax = 32u << 10;

/// "/notebooks/12/tree/a" → 12, "/tree/a"; "/notebooks/12" → 12, "".
struct Path {
  std::uint64_t job = 0;
  std::string rest;
};

std::optional<Path> path_of(std::string_view path);

/// "/notebooks/12"
std::string folder_of(std::uint64_t job);

/// The values of the session's cookie, as they were sent; mostly one.
std::vector<std::string> session_cookies(const io::HttpHeaders& headers);

/// A session as it stands in a cookie: nobody else can make one, and it is for one job.
struct Session {
  std::string token;               ///< id of the user's token by which it was begun
  std::int64_t until_wall_ms = 0;  ///< it ends then
};

std::string sealed(const Session& session, const std::string& job, BlobView key);
/// kDenied: it is none of ours, or another job's.
Result<Session> opened(const std::string& cookie, const std::string& job, BlobView key);

bool is_upgrade(const io::HttpRequest& request);

/// kDenied unless the request comes from a page of this origin, from a person, or from a program:
/// another page of the campus must not act in its visitor's name.
Status check_origin(const io::HttpRequest& request);

/// The head that goes to the guest: with the session's cookie, credentials, what speaks of hops,
/// and other proxies' words left out, and one answer asked for. The body follows as it is.
std::string request_head(const io::HttpRequest& request);

/// A guest's head as it goes to the browser.
struct AnswerHead {
  int status = 0;
  std::string text;  ///< with its last empty line; empty for an interim answer, which is left out
};

/// `head` ends with its empty line. Left out: what speaks of hops, and what would reach beyond the
/// notebook's folder (other cookies' paths, the origin's storage, transport and workers). kInvalid:
/// it is no head, or one that was not asked for (`upgrades`: the request is an upgrade).
Result<AnswerHead> answer_head(std::string_view head, std::uint64_t job, bool upgrades);

/// Where the head ends in what has come, its empty line included; 0: not yet.
std::size_t end_of_head(std::string_view bytes);

}  // namespace rn::coordinator::notebook
