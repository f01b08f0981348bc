// SPDX-License-Identifier: Apache-2.0
#include "sim/scenario.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <sstream>

#include "sim/cluster.h"
#include "sim/forger.h"

namespace rn::sim {

namespace {

struct Verb {
  std::size_t words_min;
  const char* usage;
};

const std::map<std::string, Verb>& verbs() {
  static const std::map<std::string, Verb> kVerbs = {
      {"cluster",
       {1,
        "cluster [compute=N] [storage=N] [labs=N] [heartbeat=5s] [guests=N] [building=N "
        "line=MBITS "
        "weight=N] [image=MB] [outputs=MB] [coordinator-inside] [gpus=N]"}},
      {"submit",
       {2,
        "submit JOB [steps=N] [save-every=N] [step=1s] [copies=N] [in-place] "
        "[handles-term|leaves-at-term] [data] [frozen-layers] [gpus=N] [after=[WHEN:]JOB]"}},
      {"array",
       {3, "array NAME tasks=N [at-most=N], and as submit: its jobs are NAME.0, NAME.1 …"}},
      {"gang",
       {3,
        "gang NAME nodes=N [saves=all|first|auto] [rank-0-saves] [spread=any] and as submit: its "
        "members are NAME.0, NAME.1 … by rank"}},
      {"stop", {2, "stop GANG"}},
      {"wait",
       {5,
        "wait JOB STATE|durable|on NODE|off NODE|sent NODE|kept NODE|awaits NODE|finished within "
        "DURATION, "
        "wait NODE [gpu N] cleared within DURATION, wait NODE order|edit STATE within DURATION, "
        "wait GANG STATE|set MARK within DURATION"}},
      {"expect",
       {3,
        "expect JOB on NODE|awaits NODE|held|STATE, expect JOB copied at-least|at-most N, expect "
        "JOB "
        "attempts N, expect NODE free|order STATE|edit STATE, expect GANG STATE|one-epoch|restarts "
        "N|epoch N"}},
      {"history", {5, "history NODE N over DURATION"}},
      {"owner",
       {3,
        "owner NODE [gpu N] notice|announced DURATION, owner NODE [gpu N] emergency, owner NODE "
        "gpu N computes|rests"}},
      {"order", {3, "order NODE notice|emergency"}},
      {"edit", {3, "edit NODE lends|off"}},
      {"accept", {2, "accept NODE"}},
      {"reject", {2, "reject NODE"}},
      {"release", {2, "release NODE [gpu N]"}},
      {"leave", {2, "leave NODE"}},
      {"window", {6, "window NODE [gpu N] closes DURATION for DURATION"}},
      {"kill", {4, "kill coordinator|agent NODE|warden NODE back DURATION"}},
      {"forget", {4, "forget NODE back DURATION"}},
      {"backup", {2, "backup coordinator"}},
      {"restore", {4, "restore coordinator back DURATION"}},
      {"forge", {3, "forge NODE KIND"}},
      {"rogue", {2, "rogue NODE"}},
      {"liar", {3, "liar NODE on|off|sends"}},
      {"hollow", {2, "hollow NODE"}},
      {"rot", {2, "rot NODE"}},
      {"disk", {4, "disk NODE full DURATION"}},
      {"power", {4, "power NODE off DURATION"}},
      {"data", {3, "data NODE gone|back"}},
      {"line", {2, "line MBITS"}},
      {"link", {3, "link NODE down|up"}},
      {"pause", {3, "pause coordinator|NODE DURATION"}},
      {"crash", {4, "crash at POINT NTH"}},
      {"clock", {4, "clock NODE back|ahead DURATION"}},
      {"quota", {2, "quota running=N"}},
      {"advance", {2, "advance DURATION"}},
      {"end", {3, "end within DURATION"}}};
  return kVerbs;
}

std::uint32_t option(
    const ScenarioCommand& command, const std::string& name, std::uint32_t otherwise
) {
  for (const std::string& word : command.words) {
    if (!word.starts_with(name + "=")) continue;
    const std::string value = word.substr(name.size() + 1);
    if (const auto duration = parse_duration(value)) {
      return static_cast<std::uint32_t>(std::chrono::duration_cast<milliseconds>(*duration).count()
      );
    }
    return static_cast<std::uint32_t>(std::stoul(value));
  }
  return otherwise;
}

bool has_word(const ScenarioCommand& command, const std::string& word) {
  return std::find(command.words.begin(), command.words.end(), word) != command.words.end();
}

/// Plays one scenario; every verb is a function of the same name.
class Player {
 public:
  Player(std::uint64_t seed, bool echo) : world_(seed) { world_.echo_history(echo); }

