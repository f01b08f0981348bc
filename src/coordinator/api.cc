// SPDX-License-Identifier: Apache-2.0
#include "coordinator/api.h"

#include <algorithm>
#include <charconv>

#include "base/log.h"
#include "coordinator/api_answers.h"
#include "io/http_error.h"

namespace rn::coordinator {

namespace {

constexpr std::size_t kMaxBuckets = 10'000;

std::string address_of(const std::string& remote) {
  return remote.substr(0, remote.rfind(':'));
}

/// The lowest role that an access asks of a token; nullopt if tokens don't count.
std::optional<Role> role_of(Access access) {
  switch (access) {
    case Access::kViewer:
    case Access::kViewerOrNode:
      return Role::kViewer;
    case Access::kUser:
    case Access::kUserOrNode:
      return Role::kUser;
    case Access::kOwner:
      return Role::kOwner;
    case Access::kAdmin:
      return Role::kAdmin;
    case Access::kPublic:
    case Access::kNode:
      return std::nullopt;
  }
  return std::nullopt;
}

bool takes_nodes(Access access) {
  return access == Access::kNode || access == Access::kViewerOrNode ||
         access == Access::kUserOrNode;
}

}  // namespace

std::string bearer_of(const io::HttpRequest& request) {
  const std::string_view header = request.header("Authorization");
  constexpr std::string_view kScheme = "Bearer ";
  if (!header.starts_with(kScheme)) return {};
  return std::string(header.substr(kScheme.size()));
}

TokenParts parts_of_token(const std::string& token) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (true) {
    const std::size_t dot = std::min(token.find('.', begin), token.size());
    parts.push_back(token.substr(begin, dot - begin));
    if (dot == token.size()) break;
    begin = dot + 1;
  }
  const bool is_ours =
      parts.size() == 4 && (parts[0] == api::kJoinTokenPrefix || parts[0] == api::kUserTokenPrefix);
  return is_ours ? TokenParts{parts[1], parts[2]} : TokenParts{};
}

bool RateLimiter::admit(const std::string& caller, Instant now) {
  if (buckets_.size() > kMaxBuckets) {
    std::erase_if(buckets_, [&](const auto& entry) { return now - entry.second.at > seconds(60); });
    if (buckets_.size() > kMaxBuckets) buckets_.clear();
  }
  const auto [found, is_new] = buckets_.try_emplace(caller, Bucket{burst_, now});
  Bucket& bucket = found->second;
  const double elapsed_s = std::chrono::duration<double>(now - bucket.at).count();
  bucket.tokens = std::min(burst_, bucket.tokens + elapsed_s * per_second_);
  bucket.at = now;
  if (bucket.tokens < 1) return false;
  bucket.tokens -= 1;
  return true;
}

bool Api::is_within_limits(const ApiRequest& request) {
  const Instant now = context_.loop.now().boot;
  if (request.node) return callers_.admit(request.node->str(), now);
  if (!request.caller.user.empty()) return callers_.admit(request.caller.user.str(), now);
  return strangers_.admit(address_of(request.http.remote), now);
}

Status Api::authorize(const Route& route, ApiRequest& request) {
  if (route.access == Access::kPublic) return {};
  if (route.id == "showMetrics" && context_.has_public_metrics) return {};
  if (takes_nodes(route.access) && request.http.peer_identity) {
    request.node = node_of_identity(*request.http.peer_identity);
    const auto view = request.node ? context_.shell.core().node(*request.node, context_.shell.now())
                                   : std::nullopt;
    if (!view || view->row.is_revoked) {
      return fail(
          ErrorCode::kDenied,
          "this node's certificate is not known here, or was revoked",
          "join again with a fresh token: reclaim-agent join URL --token T"
      );
    }
    return {};
  }
  const auto role = role_of(route.access);
  if (!role) {
    return fail(
        ErrorCode::kDenied,
        "only a node with its certificate may do this",
        "join the node first: reclaim-agent join URL --token T"
    );
  }
  const std::string token = bearer_of(request.http);
  if (token.empty()) {
    return fail(
        ErrorCode::kDenied,
        "no token given",
        "log in first: reclaim login URL --token T; programs send 'Authorization: Bearer T'"
    );
  }
  const TokenParts parts = parts_of_token(token);
  RN_TRY(
      request.caller,
      context_.shell.core().authenticate(parts.id, parts.secret, context_.shell.now().wall)
  );
  if (request.caller.role >= *role) return {};
  return fail(
      ErrorCode::kDenied,
      "this needs the role " + std::string(to_string(*role)) + ", " + request.caller.user.str() +
          " is " + std::string(to_string(request.caller.role)),
      "ask an admin for a token of that role"
  );
}

