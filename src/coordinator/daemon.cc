// SPDX-License-Identifier: Apache-2.0
#include "coordinator/daemon.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "coordinator/api.h"
#include "coordinator/collector.h"
#include "coordinator/core_sign_in.h"
#include "coordinator/notebooks.h"
#include "coordinator/notify_desk.h"
#include "coordinator/oidc_desk.h"
#include "coordinator/sqlite_store.h"
#include "coordinator/tunnels.h"
#include "io/delivery.h"
#include "io/http_error.h"
#include "io/http_server.h"
#include "io/own_address.h"
#include "io/real_clock.h"
#include "io/real_fs.h"
#include "io/real_rng.h"
#include "model/api.h"

namespace rn::coordinator {

namespace {

constexpr std::size_t kWorkers = 4;
constexpr std::size_t kMaxQueuedWork = 1024;
/// Its own certificate is renewed after this part of its life, as the nodes do with theirs.
constexpr int kCertificateRenewals = 7;
/// A blob is removed in the second round that finds it unreferenced: uploads have so much time to
/// become a job or an image.
constexpr nanoseconds kCollectEvery = std::chrono::hours(6);
/// Events of so long are looked at together; and without any, for what was held back.
constexpr auto kNotifyLook = milliseconds(200);
constexpr auto kNotifyRound = seconds(60);
/// One receiver is spoken to by one thread, so that so many slow ones hold up the others.
constexpr std::size_t kNotifyThreads = 4;
/// The same of the identity provider: who waits for it waits for nobody else.
constexpr std::size_t kSignInThreads = 2;
constexpr std::size_t kMaxQueuedSignIns = 64;
/// What was answered last still has to reach the sockets.
constexpr auto kFlushTime = milliseconds(200);

/// A connection is a descriptor, and a campus has many nodes.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

std::vector<std::string> certificate_names(const DaemonConfig& config) {
  std::vector<std::string> names = config.names;
  names.push_back(io::own_hostname());
  if (config.listen_address != "0.0.0.0" && config.listen_address != "::")
    names.push_back(config.listen_address);
  return names;
}

bool has_entries(FileSystem& fs, const std::string& folder) {
  const auto names = fs.list(folder);
  const auto is_ours = [](const std::string& name) { return name != "lost+found"; };
  return names && std::any_of(names->begin(), names->end(), is_ours);
}

/// What shows that a site has run from this folder; empty for none. A first start makes a whole
/// database, then the keys, then anything of this.
std::string trace_of_site(FileSystem& fs, const std::string& state) {
  if (fs.stat(join_path(state, "admin.token"))) return "admin.token";
  for (const char* folder : {"blobs", "logs"})
    if (has_entries(fs, join_path(state, folder))) return std::string(folder) + "/";
  return "";
}

/// A new site in its place would lose what was acknowledged and lock every node out.
Status refuse_to_start_anew(
    const std::string& state, const std::string& what, const std::string& trace
) {
  return fail(
      ErrorCode::kCorrupt,
      what + ", but " + state + " belongs to a site that has run (" + trace + " is there)",
      "restore what is missing from the newest backup; or, for a new site that every node must "
      "join again, move " +
          state + " away"
  );
}

/// Before the store makes a new one.
Status check_database_is_there(FileSystem& fs, const std::string& state) {
  const bool has_keys = fs.stat(join_path(state, "pki/ca.pem")).has_value();
  const std::string trace = has_keys ? "pki/ca.pem" : trace_of_site(fs, state);
  if (trace.empty()) return {};
  const auto database = fs.stat(join_path(state, "coordinator.db"));
  if (database && database->size > 0) return {};
  if (!database && database.error().code != ErrorCode::kNotFound) return fail(database.error());
  const std::string what = database ? "coordinator.db is empty" : "coordinator.db is missing";
  return refuse_to_start_anew(state, what, trace);
}

/// Before new ones are made.
Status check_keys_are_there(FileSystem& fs, const std::string& state, Store& store) {
  const auto authority = fs.stat(join_path(state, "pki/ca.pem"));
  if (authority) return {};
  if (authority.error().code != ErrorCode::kNotFound) return fail(authority.error());
  std::string trace = trace_of_site(fs, state);
  if (trace.empty()) {
    EventFilter any;
    any.limit = 1;
    RN_TRY(const auto events, store.events(any));
    if (!events.empty()) trace = "its history in coordinator.db";
  }
  if (trace.empty()) return {};
  return refuse_to_start_anew(state, "pki/ca.pem is missing", trace);
}

}  // namespace

struct Daemon::State {
  State(io::Loop& owner, const DaemonConfig& settings, Events told)
      : loop(owner),
        config(settings),
        events(std::move(told)),
        workers(owner, kWorkers, kMaxQueuedWork) {}