  Status play(const ScenarioCommand& command) {
    const std::string& verb = command.words[0];
    if (verb == "cluster") return cluster(command);
    if (!cluster_) RN_CHECK(cluster(ScenarioCommand{0, {"cluster"}, ""}));
    world_.trace("scenario", command.text);
    if (verb == "submit" || verb == "array" || verb == "gang") return submit(command);
    if (verb == "stop") return stop(command);
    if (verb == "wait") return wait(command);
    if (verb == "expect") return expect(command);
    if (verb == "end") return end(command);
    return act(command);
  }

  ScenarioOutcome outcome() const {
    return {
        world_.fingerprint(),
        const_cast<World&>(world_).queue().executed(),
        cluster_ ? cluster_->checks() : 0,
        world_.now()};
  }

  const World& world() const { return world_; }

 private:
  Status cluster(const ScenarioCommand& command) {
    ClusterOptions options;
    options.compute_nodes = option(command, "compute", options.compute_nodes);
    options.storage_nodes = option(command, "storage", options.storage_nodes);
    options.labs = option(command, "labs", options.labs);
    options.heartbeat_ms = option(command, "heartbeat", options.heartbeat_ms);
    options.guests = option(command, "guests", options.guests);
    options.data_nodes = option(command, "data", options.data_nodes);
    options.building = option(command, "building", options.building);
    options.line_bps = std::uint64_t{option(command, "line", 1000)} * 1'000'000;
    options.weight = option(command, "weight", options.weight);
    options.output_mb = option(command, "outputs", options.output_mb);
    options.image_mb = option(command, "image", options.image_mb);
    options.is_coordinator_inside = has_word(command, "coordinator-inside");
    options.gpus = option(command, "gpus", options.gpus);
    cluster_ = std::make_unique<Cluster>(world_, options);
    cluster_->start();
    const TrueTime deadline = world_.now() + seconds(60);
    while (world_.now() < deadline && !world_.is_violated() && !are_all_up())
      cluster_->run_until(world_.now() + milliseconds(100));
    return healthy();
  }

  /// A story begins on a whole site: the first job goes to the best node, not to the first.
  bool are_all_up() const {
    CoordinatorHost& host = cluster_->coordinator();
    if (host.core() == nullptr) return false;
    const auto nodes = host.core()->nodes(host.clock().now());
    return nodes.size() == cluster_->nodes().size() &&
           std::all_of(nodes.begin(), nodes.end(), [](const coordinator::NodeView& node) {
             return node.is_connected &&
                    (node.lending == LendingState::kOpen || !node.row.contract.lends);
           });
  }

  Status healthy() const {
    if (!world_.is_violated()) return {};
    return fail(ErrorCode::kInternal, world_.violations().front());
  }

  Status submit(const ScenarioCommand& command) {
    Training training;
    training.steps = option(command, "steps", training.steps);
    training.save_every = option(command, "save-every", training.save_every);
    training.step_ms = option(command, "step", training.step_ms);
    training.crash_at_step = option(command, "crash-at", 0);
    training.copies = option(command, "copies", training.copies);
    training.saves_in_place = has_word(command, "in-place");
    training.handles_term = has_word(command, "handles-term");
    training.leaves_at_term = has_word(command, "leaves-at-term");
    training.wants_data = has_word(command, "data");
    training.has_frozen_layers = has_word(command, "frozen-layers");
    training.gpus = option(command, "gpus", training.gpus);
    if (command.words[0] == "gang") return submit_gang(command, training);
    RN_TRY(auto after, waits_of(command));
    if (command.words[0] == "submit") {
      cluster_->submit(command.words[1], training, std::move(after));
      return {};
    }
    SubmittedArray array{.training = training, .after = std::move(after)};
    array.tasks = option(command, "tasks", 1);
    array.at_most = option(command, "at-most", 0);
    cluster_->submit_array(command.words[1], std::move(array));
    return {};
  }