Result<const Route*> Api::admit(ApiRequest& request) {
  RN_TRY(const Route* route, find_route(request.http.method, request.http.path, request.path));
  const Status authorized = authorize(*route, request);
  if (!is_within_limits(request))
    return fail(
        ErrorCode::kExhausted, "too many requests", "wait a second, and send fewer at a time"
    );
  if (!authorized) return fail(authorized.error());
  RN_TRY(auto query, io::parse_query(request.http.query));
  // Providers add what they like to what they send back, and it is to be ignored (RFC 6749, 4.1.2).
  const bool takes_anything = route->id == "returnFromSignIn";
  for (const auto& [name, value] : query) {
    if (takes_anything) break;
    if (std::find(route->query.begin(), route->query.end(), name) != route->query.end()) continue;
    std::string known;
    for (const auto one : route->query) known += (known.empty() ? "" : ", ") + std::string(one);
    return fail(
        ErrorCode::kInvalid,
        "no such query parameter: " + name,
        known.empty() ? "this takes none" : "this takes " + known
    );
  }
  request.query = std::move(query);
  context_.metrics.count_request(route->id);
  return route;
}

void Api::handle(io::HttpRequest http, const io::Responder& responder) {
  ApiRequest request;
  request.http = std::move(http);
  const auto route = admit(request);
  if (route) return (*route)->handler(context_, std::move(request), responder);
  const bool has_credentials =
      request.http.peer_identity.has_value() || !bearer_of(request.http).empty();
  responder.send(
      io::error_response(route.error(), io::HttpErrorContext{.has_credentials = has_credentials})
  );
}

Result<std::uint64_t> query_number(
    const ApiRequest& request, const std::string& name, std::uint64_t otherwise
) {
  const auto found = request.query.find(name);
  if (found == request.query.end()) return otherwise;
  std::uint64_t value = 0;
  const char* end = found->second.data() + found->second.size();
  const auto [last, code] = std::from_chars(found->second.data(), end, value);
  if (code != std::errc() || last != end)
    return fail(
        ErrorCode::kInvalid, name + ": expected a whole number", "for example " + name + "=10"
    );
  return value;
}

bool query_flag(const ApiRequest& request, const std::string& name) {
  const auto found = request.query.find(name);
  return found != request.query.end() && found->second != "0" && found->second != "false";
}

void with_job(
    ApiContext& context,
    const ApiRequest& request,
    const io::Responder& responder,
    std::function<void(const Job& job, bool is_live)> then,
    bool (*may)(const Caller& caller, const Job& job)
) {
  const std::string& name = request.path.at("id");
  const bool is_number = !name.empty() && name.size() < 20 &&
                         name.find_first_not_of("0123456789") == std::string::npos;
  const auto give =
      [caller = request.caller, responder, name, then, may](const Job& job, bool is_live) {
        if (!may(caller, job)) {
          return responder.send_error(Error{
              ErrorCode::kNotFound, "no job " + name, "'reclaim ps -a' lists yours"});
        }
        then(job, is_live);
      };
  const Core& core = context.shell.core();
  const Job* live = is_number ? core.find_job(std::stoull(name)) : core.find_job(JobId(name));
  if (live != nullptr) return give(*live, true);
  on_worker(
      context,
      responder,
      [&store = context.store, name, is_number] {
        return is_number ? store.find_job(std::stoull(name)) : store.find_job(JobId(name));
      },
      [give](const Job& job) { give(job, false); }
  );
}

}  // namespace rn::coordinator
