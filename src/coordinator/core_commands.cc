// SPDX-License-Identifier: Apache-2.0
#include "coordinator/core_commands.h"

#include <algorithm>

#include "base/log.h"
#include "base/planted.h"
#include "coordinator/core.h"
#include "coordinator/core_arrays.h"
#include "coordinator/core_contracts.h"
#include "coordinator/core_gangs.h"
#include "coordinator/core_hazard.h"
#include "coordinator/core_job_life.h"
#include "coordinator/core_orders.h"
#include "coordinator/core_quota.h"
#include "coordinator/core_registry.h"
#include "coordinator/core_sign_in.h"
#include "coordinator/core_waiting.h"

namespace rn::coordinator {

namespace {

constexpr std::size_t kKeyBytes = 128;
constexpr std::int64_t kRejoinMs = 600'000;
constexpr std::size_t kImages = 4096;
constexpr std::size_t kImagesOfUser = 16;

tl::unexpected<Error> denied(std::string message, std::string hint) {
  return fail(ErrorCode::kDenied, std::move(message), std::move(hint));
}

const Image* find_image(const State& state, const std::string& wanted) {
  const auto by_name = state.images.find(wanted);
  if (by_name != state.images.end()) return &by_name->second;
  for (const auto& [name, image] : state.images) {
    if (image.digest == wanted) return &image;
  }
  return nullptr;
}

std::vector<std::string_view> names_of_images(const State& state) {
  std::vector<std::string_view> names;
  for (const auto& [name, image] : state.images) names.push_back(name);
  return names;
}

Result<Answer> same_again(State& state, const Caller& caller, const SubmitJob& command) {
  const JobEntry& job =
      *state.find_job(state.jobs_by_key.at({caller.user, command.idempotency_key}));
  if (job.row.job.array || job.row.job.gang || job.row.job.spec != command.spec)
    return fail(key_used_for(job));
  return JobSubmitted{.job = job.row.job, .is_repeat = true, .warnings = warnings_for(state, job)};
}

/// "its limit", or how many more of how many are too many.
std::string limit_words(const std::string& whose, std::size_t count, std::uint32_t limit) {
  if (count == 1) return whose;
  return "and " + std::to_string(count) + " more are over " + whose + ", " + std::to_string(limit);
}

Status check_room(const State& state, const Caller& caller, std::size_t count) {
  const std::uint32_t limit = state.config.max_unfinished_jobs;
  if (state.unfinished.size() + count > limit)
    return fail(
        ErrorCode::kExhausted,
        "the site has " + std::to_string(state.unfinished.size()) + " unfinished jobs, " +
            limit_words("its limit", count, limit),
        "try again when some are finished"
    );
  const auto own = state.unfinished_of.find(caller.user);
  const std::uint32_t unfinished = own == state.unfinished_of.end() ? 0 : own->second;
  const std::uint32_t users_limit = state.config.max_unfinished_jobs_per_user;
  if (unfinished + count > users_limit)
    return fail(
        ErrorCode::kExhausted,
        "you have " + std::to_string(unfinished) + " unfinished jobs, " +
            limit_words("the limit of a user", count, users_limit),
        "stop some, or wait"
    );
  return {};
}

Result<Answer> run(State& state, const Caller& caller, const SubmitJob& command) {
  RN_CHECK(check_submitter(caller, command.idempotency_key));
  if (is_key_known(state, caller, command.idempotency_key))
    return same_again(state, caller, command);
  RN_TRY(JobRow row, new_row(state, caller, command.spec));
  RN_CHECK(check_quotas(state, caller, command.spec, 1));
  row.idempotency_key = command.idempotency_key;
  const JobEntry& job = take_job(state, caller, std::move(row));
  state.write(SetMeta{"next_job_number", std::to_string(state.next_job_number)});
  return JobSubmitted{.job = job.row.job, .warnings = warnings_for(state, job)};
}

Result<Answer> run(State& state, const Caller& caller, const SubmitArray& command) {
  return submit_array(state, caller, command);
}

Result<Answer> run(State& state, const Caller& caller, const StopArray& command) {
  return stop_array(state, caller, command);
}

Result<Answer> run(State& state, const Caller& caller, const SubmitGang& command) {
  return submit_gang(state, caller, command);
}

Result<Answer> run(State& state, const Caller& caller, const StopGang& command) {
  return stop_gang_by(state, caller, command);
}

Result<Answer> run(State& state, const Caller& caller, const StopJob& command) {
  JobEntry* job = state.find_job(command.job);
  if (job == nullptr)
    return fail(
        ErrorCode::kNotFound, "no job " + command.job.str(), "`reclaim ps --all` lists the jobs"
    );
  const Job& j = job->row.job;
  if (!may_stop(caller, j))
    return denied("job " + j.id.str() + " is not yours", "ask " + j.owner.str());
  if (job->row.stop_end != AttemptEnd::kCancelled)
    stop_job(
        state,
        *job,
        AttemptEnd::kCancelled,
        command.saves_first,
        std::min(command.deadline_ms, 900'000u),
        stop_words(caller, command.reason)
    );
  return JobStopping{job->row.job};
}

/// Layer by layer, as the archive says; the engine that loads it compares them with what is there.
Status check_is_built_on(const Image& image, const Image& base) {
  const std::string what = "the image is not built on '" + base.name + "'";
  const std::string next =
      "build it FROM that image and save it with `docker save`, see docs/guests.md, or ask an "
      "administrator to list it";
  if (image.layers.empty())
    return denied(what + " as far as one can see: it is a root file system without layers", next);
  std::vector<Digest> below = base.layers;
  // A root file system becomes one layer when it is imported, of the same bytes.
  if (below.empty()) {
    RN_TRY(const Digest whole, digest_from_hex(std::string_view(base.digest).substr(7)));
    below = {whole};
  }
  for (std::size_t i = 0; i < below.size(); ++i) {
    const bool is_there = i < image.layers.size();
    if (is_there && image.layers[i] == below[i]) continue;
    return denied(
        what + ": its layer " + std::to_string(i + 1) + " is " +
            (is_there ? to_hex(image.layers[i]).substr(0, 16) + "…" : "missing") + ", not " +
            to_hex(below[i]).substr(0, 16) + "…",
        next
    );
  }
  return {};
}

Status check_may_list(const State& state, const Caller& caller, const Image& image) {
  if (caller.role >= Role::kAdmin) return {};
  if (caller.role < Role::kUser || image.base.empty()) {
    return denied(
        "only administrators put any image on the allow list",
        "name the listed image that yours is built on: reclaim image add NAME ARCHIVE --base BASE"
    );
  }
  const auto listed = std::count_if(state.images.begin(), state.images.end(), [&](const auto& one) {
    return one.second.added_by == caller.user;
  });
  if (static_cast<std::size_t>(listed) < kImagesOfUser) return {};
  return fail(
      ErrorCode::kExhausted,
      "you have listed " + std::to_string(listed) + " images",
      "take off what you need no more: reclaim image rm NAME"
  );
}

Result<Answer> run(State& state, const Caller& caller, const AddImage& command) {
  Image image = command.image;
  RN_CHECK(check_may_list(state, caller, image));
  if (!is_name(image.name)) return fail(ErrorCode::kInvalid, "name: expected letters, digits, -_.");
  constexpr std::string_view kPrefix = "sha256:";
  if (image.digest.size() != kPrefix.size() + 64 || !image.digest.starts_with(kPrefix) ||
      !digest_from_hex(std::string_view(image.digest).substr(kPrefix.size())))
    return fail(ErrorCode::kInvalid, "digest: expected \"sha256:\" and 64 hex digits");
  if (!image.base.empty()) {
    const Image* const base = find_image(state, image.base);
    if (base == nullptr) {
      return denied(
          "base: '" + image.base.substr(0, 100) + "' is not on the allow list",
          "allowed images: " + few_of(names_of_images(state))
      );
    }
    RN_CHECK(check_is_built_on(image, *base));
    image.base = base->digest;
  }
  const auto found = state.images.find(image.name);
  if (found != state.images.end() && found->second.digest != image.digest)
    return fail(
        ErrorCode::kConflict,
        "'" + image.name + "' is listed with " + found->second.digest,
        "remove it first with `reclaim image rm " + image.name + "`, or use another name"
    );
  // It stays its first lister's.
  if (found != state.images.end() && caller.role < Role::kAdmin) return ImageListed{found->second};
  if (found == state.images.end() && state.images.size() >= kImages)
    return fail(ErrorCode::kExhausted, "4096 images are listed", "remove some");
  image.added_by = caller.user;
  image.added_wall_ms = state.wall_ms();
  state.images[image.name] = image;
  state.write(PutImage{image});
  audit(state, caller, "image.added", image.name + " is " + image.digest);
  state.is_dispatch_wanted = true;
  return ImageListed{image};
}

Result<Answer> run(State& state, const Caller& caller, const RemoveImage& command) {
  const auto found = state.images.find(command.name);
  if (found == state.images.end())
    return fail(
        ErrorCode::kNotFound, "no image '" + command.name + "'", "`reclaim image ls` lists them"
    );
  if (caller.role < Role::kAdmin && found->second.added_by != caller.user) {
    return denied(
        "'" + command.name + "' was listed by " + found->second.added_by.str(),
        "ask them or an administrator"
    );
  }
  state.images.erase(found);
  state.write(DeleteImage{command.name});
  audit(state, caller, "image.removed", command.name);
  return Done{};
}

Result<Answer> run(State& state, const Caller& caller, const CreateJoinToken& command) {
  const bool may =
      caller.role == Role::kAdmin || (caller.role == Role::kOwner && caller.lab == command.lab);
  if (!may)
    return denied(
        "only owners of lab " + command.lab.str() + " and administrators make its join tokens",
        "ask one of them"
    );
  if (!is_name(command.lab.str()))
    return fail(ErrorCode::kInvalid, "lab: expected a short name of letters, digits, -_.");
  if (command.ttl_s == 0 || command.ttl_s > 30 * 86'400)
    return fail(ErrorCode::kInvalid, "ttl_s: expected 1 to 2592000 (30 days)");
  if (state.tokens.size() >= kMaxTokens) return fail(ErrorCode::kExhausted, "too many tokens");
  TokenRow row;
  row.kind = TokenKind::kJoin;
  row.user = caller.user;
  row.lab = command.lab;
  row.expires_wall_ms = state.wall_ms() + std::int64_t{command.ttl_s} * 1000;
  const TokenMade made = put_token(state, std::move(row));
  audit(state, caller, "token.join_made", made.token.id + " for lab " + command.lab.str());
  return made;
}

Result<Answer> run(State& state, const Caller& caller, const CreateUserToken& command) {
  if (caller.role < Role::kAdmin) return denied("only administrators make user tokens", "ask one");
  if (!is_name(command.user.str()) || !is_name(command.lab.str()))
    return fail(ErrorCode::kInvalid, "user, lab: expected short names of letters, digits, -_.@");
  if (state.tokens.size() >= kMaxTokens) return fail(ErrorCode::kExhausted, "too many tokens");
  const UserRow user{
      .user = command.user,
      .lab = command.lab,
      .role = command.role,
      .created_wall_ms = state.wall_ms()};
  state.users[command.user] = user;
  state.write(PutUser{user});
  TokenRow row;
  row.user = command.user;
  row.lab = command.lab;
  row.role = command.role;
  if (command.ttl_s > 0) row.expires_wall_ms = state.wall_ms() + std::int64_t{command.ttl_s} * 1000;
  const TokenMade made = put_token(state, std::move(row));
  audit(
      state,
      caller,
      "token.user_made",
      made.token.id + " for " + command.user.str() + " as " + std::string(to_string(command.role))
  );
  return made;
}

Result<Answer> run(State& state, const Caller& caller, const SignIn& command) {
  return sign_in(state, caller, command);
}

Result<Answer> run(State& state, const Caller& caller, const RevokeToken& command) {
  const auto found = state.tokens.find(command.id);
  const bool is_there = found != state.tokens.end();
  const bool is_own = is_there && caller.role >= Role::kUser && found->second.user == caller.user;
  // An owner is shown those of the lab; for others a foreign one is as unknown as none.
  const bool is_seen =
      is_there && (caller.role == Role::kAdmin || is_own ||
                   (caller.role == Role::kOwner && found->second.lab == caller.lab));
  if (!is_seen)
    return fail(
        ErrorCode::kNotFound,
        "no token " + command.id.substr(0, 100),
        "its id stands between the first and the second point of a token; owners see those of "
        "their lab: `reclaim token ls`"
    );
  if (caller.role < Role::kAdmin && !is_own)
    return denied("token " + command.id + " is not yours", "ask an administrator");
  found->second.is_revoked = true;
  state.write(PutToken{found->second});
  audit(state, caller, "token.revoked", command.id);
  return Done{};
}

Result<Answer> run(State& state, const Caller& caller, const RevokeNode& command) {
  NodeEntry* node = state.find_node(command.node);
  if (node == nullptr)
    return fail(
        ErrorCode::kNotFound, "no node " + command.node.str(), "`reclaim nodes` lists the nodes"
    );
  const bool may =
      caller.role == Role::kAdmin || (caller.role == Role::kOwner && caller.lab == node->row.lab);
  if (!may) return denied("node " + command.node.str() + " is not of your lab", "ask its owner");
  if (!node->row.is_revoked) {
    state.note(*node, "node.revoked", "by " + caller.user.str());
    revoke(state, *node, "its identity was taken back by " + caller.user.str());
  }
  return Done{};
}

Result<Answer> run(State& state, const Caller& caller, const OrderReclaim& command) {
  return order_reclaim(state, caller, command);
}

Result<Answer> run(State& state, const Caller& caller, const ProposeContract& command) {
  return propose_contract(state, caller, command);
}

Result<Answer> run(State& state, const Caller& caller, const SetQuota& command) {
  return set_quota(state, caller, command);
}

Result<Answer> run(State& state, const Caller& caller, const RemoveQuota& command) {
  return remove_quota(state, caller, command);
}

Result<Answer> run(State& state, const Caller& caller, const NoteJob& command) {
  if (caller.role != Role::kAdmin) return denied("only the coordinator itself writes history", "");
  log::info(command.kind, {{"job", command.job.str()}, {"what", command.message}});
  EventRow row;
  row.kind = command.kind;
  row.message = command.message;
  row.job = command.job;
  row.user = command.owner;
  row.lab = command.lab;
  row.at_wall_ms = state.wall_ms();
  state.write(AppendEvent{std::move(row)});
  return Done{};
}

/// Another identity of the same machine: a reinstalled agent. It makes way, unless it is alive.
Status make_way(State& state, const JoinNode& command, const NodeId& id, const LabId& lab) {
  for (auto& [other_id, other] : state.nodes) {
    if (other_id == id || other.row.is_revoked || other.row.machine_id != command.machine_id)
      continue;
    if (other.connection != 0 || other.row.lab != lab)
      return fail(
          ErrorCode::kConflict,
          "this machine is already " + other_id.str() + " of lab " + other.row.lab.str(),
          "run `reclaim-agent leave --purge` there first, or revoke " + other_id.str()
      );
    state.note(other, "node.replaced", "its machine joined again as " + id.str());
    revoke(state, other, "replaced by " + id.str());
  }
  return {};
}

Result<Answer> run(State& state, const Caller& caller, const JoinNode& command) {
  const std::string again = "ask the lab's owner for a new one: `reclaim token create --lab LAB`";
  const auto by_secret = state.token_by_secret.find(crypto::sha256(as_bytes(command.secret)));
  const auto found = by_secret == state.token_by_secret.end()
                         ? state.tokens.end()
                         : state.tokens.find(by_secret->second);
  if (found == state.tokens.end() || found->second.kind != TokenKind::kJoin ||
      found->second.id != command.token)
    return denied("the join token is unknown", again);
  TokenRow& token = found->second;
  if (token.is_revoked) return denied("the join token was revoked", again);
  if (command.public_key == Digest{} || command.machine_id.empty() ||
      command.machine_id.size() > 256 || command.hostname.size() > 256)
    return fail(ErrorCode::kInvalid, "public_key, machine_id, hostname: missing or too long");
  const NodeId id("n-" + to_hex(command.public_key).substr(0, 16));
  NodeEntry* node = state.find_node(id);
  if (token.used_wall_ms != 0) {
    const bool is_same = token.used_by == id && node != nullptr && !node->row.is_revoked &&
                         node->row.public_key == command.public_key &&
                         node->row.machine_id == command.machine_id;
    if (is_same && state.wall_ms() - token.used_wall_ms < kRejoinMs)
      return NodeJoined{.node = id, .lab = node->row.lab};
    audit(state, caller, "token.reused", token.id + " was used before, by " + token.used_by.str());
    return denied("the join token was used already, by " + token.used_by.str(), again);
  }
  if (token.expires_wall_ms != 0 && state.wall_ms() >= token.expires_wall_ms)
    return denied("the join token has expired", again);
  if (node == nullptr && state.nodes.size() >= state.config.max_nodes)
    return fail(ErrorCode::kExhausted, "the site has its maximum of nodes");
  if (node != nullptr && node->row.public_key != command.public_key)
    return fail(ErrorCode::kConflict, "another node has this identity", "make a new key");
  RN_CHECK(make_way(state, command, id, token.lab));

  NodeEntry& entry = state.nodes[id];
  entry.row.node = id;
  entry.row.lab = token.lab;
  entry.row.machine_id = command.machine_id;
  entry.row.public_key = command.public_key;
  entry.row.is_revoked = false;
  entry.row.facts.hostname = command.hostname;
  entry.row.joined_wall_ms = state.wall_ms();
  if (entry.connection == 0) {           // else it only gets another certificate
    entry.row.state = NodeState::kLost;  // until it says hello
    entry.heard = state.now.boot;
    entry.is_expected = false;
    lose_attempts_of(state, entry);
  }
  token.used_wall_ms = state.wall_ms();
  token.used_by = id;
  state.write(PutToken{token});
  state.save(entry);
  refresh_outlook(state, entry);
  state.note(entry, "node.joined", command.hostname + " joined lab " + token.lab.str());
  return NodeJoined{.node = id, .lab = token.lab};
}

}  // namespace

void audit(State& state, const Caller& caller, std::string kind, std::string message) {
  log::info(kind, {{"user", caller.user.str()}, {"what", message}});
  EventRow row;
  row.kind = std::move(kind);
  row.message = std::move(message);
  row.user = caller.user;
  row.lab = caller.lab;
  row.at_wall_ms = state.wall_ms();
  state.write(AppendEvent{std::move(row)});
}

bool is_name(const std::string& text) {
  return !text.empty() && text.size() <= 64 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isalnum(c) || c == '-' || c == '_' || c == '.' || c == '@';
         });
}

TokenMade put_token(State& state, TokenRow row) {
  TokenMade made;
  made.secret = state.rng.hex(32);
  if (row.id.empty()) row.id = "t-" + state.rng.hex(8);
  row.secret_hash = crypto::sha256(as_bytes(made.secret));
  row.created_wall_ms = state.wall_ms();
  made.token = row;
  state.token_by_secret[row.secret_hash] = row.id;
  state.tokens[row.id] = row;
  state.write(PutToken{row});
  return made;
}

Error key_used_for(const JobEntry& job) {
  return {
      ErrorCode::kConflict,
      "the idempotency key was used for job " + job.row.job.id.str() +
          " with another specification",
      "use a new key for a new job"};
}

Status check_submitter(const Caller& caller, const std::string& key) {
  if (caller.role < Role::kUser)
    return denied("viewers cannot submit jobs", "ask an administrator for a user token");
  if (key.size() > kKeyBytes)
    return fail(ErrorCode::kInvalid, "Idempotency-Key: more than 128 bytes");
  return {};
}

bool is_key_known(const State& state, const Caller& caller, const std::string& key) {
  return !key.empty() && !planted("coordinator.forgets_idempotency_keys") &&
         state.jobs_by_key.contains({caller.user, key});
}

JobEntry& take_job(State& state, const Caller& caller, JobRow row) {
  row.job.id = JobId("j-" + state.rng.hex(8));
  row.job.number = state.next_job_number++;
  const crypto::Key256 key = crypto::random_key(state.rng);
  row.wrapped_key =
      crypto::seal(state.keys.wrapping_key, key, as_bytes(row.job.id.str()), state.rng);
  JobEntry& job = state.adopt(std::move(row));
  if (job.row.is_held) job.row.job.reason = waiting_words(state, job);
  if (!planted("coordinator.forgets_new_jobs")) state.save(job);
  state.note(job, "job.submitted", "by " + caller.user.str());
  ++state.metrics.jobs_submitted;
  state.is_dispatch_wanted = true;
  return job;
}

bool may_stop(const Caller& caller, const Job& job) {
  return caller.role == Role::kAdmin || (caller.role == Role::kOwner && caller.lab == job.lab) ||
         (caller.role >= Role::kUser && caller.user == job.owner);
}

std::string stop_words(const Caller& caller, const std::string& reason) {
  return reason.empty() ? "stopped by " + caller.user.str() : reason.substr(0, 500);
}

Result<JobRow> new_row(
    const State& state, const Caller& caller, const JobSpec& spec, std::size_t count
) {
  RN_CHECK(check_spec(spec));
  const Image* image = find_image(state, spec.image);
  if (image == nullptr) return tl::unexpected(image_not_listed(spec.image, names_of_images(state)));
  RN_CHECK(check_room(state, caller, count));
  JobRow row;
  RN_TRY(row.waits_for, unmet_of(state, caller, spec));
  row.is_held = !row.waits_for.empty();
  row.job.owner = caller.user;
  row.job.lab = caller.lab;
  row.job.spec = spec;
  row.job.image_digest = image->digest;
  row.job.submitted_wall_ms = state.wall_ms();
  row.job.reason = "submitted";
  row.queued_wall_ms = state.wall_ms();
  return row;
}

void on_command(State& state, const ApiCommand& event) {
  auto answer = std::visit(
      [&](const auto& command) { return run(state, event.caller, command); }, event.command
  );
  state.act(Reply{event.request, std::move(answer)});
}

}  // namespace rn::coordinator