  Status submit_gang(const ScenarioCommand& command, Training training) {
    SubmittedGang gang;
    gang.size = option(command, "nodes", 0);
    if (gang.size < kGangSizeMin || gang.size > kGangSizeMax)
      return fail(ErrorCode::kInvalid, "gang NAME nodes=N, of 2 to 32");
    if (has_word(command, "saves=first")) gang.saves = GangSaves::kFirst;
    if (has_word(command, "saves=auto")) gang.saves = GangSaves::kAuto;
    if (has_word(command, "spread=any")) gang.spread = GangSpread::kAny;
    training.all_save = gang.saves != GangSaves::kFirst && !has_word(command, "rank-0-saves");
    gang.training = training;
    cluster_->submit_gang(command.words[1], std::move(gang));
    return {};
  }

  Status stop(const ScenarioCommand& command) {
    if (cluster_->gang(command.words[1]) == nullptr)
      return fail(ErrorCode::kInvalid, "there is no gang '" + command.words[1] + "'");
    cluster_->stop_gang(command.words[1]);
    return {};
  }

  static std::int64_t number_in(const std::string& word) {
    std::int64_t number = 0;
    std::from_chars(word.data(), word.data() + word.size(), number);
    return number;
  }

  /// Of the gang as a whole.
  bool gang_holds(
      const coordinator::GangRow& gang, const std::string& what, const std::string& argument
  ) const {
    if (what == "set") return gang.set.number > 0 && gang.set.mark >= number_in(argument);
    if (what == "finished") return gang.state == GangState::kOver;
    if (what == "one-epoch") {
      const auto& jobs = cluster_->coordinator().store().jobs();
      return std::all_of(gang.members.begin(), gang.members.end(), [&](const JobId& member) {
        const auto row = jobs.find(member);
        return row != jobs.end() && row->second.job.epoch == gang.epoch;
      });
    }
    if (what == "restarts") {
      const auto& jobs = cluster_->coordinator().store().jobs();
      return std::all_of(gang.members.begin(), gang.members.end(), [&](const JobId& member) {
        const auto row = jobs.find(member);
        return row != jobs.end() && row->second.job.restarts == number_in(argument);
      });
    }
    if (what == "epoch") return gang.epoch.attempt >= number_in(argument);
    return to_string(gang.state) == what;
  }

  /// "after=JOB" and "after=WHEN:JOB", of jobs and arrays that the story has submitted before.
  static Result<std::vector<std::pair<std::string, AfterWhen>>> waits_of(
      const ScenarioCommand& command
  ) {
    constexpr std::string_view kOption = "after=";
    constexpr auto& kWords = EnumWords<AfterWhen>::kWords;
    std::vector<std::pair<std::string, AfterWhen>> after;
    for (const std::string& word : command.words) {
      if (!word.starts_with(kOption)) continue;
      const std::string value = word.substr(kOption.size());
      const auto colon = value.find(':');
      const std::string when = colon == std::string::npos ? "ok" : value.substr(0, colon);
      const auto* const found = std::find(std::begin(kWords), std::end(kWords), when);
      if (found == std::end(kWords))
        return fail(ErrorCode::kInvalid, "after: '" + when + "' is none of ok, fail, any, started");
      after.emplace_back(
          colon == std::string::npos ? value : value.substr(colon + 1),
          static_cast<AfterWhen>(found - std::begin(kWords))
      );
    }
    return after;
  }

