// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "coordinator/api.h"
#include "coordinator/api_answers.h"
#include "io/http.h"

namespace rn::coordinator {

namespace {

constexpr std::size_t kJsonBytes = 1u << 20;
constexpr std::size_t kSmallJsonBytes = 64u << 10;
constexpr std::size_t kContractBytes = 256u << 10;  // as its file

// clang-format off
std::vector<Route> job_routes() {
  return {
    {"POST", "/v1/jobs", Access::kUser, "submitJob",
     "Submit a job. With an Idempotency-Key header a repetition answers the first job.",
     {}, kJsonBytes, "JobSpec", "SubmitAnswer", submit_job},
    {"GET", "/v1/jobs", Access::kViewer, "listJobs",
     "Jobs that the caller may read, newest first.",
     {"all", "before", "limit"}, 0, "", "JobList", list_jobs},
    {"GET", "/v1/jobs/{id}", Access::kViewer, "showJob",
     "One job by id or number.",
     {}, 0, "", "Job", show_job},
    {"GET", "/v1/jobs/{id}/logs", Access::kViewer, "readLog",
     "The log of one attempt (the newest, if none is named), as bytes. With follow=1 it goes on until the "
     "attempt has ended.",
     {"attempt", "offset", "end", "follow"}, 0, "", "bytes", stream_log},
    {"GET", "/v1/jobs/{id}/logs/range", Access::kViewer, "findInLog",
     "Where in the log of one attempt the lines are that came in a time (since_ms, until_ms: Unix milliseconds), or "
     "the last ones (tail: how many), and when they came.",
     {"attempt", "offset", "since_ms", "until_ms", "tail"}, 0, "", "LogRange", find_in_log},
    {"GET", "/v1/jobs/{id}/why", Access::kViewer, "explainJob",
     "One sentence: what the job does and why, or what it waits for.",
     {}, 0, "", "WhyAnswer", explain_job},
    {"POST", "/v1/plan", Access::kViewer, "planJob",
     "What would become of a job if it were submitted now: which nodes could take it, when, and how likely their "
     "owners take them back. Nothing is kept, and no node is asked.",
     {}, kJsonBytes, "JobSpec", "Plan", plan_job},
    {"POST", "/v1/jobs/{id}/stop", Access::kUser, "stopJob",
     "Stop a job, at once or after a last save. Repeatable.",
     {}, kSmallJsonBytes, "StopRequest", "Job", stop_job},
    {"GET", "/v1/jobs/{id}/attempts", Access::kViewer, "listAttempts",
     "The job's runs on nodes, oldest first.",
     {}, 0, "", "AttemptList", list_attempts},
    {"GET", "/v1/jobs/{id}/generations", Access::kViewer, "listGenerations",
     "The job's durable generations, oldest first.",
     {}, 0, "", "GenerationList", list_generations},
    {"GET", "/v1/jobs/{id}/outputs", Access::kViewer, "showOutputs",
     "The listing of published outputs; contents are blobs.",
     {}, 0, "", "Listing", show_outputs},
    {"GET", "/v1/jobs/{id}/events", Access::kViewer, "listJobEvents",
     "What happened to the job.",
     {"after", "limit"}, 0, "", "EventList", list_job_events},
    {"POST", "/v1/jobs/{id}/notebook", Access::kUser, "openNotebook",
     "An address for one browser that begins a session with the notebook of a job of the caller's own; of use once, "
     "for ten minutes.",
     {}, kSmallJsonBytes, "", "NotebookAnswer", open_notebook},
    {"GET", "/v1/forward", Access::kUser, "forwardPort",
     "WebSocket: one TCP connection to a port inside a running guest of a job of the caller's "
     "(docs/formats/tunnel.md).",
     {"job", "port"}, 0, "", "", refuse_plain_user},
    {"GET", "/v1/visit", Access::kUser, "visitGuest",
     "WebSocket: a command, or a copy of files, inside a running guest of a job of the caller's "
     "(docs/formats/visit.md).",
     {"job"}, 0, "", "", refuse_plain_user},
  };
}

/// Of jobs that are submitted together.
std::vector<Route> group_routes() {
  return {
    {"POST", "/v1/arrays", Access::kUser, "submitArray",
     "Submit a job for each index of an array, or none of them. With an Idempotency-Key header a repetition answers "
     "the first array.",
     {}, kJsonBytes, "ArrayRequest", "ArrayAnswer", submit_array},
    {"POST", "/v1/arrays/{id}/stop", Access::kUser, "stopArray",
     "Stop all tasks of an array, at once or after a last save. Repeatable.",
     {}, kSmallJsonBytes, "StopRequest", "ArrayStopped", stop_array},
    {"POST", "/v1/gangs", Access::kAdmin, "submitGang",
     "Submit the members of a gang, which begin, stop and go on together, or none of them. With an Idempotency-Key "
     "header a repetition answers the first gang.",
     {}, kJsonBytes, "GangRequest", "GangAnswer", submit_gang},
    {"GET", "/v1/gangs/{id}", Access::kViewer, "showGang",
     "One gang: its state, its members, and what all would go on from.",
     {}, 0, "", "GangInfo", show_gang},
    {"POST", "/v1/gangs/{id}/stop", Access::kUser, "stopGang",
     "Stop all members of a gang, at once or after a last save. Repeatable.",
     {}, kSmallJsonBytes, "StopRequest", "GangStopped", stop_gang},
  };
}

std::vector<Route> site_routes() {
  return {
    {"GET", "/v1/nodes", Access::kViewer, "listNodes",
     "All nodes.",
     {}, 0, "", "NodeList", list_nodes},
    {"GET", "/v1/nodes/{id}", Access::kViewer, "showNode",
     "One node.",
     {}, 0, "", "NodeInfo", show_node},
    {"GET", "/v1/nodes/{id}/hazard", Access::kViewer, "explainHazard",
     "How likely the node's owner takes it back soon, and what that is known from.",
     {}, 0, "", "HazardExplanation", explain_hazard},
    {"POST", "/v1/nodes/{id}/revoke", Access::kAdmin, "revokeNode",
     "Take the node's certificate no more; its jobs move.",
     {}, kSmallJsonBytes, "", "", revoke_node},
    {"POST", "/v1/nodes/{id}/reclaim", Access::kOwner, "orderReclaim",
     "Take a node of the own lab, or GPUs of it, back: with the contract's notice, at a time, or now. Repeatable by "
     "the order's name. Answered before the node has done anything: NodeInfo.orders says what becomes of it, and "
     "listReclaims what happens there. It is begun within 15 s or not at all. Nothing gives a node back from here.",
     {}, kSmallJsonBytes, "ReclaimRequest", "ReclaimOrder", order_reclaim},
    {"GET", "/v1/events", Access::kViewer, "listEvents",
     "The audit log, as far as the caller may read it.",
     {"job", "node", "kind", "after", "limit", "newest"}, 0, "", "EventList", list_events},
    {"GET", "/v1/events/stream", Access::kViewer, "streamEvents",
     "The audit log as it grows, as far as the caller may read it: server-sent events. The first message is `hello` "
     "(StreamHello); each further one is an `event` (EventInfo) whose id is its number, or for an owner `touched` "
     "(StreamTouched). With Last-Event-ID (or after) what came since is told first. A token that ends meanwhile ends "
     "the stream with `denied` (ErrorAnswer).",
     {"after"}, 0, "", "events", stream_events},
    {"GET", "/v1/reclaims", Access::kViewer, "listReclaims",
     "Reclaims as the nodes recorded them, newest first.",
     {"limit"}, 0, "", "ReclaimList", list_reclaims},
    {"GET", "/v1/telemetry", Access::kViewer, "listTelemetry",
     "Roll-ups of the nodes' telemetry for capacity planning.",
     {"node", "from", "to"}, 0, "", "TelemetryList", list_telemetry},
    {"POST", "/v1/blobs/missing", Access::kUserOrNode, "findMissingBlobs",
     "Which of these blobs the coordinator lacks.",
     {}, kJsonBytes, "BlobQuery", "BlobMissing", find_missing_blobs},
    {"PUT", "/v1/blobs/{sha256}", Access::kUserOrNode, "putBlob",
     "Upload a blob of at most 4 MiB. Answered when it is durable. Repeatable.",
     {}, kMaxBlobBytes, "bytes", "", put_blob},
    {"GET", "/v1/blobs/{sha256}", Access::kViewerOrNode, "getBlob",
     "Download a blob. Whoever knows a content's SHA-256 may read it.",
     {}, 0, "", "bytes", get_blob},
    {"HEAD", "/v1/blobs/{sha256}", Access::kViewerOrNode, "headBlob",
     "Whether a blob is there.",
     {}, 0, "", "", head_blob},
    {"GET", "/v1/images", Access::kViewerOrNode, "listImages",
     "The allow list.",
     {}, 0, "", "ImageList", list_images},
    {"POST", "/v1/images", Access::kUser, "addImage",
     "List an image whose archive was uploaded in blobs; the archive's digest is checked. Users may list what is built "
     "on a listed image, which is looked up layer by layer.",
     {}, kJsonBytes, "ImageRequest", "Image", add_image},
    {"DELETE", "/v1/images/{name}", Access::kUser, "removeImage",
     "Take an image off the allow list. Users may take off what they listed.",
     {}, 0, "", "", remove_image},
  };
}

std::vector<Route> access_routes() {
  return {
    {"GET", "/v1/tokens", Access::kOwner, "listTokens",
     "Tokens without their secrets: all for admins, the own lab's for owners.",
     {}, 0, "", "TokenList", list_tokens},
    {"POST", "/v1/tokens", Access::kOwner, "makeToken",
     "A join token (owners, for the own lab) or a user token (admins). The secret is shown once.",
     {}, kSmallJsonBytes, "TokenRequest", "TokenAnswer", make_token},
    {"DELETE", "/v1/tokens/{id}", Access::kUser, "revokeToken",
     "Revoke a token: one's own, or for admins any.",
     {}, 0, "", "", revoke_token},
    {"GET", "/v1/whoami", Access::kViewerOrNode, "whoami",
     "Who the credentials say the caller is.",
     {}, 0, "", "Whoami", whoami},
    {"POST", "/v1/join", Access::kPublic, "joinNode",
     "Redeem a one-use join token: the node gets its identity and certificate.",
     {}, kSmallJsonBytes, "JoinRequest", "JoinAnswer", join_node},
    {"POST", "/v1/renew", Access::kNode, "renewCertificate",
     "A fresh certificate for the same key.",
     {}, kSmallJsonBytes, "RenewRequest", "RenewAnswer", renew_certificate},
    {"GET", "/v1/agent", Access::kNode, "connectAgent",
     "WebSocket of an agent (docs/formats/wire.md).",
     {}, 0, "", "", refuse_plain_agent},
    {"GET", "/v1/agent/tunnels", Access::kNode, "connectTunnels",
     "Second WebSocket of an agent that has guests, for users' connections into them (docs/formats/tunnel.md).",
     {}, 0, "", "", refuse_plain_agent},
    {"GET", "/version", Access::kPublic, "showVersion",
     "Version of the program and of the wire protocol.",
     {}, 0, "", "VersionAnswer", show_version},
    {"GET", "/healthz", Access::kPublic, "showHealth",
     "The process is alive.",
     {}, 0, "", "HealthAnswer", show_health},
    {"GET", "/readyz", Access::kPublic, "showReadiness",
     "The database takes writes.",
     {}, 0, "", "HealthAnswer", show_readiness},
    {"GET", "/metrics", Access::kViewer, "showMetrics",
     "Metrics in Prometheus' text format.",
     {}, 0, "", "text", show_metrics},
    {"GET", "/openapi.json", Access::kPublic, "showOpenapi",
     "This document.",
     {}, 0, "", "", show_openapi},
  };
}

std::vector<Route> notify_routes() {
  return {
    {"GET", "/v1/notifications", Access::kUser, "listNotifications",
     "The caller's rules: who is told of what. With all=1 those of all users, for admins.",
     {"all"}, 0, "", "NotifyList", list_notifications},
    {"POST", "/v1/notifications", Access::kUser, "addNotification",
     "Have an address of mail or a webhook told of what becomes of the caller's jobs, or of one of them, or (owners) "
     "of the own lab's machines. An address is told nothing before it is confirmed by the code that it gets; a webhook "
     "(Notification is what it is sent) must be at a host that the operator allows. Its secret is shown once.",
     {}, kSmallJsonBytes, "NotifyRequest", "NotifyAnswer", add_notification},
    {"POST", "/v1/notifications/{id}/confirm", Access::kUser, "confirmNotification",
     "Give the code that was sent to a rule's address.",
     {}, kSmallJsonBytes, "NotifyConfirm", "NotifyRule", confirm_notification},
    {"POST", "/v1/notifications/{id}/test", Access::kUser, "testNotification",
     "Send a test by one of the caller's rules. Answered before it is sent: listNotifications says what became of it.",
     {}, 0, "", "", test_notification},
    {"DELETE", "/v1/notifications/{id}", Access::kUser, "removeNotification",
     "Remove a rule and what waits to be sent by it: the caller's own, or for admins any.",
     {}, 0, "", "", remove_notification},
  };
}

std::vector<Route> contract_routes() {
  return {
    {"POST", "/v1/nodes/{id}/contract", Access::kOwner, "editContract",
     "Another contract for a node of the own lab, made from the one in force (`from`). What only narrows that takes "
     "effect by itself; anything else waits on the node until somebody there accepts it. Repeatable by the edit's "
     "name. Answered before the node has done anything: NodeInfo.edits says what becomes of it. 409 if another "
     "contract is in force by now, or another change waits.",
     {}, kContractBytes, "ContractEditRequest", "ContractEdit", edit_contract},
    {"POST", "/v1/nodes/{id}/contract/check", Access::kOwner, "checkContract",
     "What such an edit would do: the hours it lends, who has to leave and when, and whether it would wait for "
     "somebody at the machine. Nothing is kept, and the node is not asked.",
     {}, kContractBytes, "ContractEditRequest", "ContractPreview", preview_contract},
  };
}

std::vector<Route> quota_routes() {
  return {
    {"GET", "/v1/quotas", Access::kViewer, "listQuotas",
     "Quotas, and who has how much of them: the caller, and their lab where a quota of it counts; for owners also its "
     "users; for admins everybody.",
     {}, 0, "", "QuotaList", list_quotas},
    {"PUT", "/v1/quotas/{subject}", Access::kAdmin, "setQuota",
     "Set what user:NAME or lab:NAME may have, or with * each that has none of its own, in place of the whole quota "
     "that it has for these GPUs. What runs goes on. Repeatable.",
     {}, kSmallJsonBytes, "QuotaRequest", "Quota", set_quota},
    {"DELETE", "/v1/quotas/{subject}", Access::kAdmin, "removeQuota",
     "Remove a quota: the one for all GPUs, or for those of a model.",
     {"model"}, 0, "", "", remove_quota},
  };
}

std::vector<Route> sign_in_routes() {
  return {
    {"GET", "/v1/signin", Access::kPublic, "describeSignIn",
     "Whether people sign in here with an account of the site's identity provider.",
     {}, 0, "", "SignInOffer", describe_sign_in},
    {"POST", "/v1/signin", Access::kPublic, "beginSignIn",
     "Begin a sign-in by this browser: where it goes, and a ticket that stays in its window. Of use for ten minutes. "
     "With a port, a program on the browser's machine waits there at 127.0.0.1 for what comes back (RFC 8252).",
     {}, kSmallJsonBytes, "SignInBegin", "SignInBegun", begin_sign_in},
    {"POST", "/v1/signin/finish", Access::kPublic, "finishSignIn",
     "What came back by the browser, with the ticket: a user token with an end, of the role and laboratory that the "
     "site's own table of users says. Who is not in it is refused.",
     {}, kSmallJsonBytes, "SignInFinish", "TokenAnswer", finish_sign_in},
    {"POST", "/v1/signin/device", Access::kPublic, "beginDeviceSignIn",
     "Begin a sign-in that is finished in a browser anywhere, by an address and a code (RFC 8628).",
     {}, kSmallJsonBytes, "", "DeviceSignIn", begin_device_sign_in},
    {"POST", "/v1/signin/device/finish", Access::kPublic, "finishDeviceSignIn",
     "Whether that was done by now, and then the token, as finishSignIn gives it.",
     {}, kSmallJsonBytes, "DeviceFinish", "DeviceAnswer", finish_device_sign_in},
    {"GET", "/signin", Access::kPublic, "returnFromSignIn",
     "Where the identity provider sends browsers back to: leads on to the dashboard, or asks whether to go "
     "on to the program on the browser's own machine that began it. Takes any query.",
     {"code", "state", "error"}, 0, "", "", return_from_sign_in},
  };
}

std::vector<Route> dashboard_routes() {
  return {
    {"GET", "/", Access::kPublic, "openDashboard",
     "Where the dashboard is.",
     {}, 0, "", "", open_dashboard},
    {"GET", "/ui/", Access::kPublic, "showDashboard",
     "The dashboard's page. It asks for a token itself.",
     {}, 0, "", "page", serve_dashboard},
    {"GET", "/ui/{file}", Access::kPublic, "showDashboardFile",
     "A file of the dashboard.",
     {}, 0, "", "bytes", serve_dashboard},
  };
}

// clang-format on

const std::vector<Route>& table() {
  static const std::vector<Route> kRoutes = [] {
    std::vector<Route> all = job_routes();
    for (auto& routes_of :
         {group_routes(),
          site_routes(),
          contract_routes(),
          access_routes(),
          notify_routes(),
          quota_routes(),
          sign_in_routes(),
          dashboard_routes()})
      all.insert(all.end(), routes_of.begin(), routes_of.end());
    return all;
  }();
  return kRoutes;
}

/// "/v1/jobs/{id}" against "/v1/jobs/j-1".
bool matches(
    std::string_view pattern, std::string_view path, std::map<std::string, std::string>& parameters
) {
  parameters.clear();
  while (!pattern.empty() && !path.empty()) {
    if (pattern.front() != '/' || path.front() != '/') return false;
    const std::size_t pattern_end = std::min(pattern.find('/', 1), pattern.size());
    const std::size_t path_end = std::min(path.find('/', 1), path.size());
    const std::string_view expected = pattern.substr(1, pattern_end - 1);
    const std::string_view given = path.substr(1, path_end - 1);
    if (expected.starts_with('{')) {
      if (given.empty()) return false;
      parameters[std::string(expected.substr(1, expected.size() - 2))] = given;
    } else if (expected != given) {
      return false;
    }
    pattern.remove_prefix(pattern_end);
    path.remove_prefix(path_end);
  }
  return pattern.empty() && path.empty();
}

}  // namespace

std::span<const Route> routes() {
  return table();
}

Result<const Route*> find_route(
    std::string_view method, std::string_view path, std::map<std::string, std::string>& parameters
) {
  std::string methods;
  for (const Route& route : table()) {
    std::map<std::string, std::string> found;
    if (!matches(route.pattern, path, found)) continue;
    if (route.method == method) {
      parameters = std::move(found);
      return &route;
    }
    methods += (methods.empty() ? "" : ", ") + std::string(route.method);
  }
  if (methods.empty()) {
    return fail(
        ErrorCode::kNotFound,
        "no such path: " + std::string(path.substr(0, 200)),
        "GET /openapi.json lists what there is"
    );
  }
  return fail(
      ErrorCode::kUnsupported,
      std::string(path.substr(0, 200)) + " does not take " + std::string(method.substr(0, 16)),
      "it takes " + methods
  );
}

std::size_t Api::body_limit(const std::string& path) {
  std::size_t limit = 0;
  std::map<std::string, std::string> ignored;
  for (const Route& route : table()) {
    if (matches(route.pattern, path, ignored)) limit = std::max(limit, route.max_body_bytes);
  }
  return limit;
}

}  // namespace rn::coordinator
