// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/error.h"
#include "coordinator/blobs.h"
#include "coordinator/blobs_log.h"
#include "coordinator/core_types.h"
#include "coordinator/daemon_shell.h"
#include "coordinator/dashboard.h"
#include "coordinator/metrics.h"
#include "coordinator/pki.h"
#include "coordinator/store.h"
#include "io/http_server.h"

namespace rn::coordinator {

class Notebooks;
class NotifyDesk;
class OidcDesk;
class Outbox;

/// Who may call a route; deny is the default for whoever fits none.
enum class Access : std::uint8_t {
  kPublic,  ///< no credentials needed
  kNode,    ///< a node's client certificate
  kViewer,  ///< a bearer token of this role or a higher one
  kUser,
  kOwner,
  kAdmin,
  kViewerOrNode,  ///< either
  kUserOrNode,
};

/// What the handlers work with. All borrowed; loop thread.
struct ApiContext {
  io::Loop& loop;
  io::Workers& workers;
  Shell& shell;
  Store& store;
  BlobStore& blobs;
  AttemptLogs& logs;
  const SitePki& pki;
  MetricsRecorder& metrics;
  std::string version;
  std::string url;    ///< "https://host:port" told to nodes; empty: as they reached us
  std::string place;  ///< "host:port" for who told no host
  bool has_public_metrics = false;
  std::span<const DashboardFile> dashboard = {};
  std::map<std::string, std::size_t> streams = {};  ///< open event streams, by user
  NotifyDesk* notify = nullptr;                     ///< nullptr: notifications are off
  const Outbox* outbox = nullptr;                   ///< the same
  Notebooks* notebooks = nullptr;                   ///< nullptr: the site has no address for them
  OidcDesk* sign_in = nullptr;                      ///< nullptr: no identity provider is configured
};

/// A request whose credentials, path and query were accepted.
struct ApiRequest {
  io::HttpRequest http;
  std::map<std::string, std::string> path;   ///< {id} and the like
  std::map<std::string, std::string> query;  ///< only names that the route lists
  Caller caller;                             ///< of a token; empty user for a node or nobody
  std::optional<NodeId> node;                ///< of a certificate
};

using ApiHandler = void (*)(ApiContext&, ApiRequest, io::Responder);

/// One operation. docs/openapi.yaml is made from this table.
struct Route {
  std::string_view method;
  std::string_view pattern;  ///< "/v1/jobs/{id}/why"
  Access access = Access::kAdmin;
  std::string_view id;  ///< operationId
  std::string_view summary;
  std::vector<std::string_view> query;  ///< allowed names
  std::size_t max_body_bytes = 0;
  std::string_view request;  ///< schema of the body; "" = none, "bytes" = raw
  std::string_view answer;   ///< schema of the 200; "" = none, "bytes", "text", "events", "page"
  ApiHandler handler = nullptr;
};

std::span<const Route> routes();

/// Finds the route of a request and its path parameters. kNotFound; kUnsupported for a known path
/// with another method (the message names the ones there are).
Result<const Route*> find_route(
    std::string_view method, std::string_view path, std::map<std::string, std::string>& parameters
);

/// The OpenAPI 3.1 document of routes() and of the field tables.
nlohmann::json openapi_document(const std::string& version);

/// Tokens per second for one caller, so that one cannot starve the others.
class RateLimiter {
 public:
  RateLimiter(double per_second, double burst) : per_second_(per_second), burst_(burst) {}

  /// False if the caller has used up its share. Forgets callers that have been quiet.
  bool admit(const std::string& caller, Instant now);

 private:
  struct Bucket {
    double tokens = 0;
    Instant at;
  };

  double per_second_;
  double burst_;
  std::map<std::string, Bucket> buckets_;
};

/// The REST front: finds the route, checks credentials, limits and the query, then calls the
/// handler. Loop thread.
class Api {
 public:
  explicit Api(ApiContext& context) : context_(context) {}

  void handle(io::HttpRequest request, const io::Responder& responder);
  /// What handle() asks before it calls a handler, also for a WebSocket: finds the route of
  /// `request.http`, and fills in the rest. kDenied, kExhausted, kInvalid, and as find_route().
  Result<const Route*> admit(ApiRequest& request);
  static std::size_t body_limit(const std::string& path);

 private:
  Status authorize(const Route& route, ApiRequest& request);
  bool is_within_limits(const ApiRequest& request);

  ApiContext& context_;
  RateLimiter callers_{2000, 4000};
  RateLimiter strangers_{100, 200};
};

/// Of a token "rn1.t-….SECRET.FP" (join) or "rnu1.…" (user); both empty for anything else.
struct TokenParts {
  std::string id;
  std::string secret;
};

TokenParts parts_of_token(const std::string& token);

/// The bearer token of a request; empty if it has none.
std::string bearer_of(const io::HttpRequest& request);

}  // namespace rn::coordinator