  bool holds(const ScenarioCommand& command) const {
    const std::string& subject = command.words[1];
    const std::string& what = command.words[2];
    const std::string argument = command.words.size() > 3 ? command.words[3] : "";
    const std::size_t node = cluster_->find_node(subject);
    if (node < cluster_->nodes().size()) {
      if (what == "order") return cluster_->order_of(node) == argument;
      if (what == "edit") return cluster_->edit_of(node) == argument;
      const bool is_taken = cluster_->nodes()[node].warden->is_taken(command.gpu);
      return (what == "cleared" && is_taken) || (what == "free" && !is_taken);
    }
    if (const auto* gang = cluster_->gang(subject)) return gang_holds(*gang, what, argument);
    const Job* job = cluster_->job(subject);
    if (job == nullptr) return false;
    if (what == "held") return cluster_->is_held(subject);
    if (what == "durable") return job->durable.generation > 0;
    if (what == "finished") return is_terminal(job->state);
    if (what == "promised") return has_event(job->id, "evacuation.admitted");
    if (what == "refused") return has_event(job->id, "evacuation.refused");
    if (what == "unrefused") return !has_event(job->id, "evacuation.refused");
    if (what == "warned") return is_warned_of_its_age(job->id);
    if (what == "unwarned") return !is_warned_of_its_age(job->id);
    if (what == "late") return has_event(job->id, "evacuation.missed");
    if (what == "unlate") return !has_event(job->id, "evacuation.missed");
    if (what == "sent") return cluster_->destination_of(subject) == argument;
    if (what == "kept") return is_kept(*job, argument);
    if (what == "awaits") return awaits(*job, argument);
    if (what == "on")
      return job->state == JobState::kRunning && cluster_->node_of(subject) == argument;
    if (what == "off")
      return cluster_->node_of(subject) != argument || job->state == JobState::kQueued;
    return to_string(job->state) == what;
  }

  bool has_event(const JobId& job, const std::string& kind) const {
    const auto& events = cluster_->coordinator().store().events();
    return std::any_of(events.begin(), events.end(), [&](const coordinator::EventRow& event) {
      return event.job == job && event.kind == kind;
    });
  }

  /// Its author was told that its last checkpoint is old for how often the node's owner comes back.
  bool is_warned_of_its_age(const JobId& job) const {
    const auto& events = cluster_->coordinator().store().events();
    return std::any_of(events.begin(), events.end(), [&](const coordinator::EventRow& event) {
      return event.job == job && event.kind == "checkpoint.trouble" &&
             event.message.find(" old on a node whose owner comes back every ") !=
                 std::string::npos;
    });
  }

  /// The node signed for its newest durable generation.
  bool is_kept(const Job& job, const std::string& holder) const {
    const std::size_t index = cluster_->find_node(holder);
    const auto& rows = cluster_->coordinator().store().generations();
    const auto row = rows.find({job.id, job.durable.generation});
    if (index >= cluster_->nodes().size() || row == rows.end()) return false;
    const NodeId id = cluster_->nodes()[index].agent->identity().node;
    const auto& receipts = row->second.receipts;
    return std::any_of(receipts.begin(), receipts.end(), [&](const Receipt& receipt) {
      return receipt.holder == id;
    });
  }

  /// Its history's newest word on where it is says that it waits for what this node holds.
  bool awaits(const Job& job, const std::string& holder) const {
    const std::size_t index = cluster_->find_node(holder);
    if (index >= cluster_->nodes().size()) return false;
    const std::string id = cluster_->nodes()[index].agent->identity().node.str();
    const auto& events = cluster_->coordinator().store().events();
    for (auto event = events.rbegin(); event != events.rend(); ++event) {
      if (event->job != job.id) continue;
      if (event->kind == "job.placed" || event->kind == "attempt.running") return false;
      if (event->kind != "restore.waits" && event->kind != "job.waits_for_holder") continue;
      return (" " + event->data.at("holders") + " ").find(" " + id + " ") != std::string::npos;
    }
    return false;
  }

  Status wait(const ScenarioCommand& command) {
    const auto within = std::find(command.words.begin(), command.words.end(), "within");
    if (within == command.words.end() || within + 1 == command.words.end())
      return fail(ErrorCode::kInvalid, "wait needs 'within DURATION'");
    RN_TRY(const nanoseconds limit, parse_duration(*(within + 1)));
    const TrueTime deadline = world_.now() + limit;
    while (world_.now() < deadline && !world_.is_violated()) {
      if (holds(command)) return {};
      cluster_->run_until(std::min(deadline, world_.now() + milliseconds(100)));
    }
    RN_CHECK(healthy());
    return holds(command)
               ? Status{}
               : fail(ErrorCode::kTimeout, "did not happen: " + describe(command.words[1]));
  }