  io::Loop& loop;
  DaemonConfig config;
  Events events;
  io::RealFileSystem fs;
  io::RealRng rng;
  std::unique_ptr<SqliteStore> store;
  std::optional<SitePki> pki;
  std::optional<BlobStore> blobs;
  std::unique_ptr<AttemptLogs> logs;
  MetricsRecorder metrics;
  std::unique_ptr<Shell> shell;
  io::RealClock clock;
  std::map<NodeId, std::string> hosts;  ///< names of machines, for people
  std::unique_ptr<Outbox> outbox;       ///< none: notifications are off
  std::unique_ptr<RealNotifySender> notify_sender;
  std::unique_ptr<Notifier> notifier;
  std::unique_ptr<NotifyDesk> notify_desk;
  std::unique_ptr<ApiContext> context;
  std::unique_ptr<Api> api;
  std::unique_ptr<Tunnels> tunnels;
  std::unique_ptr<Notebooks> notebooks;    ///< none: the site has no address for them
  std::unique_ptr<OidcProvider> provider;  ///< none: no identity provider is configured
  std::unique_ptr<OidcDesk> sign_in;
  std::unique_ptr<io::Workers> sign_in_workers;  ///< destroyed before what their work borrows
  io::Workers workers;                           ///< destroyed before what its work borrows
  std::unique_ptr<io::HttpServer> server;
  std::unique_ptr<io::HttpServer> notebooks_server;
  io::TimerId renewal;
  io::TimerId collection;
  io::TimerId notify_look;
  io::TimerId notify_round;
  bool is_notify_due = false;
  bool is_collecting = false;
  bool is_draining = false;

  ~State() {
    loop.cancel(renewal);
    loop.cancel(collection);
    loop.cancel(notify_look);
    loop.cancel(notify_round);
    if (provider) provider->stop();
    notebooks_server.reset();
    server.reset();
  }

