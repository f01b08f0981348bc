// SPDX-License-Identifier: Apache-2.0
#include "coordinator/notebooks.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/whole_number.h"
#include "coordinator/core.h"
#include "io/http_error.h"

namespace rn::coordinator {

namespace {

constexpr auto kKeyLives = std::chrono::minutes(10);
constexpr auto kSessionLives = std::chrono::hours(24 * 7);
constexpr std::size_t kInvitationBytes = 24;
constexpr const char* kStatePath = "/.reclaim/state";
/// Between two looks of a page that waits.
constexpr const char* kLookAgainS = "2";

/// What our own pages may do: nothing. They show words that others wrote.
constexpr const char* kOwnPagePolicy =
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

std::string html_of(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

bool wants_page(const io::HttpRequest& request) {
  return request.method == "GET" &&
         request.header("Accept").find("text/html") != std::string_view::npos;
}

/// `head`: of the page, as markup.
io::HttpResponse page_of(int status, const Error& error, const std::string& head) {
  io::HttpResponse page;
  page.status = status;
  page.headers = {
      {"Content-Type", "text/html; charset=utf-8"},
      {"Cache-Control", "no-store"},
      {"Content-Security-Policy", kOwnPagePolicy},
      {"Referrer-Policy", "no-referrer"},
      {"X-Content-Type-Options", "nosniff"}};
  page.body =
      "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\">" + head +
      "<title>ReclaimNet notebook</title></head><body><h1>Notebook</h1><p role=\"status\">" +
      html_of(error.message) + "</p><p>" + html_of(error.hint) + "</p></body></html>\n";
  return page;
}

/// A page for a person, else the interface's own form.
io::HttpResponse page_refusal(const io::HttpRequest& request, const Error& error) {
  if (wants_page(request)) return page_of(io::http_status(error.code), error, "");
  return io::error_response(error);
}

Error job_is_over(const Job& job) {
  const std::string number = std::to_string(job.number);
  return Error{
      ErrorCode::kConflict,
      "job " + number + " is over: " + std::string(to_string(job.state)),
      "its files: `reclaim cp " + number + ": FOLDER`; a new one: `reclaim notebook`"};
}

Error no_session(std::uint64_t job) {
  return Error{
      ErrorCode::kDenied,
      "this browser has no session here, or it has ended",
      "`reclaim notebook " + std::to_string(job) + "` prints an address that begins one"};
}

/// What a job that can still come back does meanwhile.
std::string words_of_absence(const Core& core, const Job& job, std::int64_t now_wall_ms) {
  if (job.state == JobState::kRunning || job.state == JobState::kNoticed)
    return ". The job runs; its notebook does not answer yet";
  if (job.state == JobState::kSaving || job.state == JobState::kDraining)
    return ". It is saved, and moves";
  std::int64_t left_wall_ms = 0;  // its last machine
  for (const Attempt& attempt : core.attempts(job.id))
    left_wall_ms = std::max(left_wall_ms, attempt.ended_wall_ms);
  if (left_wall_ms == 0) return "";
  const std::int64_t since_s = std::max<std::int64_t>(0, (now_wall_ms - left_wall_ms) / 1000);
  return ". It has been moving for " + std::to_string(since_s) + " s, and its files with it";
}

/// It is on a machine that is taken back: until it has left, also while its last state is saved,
/// which for one with little to save is nearly all the time that it has.
bool may_be_leaving(const Job& job) {
  return job.state == JobState::kNoticed || job.state == JobState::kSaving ||
         job.state == JobState::kDraining;
}

/// Of the reclaim that the job's machine is under, by the node's own word.
struct PageNotice {
  std::int64_t deadline_wall_ms = 0;  ///< 0: none
  std::string message;
};

PageNotice page_notice_of(const Core& core, const Job& job) {
  PageNotice notice;
  if (!may_be_leaving(job)) return notice;
  for (const ReclaimRow& row : core.reclaims()) {
    const ReclaimRecord& one = row.record;
    const bool is_under_way =
        one.phase == ReclaimPhase::kDeclared || one.phase == ReclaimPhase::kEvacuating;
    if (one.node != job.node || !is_under_way || one.deadline_ns <= one.declared_ns) continue;
    notice.deadline_wall_ms =
        one.declared_wall_ms + (one.deadline_ns - one.declared_ns) / 1'000'000;
    notice.message = one.message;
  }
  return notice;
}

}  // namespace

Notebooks::Notebooks(const Deps& deps, const crypto::Key256& secret, std::uint16_t port)
    : deps_(deps), secret_(secret), port_(port) {}

Notebooks::~Notebooks() {
  const auto requests = std::exchange(requests_, {});
  for (const auto& [id, one] : requests) one->stop();
}

void Notebooks::serve(io::HttpServer& server) {
  server.give_away(
      [this](const io::HttpRequest& request) { return goes_to_guest(request); },
      [this](const io::HttpRequest& request, std::shared_ptr<io::TakenConnection> connection) {
        take(request, std::move(connection));
      }
  );
}

// ---- who may

Result<std::uint16_t> Notebooks::port_in_guest(const Job& job) {
  const auto found = job.spec.env.find(kNotebookPort);
  const auto port = found == job.spec.env.end()
                        ? Result<std::uint16_t>(fail(ErrorCode::kInvalid, ""))
                        : whole_number<std::uint16_t>(found->second, 1, 65'535);
  if (port) return *port;
  return fail(
      ErrorCode::kUnsupported,
      "job " + std::to_string(job.number) + " has no notebook",
      std::string("`reclaim notebook` starts one; any job that serves browsers says where by --env "
      ) + kNotebookPort +
          "=PORT"
  );
}

Result<std::string> Notebooks::invite(
    const UserId& user, const std::string& token, const Job& job
) {
  const std::string number = std::to_string(job.number);
  if (user.empty() || user != job.owner)
    return fail(
        ErrorCode::kDenied,
        "the notebook of job " + number + " is " + job.owner.str() + "'s alone",
        "an administrator reaches it by `reclaim forward " + number + " PORT`"
    );
  RN_CHECK(port_in_guest(job));
  if (is_terminal(job.state)) return fail(job_is_over(job));
  const Instant now = deps_.loop.now().boot;
  std::erase_if(keys_, [&](const auto& entry) { return entry.second.until <= now; });
  if (keys_.size() >= kKeys)
    keys_.erase(std::min_element(keys_.begin(), keys_.end(), [](const auto& a, const auto& b) {
      return a.second.number < b.second.number;
    }));
  const std::string word = deps_.rng.hex(kInvitationBytes);
  keys_[crypto::sha256(as_bytes(word))] = Key{job.id, token, now + kKeyLives, next_key_++};
  return notebook::folder_of(job.number) + "/?key=" + word;
}

/// A key's use, or nothing if the request has none. Who has a session keeps it when the key is
/// used: so a page that was opened by it can be loaded again.
std::optional<io::HttpResponse> Notebooks::redeem(
    const io::HttpRequest& request, const notebook::Path& path
) {
  constexpr std::string_view kKey = "key=";
  const std::string_view query = request.query;
  if (request.method != "GET" || path.rest != "/" || !query.starts_with(kKey)) return std::nullopt;
  io::HttpResponse response;
  response.status = 303;
  response.headers = {
      {"Location", notebook::folder_of(path.job) + "/"},
      {"Cache-Control", "no-store"},
      {"Referrer-Policy", "no-referrer"}};
  const auto found = keys_.find(crypto::sha256(as_bytes(query.substr(kKey.size()))));
  const Instant now = deps_.loop.now().boot;
  const Job* job = deps_.shell.core().find_job(path.job);
  const bool counts = found != keys_.end() && found->second.until > now && job != nullptr &&
                      job->id == found->second.job;
  if (!counts) {
    if (visit_of(request)) return response;
    return page_refusal(
        request,
        Error{
            ErrorCode::kDenied,
            "this address was used already, or is older than ten minutes",
            no_session(path.job).hint}
    );
  }
  const std::int64_t lives_s = std::chrono::duration_cast<seconds>(kSessionLives).count();
  const notebook::Session session{
      found->second.token, to_ms(deps_.loop.now().wall) + lives_s * 1000};
  keys_.erase(found);
  response.headers.emplace_back(
      "Set-Cookie",
      std::string(notebook::kCookie) + "=" + notebook::sealed(session, job->id.str(), secret_) +
          "; Path=" + notebook::folder_of(path.job) + "; Max-Age=" + std::to_string(lives_s) +
          "; HttpOnly; Secure; SameSite=Strict"
  );
  log::info("notebook.session", {{"job", job->id.str()}, {"user", job->owner.str()}});
  return response;
}

Result<Notebooks::Visit> Notebooks::visit_of(const io::HttpRequest& request) const {
  const auto path = notebook::path_of(request.path);
  if (!path)
    return fail(
        ErrorCode::kNotFound, "there is no such page", "`reclaim notebook JOB` prints an address"
    );
  const Core& core = deps_.shell.core();
  const Job* job = core.find_job(path->job);
  if (job == nullptr) return fail(no_session(path->job));
  const Now now = deps_.loop.now();
  for (const std::string& cookie : notebook::session_cookies(request.headers)) {
    const auto session = notebook::opened(cookie, job->id.str(), secret_);
    if (!session || session->until_wall_ms <= to_ms(now.wall)) continue;
    const auto caller = core.caller_of_token(session->token, now.wall);
    if (!caller || caller->role < Role::kUser || caller->user != job->owner) continue;
    const auto port = port_in_guest(*job);
    if (!port) return fail(port.error());
    Tunnels::Wish wish{job->id, *port, caller->user, session->token};
    return Visit{job->id, std::move(wish), *path};
  }
  return fail(no_session(path->job));
}

bool Notebooks::goes_to_guest(const io::HttpRequest& request) const {
  const auto visit = visit_of(request);
  return visit && notebook::check_origin(request) && !visit->path.rest.empty() &&
         !visit->path.rest.starts_with("/.reclaim/") && !request.query.starts_with("key=") &&
         deps_.tunnels.admit(visit->wish);
}

// ---- what becomes of it

void Notebooks::take(
    const io::HttpRequest& request, std::shared_ptr<io::TakenConnection> connection
) {
  const auto visit = visit_of(request);
  if (!visit) return connection->close();
  const auto end = std::make_shared<LocalEnd>(deps_.loop);
  io::HttpRequest asked = request;
  asked.body.clear();
  const auto one = std::make_shared<ProxiedRequest>(
      std::move(connection),
      end,
      request,
      visit->path.job,
      [this, asked = std::move(asked)](const Error& why) { return absence_of(asked, why); }
  );
  const std::uint64_t id = next_request_++;
  requests_[id] = one;
  one->start([this, id] { requests_.erase(id); });
  deps_.tunnels.adopt_user(visit->wish, end);
}

void Notebooks::handle(const io::HttpRequest& request, const io::Responder& responder) {
  const auto path = notebook::path_of(request.path);
  if (path) {
    if (auto redeemed = redeem(request, *path)) return responder.send(*std::move(redeemed));
  }
  const auto visit = visit_of(request);
  if (!visit) return responder.send(page_refusal(request, visit.error()));
  const Status origin = notebook::check_origin(request);
  if (!origin) return responder.send(page_refusal(request, origin.error()));
  const Job* job = deps_.shell.core().find_job(visit->job);
  if (job == nullptr) return responder.send(page_refusal(request, no_session(visit->path.job)));
  if (visit->path.rest == kStatePath) {
    const io::HttpResponse state = state_of(*job);
    return deps_.shell.when_durable([responder, state] { responder.send(state); });
  }
  if (visit->path.rest.empty()) {
    io::HttpResponse moved;
    moved.status = 303;
    moved.headers = {{"Location", notebook::folder_of(visit->path.job) + "/"}};
    return responder.send(std::move(moved));
  }
  if (is_terminal(job->state)) return responder.send(page_refusal(request, job_is_over(*job)));
  const Status reachable = deps_.tunnels.admit(visit->wish);
  const Error why = reachable ? Error{ErrorCode::kUnavailable, "it was not there just now", {}}
                              : reachable.error();
  responder.send(absence_of(request, why));
}

/// For the page inside the notebook: what happens to its job.
io::HttpResponse Notebooks::state_of(const Job& job) const {
  const Core& core = deps_.shell.core();
  const PageNotice notice = page_notice_of(core, job);
  const auto why = core.why(job.id, deps_.shell.now());
  const nlohmann::json body = {
      {"job", job.number},
      {"state", std::string(to_string(job.state))},
      {"why", why ? *why : job.reason},
      {"now_wall_ms", to_ms(deps_.loop.now().wall)},
      {"is_noticed", job.state == JobState::kNoticed || notice.deadline_wall_ms != 0},
      {"deadline_wall_ms", notice.deadline_wall_ms},
      {"message", notice.message},
      {"durable_generation", job.durable.generation},
      {"node", job.node.str()},
      {"epoch", to_string(job.epoch)}};
  constexpr auto kReplace = nlohmann::json::error_handler_t::replace;
  io::HttpResponse response = io::json_response(200, body.dump(-1, ' ', false, kReplace));
  response.headers.emplace_back("Cache-Control", "no-store");
  return response;
}

/// The notebook is nowhere now: what happens instead, by a page that looks again.
io::HttpResponse Notebooks::absence_of(const io::HttpRequest& request, const Error& why) const {
  const auto path = notebook::path_of(request.path);
  const Core& core = deps_.shell.core();
  const Job* job = path ? core.find_job(path->job) : nullptr;
  Error said{ErrorCode::kUnavailable, why.message, "this page looks again every two seconds"};
  if (job != nullptr) {
    if (is_terminal(job->state)) return page_refusal(request, job_is_over(*job));
    said.message += words_of_absence(core, *job, to_ms(deps_.loop.now().wall));
  }
  io::HttpResponse answer =
      wants_page(request)
          ? page_of(
                503,
                said,
                std::string("<meta http-equiv=\"refresh\" content=\"") + kLookAgainS + "\">"
            )
          : io::error_response(said);
  std::erase_if(answer.headers, [](const auto& header) { return header.first == "Retry-After"; });
  answer.headers.emplace_back("Retry-After", kLookAgainS);
  return answer;
}

}  // namespace rn::coordinator