  std::string describe(const std::string& subject) const {
    if (const auto* gang = cluster_->gang(subject))
      return subject + " is " + std::string(to_string(gang->state)) + " at epoch " +
             to_string(gang->epoch) + ", its set is of " + std::to_string(gang->set.mark) + " (" +
             gang->cause.reason + ")";
    const Job* job = cluster_->job(subject);
    if (job == nullptr) return subject + " is not acknowledged";
    return subject + " is " + std::string(to_string(job->state)) + " on '" +
           cluster_->node_of(subject) + "' (" + job->reason + ")";
  }

  Status expect(const ScenarioCommand& command) {
    if (command.words[2] == "copied") return expect_copied(command);
    if (command.words[2] == "attempts") return expect_attempts(command);
    if (holds(command)) return {};
    return fail(ErrorCode::kInternal, "not so: " + describe(command.words[1]));
  }

  /// How many attempts it has had: one that nobody disturbs has one.
  Status expect_attempts(const ScenarioCommand& command) const {
    if (command.words.size() < 4) return fail(ErrorCode::kInvalid, "write expect JOB attempts N");
    const Job* job = cluster_->job(command.words[1]);
    const std::uint64_t had = job == nullptr ? 0 : job->epoch.attempt;
    if (had == std::stoul(command.words[3])) return {};
    return fail(ErrorCode::kInternal, "not so: it is at attempt " + std::to_string(had));
  }

  /// How many generations of it have become durable so far.
  Status expect_copied(const ScenarioCommand& command) const {
    const auto& words = command.words;
    const bool is_least = words.size() > 4 && words[3] == "at-least";
    if (words.size() < 5 || (!is_least && words[3] != "at-most"))
      return fail(ErrorCode::kInvalid, "write expect JOB copied at-least|at-most N");
    const Job* job = cluster_->job(words[1]);
    std::size_t copied = 0;
    for (const auto& [key, row] : cluster_->coordinator().store().generations())
      copied += job != nullptr && key.first == job->id ? 1 : 0;
    const std::size_t bound = std::stoul(words[4]);
    if (is_least ? copied >= bound : copied <= bound) return {};
    return fail(ErrorCode::kInternal, "not so: " + std::to_string(copied) + " generations of it");
  }

  Result<std::size_t> node(const std::string& name) const {
    const std::size_t found = cluster_->find_node(name);
    if (found < cluster_->nodes().size()) return found;
    return fail(ErrorCode::kInvalid, "there is no node '" + name + "'");
  }

  /// What is done to no single node.
  static bool is_of_site(const std::string& verb) {
    return verb == "advance" || verb == "crash" || verb == "kill" || verb == "backup" ||
           verb == "restore" || verb == "pause" || verb == "line" || verb == "quota";
  }

  Status act_on_site(const ScenarioCommand& command) {
    const auto& words = command.words;
    if (words[0] == "advance") {
      RN_TRY(const nanoseconds by, parse_duration(words[1]));
      cluster_->run_until(world_.now() + by);
      return healthy();
    }
    if (words[0] == "crash") {
      world_.plan_crash(words[2], std::stoul(words[3]));
      return {};
    }
    if (words[0] == "kill") return kill(words);
    if (words[0] == "backup") {
      cluster_->back_up_coordinator();
      return {};
    }
    if (words[0] == "restore") {
      RN_TRY(const nanoseconds back, parse_duration(words[3]));
      cluster_->restore_coordinator(back);
      return healthy();
    }
    if (words[0] == "pause") return pause(words);
    if (words[0] == "line") {
      cluster_->set_line(std::stoull(words[1]) * 1'000'000);
      return {};
    }
    cluster_->set_quota(option(command, "running", 0));
    return {};
  }