  Status open();
  Status restore();
  Status listen();
  Status open_outbox();
  void start_notifying();
  void note_events();
  NotifyStanding standing() const;
  void make_admin_token();
  void renew_certificate();
  void collect();
  void tell_owners(const CollectReport& report);
  Status admit_agent(const io::HttpRequest& request) const;
  void serve_tunnels();
  Status serve_notebooks();
  void start_sign_in();
};

Status Daemon::State::open() {
  RN_CHECK(make_folders(fs, config.state, 0700).map_error([](const Error& error) {
    return error.with("state").hinting("name with --state a folder that can be made and written");
  }));
  RN_CHECK(check_database_is_there(fs, config.state));
  RN_TRY(store, SqliteStore::open(config.state));
  RN_CHECK(check_keys_are_there(fs, config.state, *store));
  RN_TRY(pki, SitePki::open_or_create(fs, join_path(config.state, "pki"), rng, loop.now().wall));
  pki->set_certificate_lifetime(seconds(config.certificate_s));
  RN_CHECK(make_folders(fs, join_path(config.state, "blobs"), 0700));
  RN_TRY(auto opened, BlobStore::open(fs, join_path(config.state, "blobs")));
  blobs.emplace(std::move(opened));
  blobs->set_reserve(config.disk_reserve_bytes);
  const std::string log_folder = join_path(config.state, "logs");
  RN_CHECK(make_folders(fs, log_folder, 0700));
  RN_CHECK(fs.sync_folder(config.state));
  logs = std::make_unique<AttemptLogs>(fs, log_folder, config.log_limit_bytes);
  return {};
}

Status Daemon::State::restore() {
  RN_TRY(const Snapshot snapshot, store->load());
  metrics.prime(snapshot);
  for (const NodeRow& row : snapshot.nodes) hosts[row.node] = row.facts.hostname;
  const auto fatal = [this](const Error& error) {
    log::error("daemon.fatal", {{"why", error.describe()}});
    if (events.fatal) events.fatal(error);
  };
  const Shell::Deps deps{loop, workers, *store, *blobs, *logs, rng, fatal, config.utc_offset_s};
  shell = std::make_unique<Shell>(deps, config.core, pki->keys());
  shell->on_write([this](const Write& write) {
    metrics.see(write);
    const auto* const node = std::get_if<PutNode>(&write);
    if (node != nullptr) hosts[node->row.node] = node->row.facts.hostname;
  });
  return shell->restore();
}

void Daemon::State::make_admin_token() {
  CreateUserToken command;
  command.user = UserId("admin");
  command.lab = LabId("site");
  command.role = Role::kAdmin;
  shell->command(Core::system_caller(), command, [this](Result<Answer> result) {
    if (!result) {
      log::error("daemon.no_admin_token", {{"why", result.error().describe()}});
      return;
    }
    const auto& made = std::get<TokenMade>(*result);
    const std::string token = std::string(api::kUserTokenPrefix) + "." + made.token.id + "." +
                              made.secret + "." + pki->ca_fingerprint();
    const std::string path = join_path(config.state, "admin.token");
    const Status written = write_durably(fs, path, as_bytes(token + "\n"), 0600);
    if (!written) log::error("daemon.no_admin_token", {{"why", written.error().describe()}});
    if (events.admin_token) events.admin_token(token);
  });
}

/// Its place among the events that there are: of what came before the first start on it, and of an
/// older database than it knows, nothing is told.
Status Daemon::State::open_outbox() {
  RN_TRY(outbox, Outbox::open(join_path(config.state, "notify.db"), NotifyLimits{}));
  EventFilter newest;
  newest.is_newest_first = true;
  newest.limit = 1;
  RN_TRY(const auto events_there, store->events(newest));
  const std::uint64_t head = events_there.empty() ? 0 : events_there.front().seq;
  if (outbox->cursor() <= head && outbox->has_rules()) return {};
  return outbox->move_cursor(head);
}

/// A site whose outbox cannot be used serves all the same.
void Daemon::State::start_notifying() {
  const Status opened = open_outbox();
  if (!opened) {
    log::error("notify.off", {{"why", opened.error().describe()}});
    outbox.reset();
    return;
  }
  notify_sender = std::make_unique<RealNotifySender>(config.notify, clock);
  notifier = std::make_unique<Notifier>(Notifier::Deps{*outbox, *store, *notify_sender, clock});
  notify_desk = std::make_unique<NotifyDesk>(NotifyDesk::Deps{
      *outbox, *notifier, *store, config.notify, rng, clock});
  notifier->start(kNotifyThreads);
  shell->watch_events([this] { note_events(); });
  notify_round = loop.run_every(kNotifyRound, [this] { note_events(); });
  note_events();  // of what came before the last end, and was not told
}

void Daemon::State::note_events() {
  if (is_notify_due || outbox->counts().rules == 0) return;
  is_notify_due = true;
  notify_look = loop.run_after(kNotifyLook, [this] {
    is_notify_due = false;
    notifier->look(standing());
  });
}

NotifyStanding Daemon::State::standing() const {
  NotifyStanding now_there;
  const std::int64_t now_ms = to_ms(loop.now().wall);
  for (const TokenRow& token : shell->core().tokens()) {
    const bool counts = is_told_by(token, now_ms);
    if (counts && token.role >= Role::kUser) now_there.users.insert(token.user);
    if (!counts || token.role < Role::kOwner) continue;
    // Of a sign-in that has ended: nobody thinks of taking it back from who is an owner no more.
    const bool has_ended = token.expires_wall_ms != 0 && token.expires_wall_ms <= now_ms;
    if (has_ended && !shell->core().is_as_in_table(token)) continue;
    now_there.owners.emplace(token.user, token.lab);
  }
  now_there.hosts = hosts;
  return now_there;
}

Status Daemon::State::admit_agent(const io::HttpRequest& request) const {
  if (is_draining)
    return fail(ErrorCode::kUnavailable, "the coordinator is stopping", "connect again later");
  const auto node = request.peer_identity ? node_of_identity(*request.peer_identity) : std::nullopt;
  const auto view = node ? shell->core().node(*node, shell->now()) : std::nullopt;
  if (view && !view->row.is_revoked && request.peer_key) return {};
  return fail(
      ErrorCode::kDenied,
      "this node's certificate is missing, not known here, or was revoked",
      "join again with a fresh token: reclaim-agent join URL --token T"
  );
}

void Daemon::State::serve_tunnels() {
  tunnels = std::make_unique<Tunnels>(loop, *shell, *api);
  server->serve_websocket(
      "/v1/agent/tunnels",
      [this](const io::HttpRequest& request) { return admit_agent(request); },
      [this](const io::HttpRequest& request, std::shared_ptr<io::WebSocket> socket) {
        tunnels->adopt_node(*node_of_identity(*request.peer_identity), std::move(socket));
      }
  );
  for (const char* path : {Tunnels::kForwardPath, Tunnels::kVisitPath}) {
    server->serve_websocket(
        path,
        [this](const io::HttpRequest& request) -> Status {
          if (is_draining)
            return fail(
                ErrorCode::kUnavailable, "the coordinator is stopping", "connect again later"
            );
          return tunnels->admit(request);
        },
        [this](const io::HttpRequest& request, std::shared_ptr<io::WebSocket> socket) {
          tunnels->adopt_user(request, std::move(socket));
        }
    );
  }
}

/// An origin of their own: their pages come from guests (ADR 0023).
Status Daemon::State::serve_notebooks() {
  if (!config.notebooks) return {};
  io::HttpServerConfig http;
  http.address = config.notebooks->address;
  http.port = config.notebooks->port;
  http.max_connections = 2048;
  http.max_body_bytes = 64u << 10;  // of what does not go to a guest
  RN_TRY(http.tls, pki->issue_server(certificate_names(config), loop.now().wall));
  auto handler = [this](const io::HttpRequest& request, const io::Responder& responder) {
    if (!is_draining) return notebooks->handle(request, responder);
    responder.send_error(Error{
        ErrorCode::kUnavailable, "the coordinator is stopping", "repeat it later"});
  };
  auto started = io::HttpServer::start(loop, std::move(http), std::move(handler));
  if (!started)
    return fail(started.error().with("notebooks_listen").hinting("choose another port there"));
  notebooks_server = *std::move(started);
  notebooks = std::make_unique<Notebooks>(
      Notebooks::Deps{loop, *shell, *tunnels, rng},
      crypto::derive_key(pki->keys().wrapping_key, "notebook sessions"),
      notebooks_server->port()
  );
  notebooks->serve(*notebooks_server);
  context->notebooks = notebooks.get();
  return {};
}

void Daemon::State::start_sign_in() {
  if (!config.oidc) return;
  OidcProvider::Ask ask = config.ask;
  if (!ask) ask = io::ask;
  provider = std::make_unique<OidcProvider>(*config.oidc, clock, std::move(ask));
  sign_in_workers = std::make_unique<io::Workers>(loop, kSignInThreads, kMaxQueuedSignIns);
  sign_in = std::make_unique<OidcDesk>(
      OidcDesk::Deps{loop, *sign_in_workers, *shell, *provider, *config.oidc, rng},
      config.url + "/signin",
      crypto::derive_key(pki->keys().wrapping_key, "sign-in tickets")
  );
  context->sign_in = sign_in.get();
}

Status Daemon::State::listen() {
  io::HttpServerConfig http;
  http.address = config.listen_address;
  http.port = config.port;
  http.max_connections = 16'384;
  http.body_limit = &Api::body_limit;
  http.websocket.max_message_bytes = wire::kMaxMessageBytes;
  http.websocket.idle_timeout =
      std::max<milliseconds>(seconds(30), milliseconds(config.core.lease_ms) * 2);
  RN_TRY(http.tls, pki->issue_server(certificate_names(config), loop.now().wall));
  auto handler = [this](io::HttpRequest request, const io::Responder& responder) {
    if (is_draining) {
      return responder.send_error(Error{
          ErrorCode::kUnavailable, "the coordinator is stopping", "repeat it later"});
    }
    api->handle(std::move(request), responder);
  };
  RN_TRY(server, io::HttpServer::start(loop, std::move(http), std::move(handler)));
  const std::string host = config.listen_address == "0.0.0.0" || config.listen_address == "::"
                               ? io::own_hostname()
                               : config.listen_address;
  const std::string place = (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" +
                            std::to_string(server->port());
  context.reset(new ApiContext{
      loop,
      workers,
      *shell,
      *store,
      *blobs,
      *logs,
      *pki,
      metrics,
      config.core.version,
      config.url,
      place,
      config.has_public_metrics,
      config.dashboard});
  start_notifying();
  context->notify = notify_desk.get();
  context->outbox = outbox.get();
  start_sign_in();
  api = std::make_unique<Api>(*context);
  server->serve_websocket(
      "/v1/agent",
      [this](const io::HttpRequest& request) { return admit_agent(request); },
      [this](const io::HttpRequest& request, std::shared_ptr<io::WebSocket> socket) {
        shell->adopt_agent(
            *node_of_identity(*request.peer_identity), *request.peer_key, std::move(socket)
        );
      }
  );
  serve_tunnels();
  RN_CHECK(serve_notebooks());
  const nanoseconds keeps = seconds(config.keep_ended_s);
  collection = loop.run_every(std::min(kCollectEvery, keeps / 4), [this] { collect(); });
  const auto certificate_life =
      std::chrono::duration_cast<nanoseconds>(seconds(config.certificate_s));
  renewal =
      loop.run_every(certificate_life / kCertificateRenewals, [this] { renew_certificate(); });
  return {};
}

/// A warning counts only when it is durable in the history; else the next round repeats it.
void Daemon::State::tell_owners(const CollectReport& report) {
  const auto note = [&](const Job& job, std::string kind, std::string message, auto done) {
    shell->command(
        Core::system_caller(),
        NoteJob{job.id, job.owner, job.lab, std::move(kind), std::move(message)},
        std::move(done)
    );
  };
  for (const Job& job : report.to_warn) {
    const std::int64_t goes_ms =
        job.finished_wall_ms + milliseconds(seconds(config.keep_outputs_s)).count();
    note(
        job,
        "outputs.expire",
        "nobody has fetched its outputs: they are removed after " +
            utc_text(std::max(goes_ms, to_ms(loop.now().wall))) + "; next: `reclaim cp " +
            std::to_string(job.number) +
            "`, or ask the operator for a longer keep_outputs_s (now " +
            std::to_string(config.keep_outputs_s) + ")",
        [this, id = job.id](const Result<Answer>& noted) {
          if (!noted) return;
          const Status submitted = workers.submit_for(
              [this, id, now = to_ms(loop.now().wall)] { return logs->mark_warned(id, now); },
              [](const Status& marked) {
                if (!marked) log::error("collect.failed", {{"why", marked.error().describe()}});
              }
          );
          if (!submitted) log::warning("collect.busy", {{"job", id.str()}});
        }
    );
  }
  for (const Job& job : report.unfetched)
    note(
        job,
        "outputs.removed",
        "its outputs were removed, and nobody had fetched them: it ended more than " +
            std::to_string(config.keep_outputs_s) + " s (keep_outputs_s) ago",
        [](const Result<Answer>&) {}
    );
}

/// On a worker; one round at a time.
void Daemon::State::collect() {
  if (is_collecting || is_draining) return;
  CollectRequest request;
  request.images = shell->core().images();
  request.now_wall_ms = to_ms(loop.now().wall);
  request.keep_ms = milliseconds(seconds(config.keep_ended_s)).count();
  request.keep_outputs_ms = milliseconds(seconds(config.keep_outputs_s)).count();
  const Status submitted = workers.submit_for(
      [this, request = std::move(request)] { return collect_once(*store, *blobs, *logs, request); },
      [this](const Result<CollectReport>& done) {
        is_collecting = false;
        if (!done) return log::error("collect.failed", {{"why", done.error().describe()}});
        tell_owners(*done);
        if (done->blobs.blobs + done->logs_of_jobs == 0) return;
        log::info(
            "collect.done",
            {{"blobs", done->blobs.blobs},
             {"bytes", done->blobs.bytes},
             {"logs_of_jobs", done->logs_of_jobs}}
        );
      }
  );
  is_collecting = submitted.has_value();
}

void Daemon::State::renew_certificate() {
  const auto tls = pki->issue_server(certificate_names(config), loop.now().wall);
  Status renewed = tls ? server->reload_tls(*tls) : Status(fail(tls.error()));
  if (renewed && notebooks_server) renewed = notebooks_server->reload_tls(*tls);
  if (!renewed) log::error("daemon.certificate_not_renewed", {{"why", renewed.error().describe()}});
}

Daemon::Daemon(std::unique_ptr<State> state) : state_(std::move(state)) {}

Daemon::~Daemon() = default;

Result<std::unique_ptr<Daemon>> Daemon::start(
    io::Loop& loop, const DaemonConfig& config, Events events
) {
  raise_descriptor_limit();
  auto state = std::make_unique<State>(loop, config, std::move(events));
  RN_CHECK(state->open());
  RN_CHECK(state->restore());
  RN_CHECK(state->listen());
  // Not before: a start that cannot listen would keep the token for itself.
  if (!state->shell->core().has_users() || config.makes_admin_token) state->make_admin_token();
  log::info(
      "daemon.listening",
      {{"address", config.listen_address},
       {"port", std::to_string(state->server->port())},
       {"state", config.state}}
  );
  return std::unique_ptr<Daemon>(new Daemon(std::move(state)));
}

void Daemon::drain(std::function<void()> done) {
  state_->is_draining = true;
  state_->shell->when_durable([this, done = std::move(done)] {
    state_->loop.run_after(kFlushTime, done);
  });
}

std::uint16_t Daemon::port() const {
  return state_->server->port();
}

std::string Daemon::ca_fingerprint() const {
  return state_->pki->ca_fingerprint();
}

}  // namespace rn::coordinator