  Status act(const ScenarioCommand& command) {
    const auto& words = command.words;
    if (is_of_site(words[0])) return act_on_site(command);
    RN_TRY(const std::size_t which, node(words[1]));
    if (is_owners(words[0])) return owner(which, command);
    if (words[0] == "forge") return forge(which, words[2]);
    if (words[0] == "forget") {
      RN_TRY(const nanoseconds back, parse_duration(words[3]));
      cluster_->forget_warden(which, back);
      return {};
    }
    if (words[0] == "history") {
      RN_TRY(const nanoseconds lent, parse_duration(words[4]));
      cluster_->rewrite_history(which, static_cast<std::uint32_t>(std::stoul(words[2])), lent);
    }
    if (words[0] == "hollow") cluster_->set_hollow(which);
    if (words[0] == "rot" && !cluster_->rot(which, world_.rng()))
      return fail(ErrorCode::kInternal, "there is nothing on it that another node has whole");
    if (words[0] == "leave") cluster_->leave(which);
    if (words[0] == "rogue") cluster_->ask_as_a_rogue(which);
    if (words[0] == "liar") {
      cluster_->set_liar(which, words[2] == "on");
      cluster_->set_garbler(which, words[2] == "sends");
    }
    if (words[0] == "disk") {
      RN_TRY(const nanoseconds length, parse_duration(words[3]));
      cluster_->fill_disk(which, length);
    }
    if (words[0] == "clock") {
      RN_TRY(const nanoseconds by, parse_duration(words[3]));
      cluster_->jump_clock(which, words[2] == "back" ? -by : by);
    }
    if (words[0] == "release") cluster_->owner_releases(which, command.gpu);
    if (words[0] == "window") {
      RN_TRY(const nanoseconds in, parse_duration(words[3]));
      RN_TRY(const nanoseconds length, parse_duration(words[5]));
      cluster_->close_window(which, in, length, command.gpu);
    }
    if (words[0] == "power") {
      RN_TRY(const nanoseconds back, parse_duration(words[3]));
      cluster_->lose_power(which, back);
    }
    if (words[0] == "data") cluster_->set_data(which, words[2] == "back");
    if (words[0] == "link" && words[2] == "down") cluster_->cut_link(which);
    if (words[0] == "link" && words[2] == "up") cluster_->heal_link(which);
    return {};
  }

  /// Done by a node's owner, at it or from afar.
  static bool is_owners(const std::string& verb) {
    return verb == "owner" || verb == "order" || verb == "edit" || verb == "accept" ||
           verb == "reject";
  }

  Status owner(std::size_t which, const ScenarioCommand& command) {
    const auto& words = command.words;
    if (words[0] == "edit") cluster_->owner_edits(which, words[2] == "lends");
    if (words[0] == "accept" || words[0] == "reject")
      cluster_->owner_settles(which, words[0] == "accept");
    if (words[0] != "owner" && words[0] != "order") return {};
    if (words[0] == "order") {
      const bool is_now = words[2] == "emergency";
      cluster_->owner_orders(which, is_now ? ReclaimKind::kEmergency : ReclaimKind::kNotice);
      return {};
    }
    if (words[2] == "computes" || words[2] == "rests") {
      if (!command.gpu) return fail(ErrorCode::kInvalid, "owner NODE gpu N " + words[2]);
      cluster_->owner_computes(which, *command.gpu, words[2] == "computes");
      return {};
    }
    if (words[2] == "emergency") {
      cluster_->owner_takes(which, ReclaimKind::kEmergency, 0, command.gpu);
      return {};
    }
    if (words.size() < 4) return fail(ErrorCode::kInvalid, "owner NODE notice needs a DURATION");
    RN_TRY(const nanoseconds notice, parse_duration(words[3]));
    const auto kind = words[2] == "announced" ? ReclaimKind::kAnnounced : ReclaimKind::kNotice;
    const auto notice_s = std::chrono::duration_cast<seconds>(notice).count();
    cluster_->owner_takes(which, kind, static_cast<std::uint32_t>(notice_s), command.gpu);
    return {};
  }

  /// Several times: some kinds have variants.
  Status forge(std::size_t which, const std::string& kind) {
    const auto& kinds = Forger::kinds();
    const bool is_kind = std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
    if (!is_kind && kind != Forger::kOfItself)
      return fail(ErrorCode::kInvalid, "nobody forges a '" + kind + "'");
    Forger forger(*cluster_, world_.rng());
    constexpr int kTimes = 12;
    int forged = 0;
    for (int i = 0; i < kTimes; ++i) forged += forger.forge(which, kind) ? 1 : 0;
    return forged > 0 ? Status{} : fail(ErrorCode::kInternal, "there was nothing to forge");
  }

  Status kill(const std::vector<std::string>& words) {
    RN_TRY(const nanoseconds back, parse_duration(words.back()));
    if (words[1] == "coordinator") {
      cluster_->kill_coordinator(back);
      return {};
    }
    RN_TRY(const std::size_t which, node(words[2]));
    if (words[1] == "agent") cluster_->kill_agent(which, back);
    if (words[1] == "warden") cluster_->kill_warden(which, back);
    return {};
  }

  Status pause(const std::vector<std::string>& words) {
    RN_TRY(const nanoseconds length, parse_duration(words[2]));
    Process* process = &cluster_->coordinator().process();
    if (words[1] != "coordinator") {
      RN_TRY(const std::size_t which, node(words[1]));
      process = &cluster_->nodes()[which].agent->process();
    }
    process->pause();
    world_.queue().after(length, [process] { process->resume(); });
    return {};
  }

  Status end(const ScenarioCommand& command) {
    RN_TRY(const nanoseconds limit, parse_duration(command.words[2]));
    cluster_->run_to_the_end(limit);
    return healthy();
  }

  World world_;
  std::unique_ptr<Cluster> cluster_;
};

}  // namespace

Result<nanoseconds> parse_duration(const std::string& text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string unit(end, text.data() + text.size());
  if (error == std::errc() && number >= 0) {
    if (unit == "ms") return milliseconds(number);
    if (unit == "s") return seconds(number);
    if (unit == "m") return std::chrono::minutes(number);
    if (unit == "h") return std::chrono::hours(number);
  }
  return fail(ErrorCode::kInvalid, "'" + text + "' is no duration", "write 250ms, 90s, 5m or 2h");
}

namespace {

/// Takes `gpu N` out, behind a node's name. False: N is no GPU's index.
bool take_gpu(ScenarioCommand& command) {
  std::vector<std::string>& words = command.words;
  const bool may_have =
      words[0] == "owner" || words[0] == "release" || words[0] == "wait" || words[0] == "window";
  if (!may_have || words.size() < 4 || words[2] != "gpu") return true;
  std::uint32_t gpu = 0;
  const char* const last = words[3].data() + words[3].size();
  const auto [end, error] = std::from_chars(words[3].data(), last, gpu);
  if (error != std::errc() || end != last || gpu >= kMaxGpus) return false;
  words.erase(words.begin() + 2, words.begin() + 4);
  command.gpu = gpu;
  return true;
}

}  // namespace

Result<std::vector<ScenarioCommand>> parse_scenario(const std::string& text) {
  std::vector<ScenarioCommand> out;
  std::istringstream lines(text);
  std::string line;
  for (std::uint32_t number = 1; std::getline(lines, line); ++number) {
    ScenarioCommand command{number, {}, line};
    std::istringstream words(line);
    for (std::string word; words >> word;) command.words.push_back(word);
    if (command.words.empty() || command.words[0].starts_with("#")) continue;
    const auto verb = verbs().find(command.words[0]);
    if (verb == verbs().end())
      return fail(
          ErrorCode::kInvalid,
          "line " + std::to_string(number) + ": no such verb '" + command.words[0] + "'"
      );
    if (!take_gpu(command) || command.words.size() < verb->second.words_min) {
      return fail(
          ErrorCode::kInvalid, "line " + std::to_string(number) + ": write " + verb->second.usage
      );
    }
    out.push_back(std::move(command));
  }
  return out;
}

Result<ScenarioOutcome> play_scenario(
    const std::vector<ScenarioCommand>& commands, std::uint64_t seed, bool echo
) {
  Player player(seed, echo);
  for (const ScenarioCommand& command : commands) {
    const Status played = player.play(command);
    if (played) continue;
    Error error =
        played.error().with("line " + std::to_string(command.line) + " '" + command.text + "'");
    const auto& history = player.world().history();
    const std::size_t shown = std::min<std::size_t>(history.size(), 40);
    for (std::size_t i = history.size() - shown; i < history.size(); ++i)
      error.message += "\n    " + history[i];
    return fail(error);
  }
  return player.outcome();
}

}  // namespace rn::sim
