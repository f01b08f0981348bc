// SPDX-License-Identifier: Apache-2.0
#include "evaluate/replay.h"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "coordinator/topology_file.h"
#include "evaluate/world.h"
#include "model/codec_detail.h"

namespace rn {
RN_INSTANTIATE_CODEC(evaluate::Replay)
}  // namespace rn

namespace rn::evaluate {

namespace {

constexpr double kLongest_s = 7 * 86'400;
constexpr double kEndless_s = 1e9;  ///< work of a guest that ends when it did
constexpr std::uint32_t kMostGuests = 64;
constexpr Moment kLookedForAgain = milliseconds(500);
constexpr double kSameMoment_s = 0.5;  ///< a stay's begin, here and there

constexpr const char* kHelp =
    "make it by scripts/testbed/predict.py from a whole record.json; docs/formats/replay.md has "
    "the "
    "fields";

auto bad(const std::string& what) {
  return fail(ErrorCode::kInvalid, what, kHelp);
}

std::optional<std::size_t> index_of(const std::vector<std::string>& names, std::string_view name) {
  const auto at = std::find(names.begin(), names.end(), name);
  if (at == names.end()) return std::nullopt;
  return static_cast<std::size_t>(at - names.begin());
}

Result<ReclaimKind> kind_of(const std::string& word) {
  for (const ReclaimKind kind :
       {ReclaimKind::kAnnounced, ReclaimKind::kNotice, ReclaimKind::kEmergency, ReclaimKind::kLost})
    if (to_string(kind) == word) return kind;
  return bad("'" + word + "' is no kind of reclaim");
}

bool is_moment(double at_s) {
  return at_s >= 0 && at_s <= kLongest_s;
}

Status check_stay(const Replay& replay, const ReplayStay& stay) {
  if (!index_of(replay.nodes, stay.node))
    return bad("it was on '" + stay.node + "', which is no node");
  bool is_good = is_moment(stay.began_s);
  for (const ReplaySave& save : stay.saves) is_good = is_good && is_moment(save.at_s);
  for (const ReplayCopy& copy : stay.copies) is_good = is_good && is_moment(copy.at_s);
  if (!is_good) return bad("a moment of its stay on " + stay.node + " is none of the run");
  for (const ReplayCopy& copy : stay.copies)
    if (!index_of(replay.nodes, copy.holder))
      return bad("a copy of it was at '" + copy.holder + "', which is no node");
  return {};
}

Status check_guest(const Replay& replay, const ReplayGuest& guest) {
  const bool is_good = guest.steps > 0 && guest.save_every > 0 && guest.step_s > 0 &&
                       guest.state_bytes >= 1 && guest.step_bytes >= 0 && guest.told_s >= 0 &&
                       is_moment(guest.submitted_s) && is_moment(guest.ended_s);
  if (!is_good) return bad("its steps, its state or its times cannot be");
  for (const ReplayStay& stay : guest.stays) RN_CHECK(check_stay(replay, stay));
  return {};
}

Status check(const Replay& replay) {
  if (replay.nodes.empty()) return bad("it names no node");
  if (!(replay.seconds > 0 && replay.seconds <= kLongest_s)) return bad("seconds: cannot be");
  if (replay.cpu_milli_min == 0 || replay.cpu_milli < replay.cpu_milli_min ||
      replay.guest_cpu_milli < replay.cpu_milli_min ||
      replay.guest_cpu_milli / replay.cpu_milli_min > kMostGuests)
    return bad("guest_cpu_milli, cpu_milli, cpu_milli_min: no guest fits, or too many do");
  const MachineTimes& m = replay.machine;
  const bool is_good = m.making_rate > 0 && m.sending_rate > 0 && m.restoring_rate > 0 &&
                       m.making_s >= 0 && m.copy_begins_s >= 0 && m.fetch_begins_s >= 0 &&
                       m.receipt_s >= 0 && m.preparing_s >= 0 && m.container_s >= 0 &&
                       m.queue_s >= 0 && m.message_s >= 0 && replay.copy_share >= 0 &&
                       replay.copy_share <= 1;
  if (!is_good) return bad("machine: rates are above 0, and times not below");
  for (const ReplayOwner& owner : replay.owners) {
    RN_CHECK(kind_of(owner.kind));
    if (!index_of(replay.nodes, owner.node))
      return bad("an owner takes '" + owner.node + "', which is no node");
  }
  for (const ReplayGuest& guest : replay.guests) {
    const Status is_one = check_guest(replay, guest);
    if (!is_one) return fail(is_one.error().with("guest '" + guest.name + "'"));
  }
  return {};
}

// ---- the setting

Campus campus_of(const Replay& replay, reclaim::TopologyDeclaration declared) {
  Campus campus;
  campus.store = "";
  for (const std::string& name : replay.nodes) {
    CampusNode node;
    node.name = node.lab = name;
    node.gpus = replay.guest_cpu_milli / replay.cpu_milli_min;
    node.guest_cpu_milli = replay.guest_cpu_milli;
    for (const auto& one : declared.nodes)
      if (one.name == name) node.line = one.line.up;
    node.transfers = node.line * replay.copy_share;
    campus.nodes.push_back(std::move(node));
  }
  campus.topology = std::move(declared);
  return campus;
}

Result<Setting> setting_of(const Replay& replay, bool are_places_given) {
  auto declared = coordinator::parse_topology_declaration(replay.topology);
  if (!declared) return fail(declared.error().with("topology"));
  for (const std::string& name : replay.nodes) {
    const auto is_it = [&](const auto& node) { return node.name == name; };
    if (std::none_of(declared->nodes.begin(), declared->nodes.end(), is_it))
      return bad("'" + name + "' is no node of its topology");
  }
  Setting setting;
  setting.campus = campus_of(replay, *std::move(declared));
  setting.days = replay.seconds / 86'400;
  for (const ReplayLine& line : replay.carries) setting.carries[line.link] = line.bytes_per_s;
  for (const ReplayOwner& owner : replay.owners) {
    RN_TRY(const ReclaimKind kind, kind_of(owner.kind));
    setting.interruptions.push_back(
        {*index_of(replay.nodes, owner.node),
         kind,
         owner.declared_s,
         owner.deadline_s,
         owner.returns_s}
    );
  }
  for (const ReplayGuest& guest : replay.guests) {
    StateKind kind{"testbed", 0, guest.state_bytes, 0, guest.step_bytes / guest.step_s, 1e12, 0};
    kind.numbered_step_s = guest.step_s;
    SubmittedJob job;
    job.at_s = guest.submitted_s;
    job.work_s = are_places_given ? kEndless_s : guest.steps * guest.step_s;
    job.kind = setting.kinds.size();
    job.user = "student";
    job.lab = "students";
    setting.kinds.push_back(kind);
    setting.jobs.push_back(std::move(job));
  }
  return setting;
}

// ---- the guests

class ReplayedGuests final : public OwnGuests {
 public:
  ReplayedGuests(const Replay& replay, bool are_places_given)
      : replay_(replay), are_places_given_(are_places_given), now_at_(replay.guests.size()) {}

  JobSpec spec(JobNumber job) const override {
    const ReplayGuest& guest = replay_.guests[job];
    const auto mib = static_cast<std::uint64_t>(guest.state_bytes / (1 << 20));
    JobSpec spec;
    spec.name = guest.name;
    spec.command = {"python", "guest.py"};
    spec.resources.cpu_milli = replay_.cpu_milli;
    spec.resources.cpu_milli_min = replay_.cpu_milli_min;
    spec.resources.memory_mib = spec.resources.disk_mib = 64 + 3 * mib;
    spec.checkpoint.paths = {"state.ckpt"};
    spec.checkpoint.temporary = {"*.tmp"};
    return spec;
  }

  /// As the newest of the stays there that have not been, if the places are given.
  void began(JobNumber job, NodeNumber node, double progress_s) override {
    Now& at = now_at_[job];
    at.began = clock();
    at.progress_s = progress_s;
    at.stay.reset();
    at.is_over = at.is_placing = false;
    if (!are_places_given_) return;
    const auto& stays = replay_.guests[job].stays;
    for (std::size_t i = at.next; i < stays.size() && !at.stay; ++i)
      if (stays[i].node == replay_.nodes[node]) at.stay = i;
    if (at.stay) at.next = *at.stay + 1;
  }

  std::optional<Save> next_save(JobNumber job, Moment now) override {
    const ReplayGuest& guest = replay_.guests[job];
    const Now& at = now_at_[job];
    if (at.stay && !guest.stays[*at.stay].saves.empty()) {
      const auto& saves = guest.stays[*at.stay].saves;
      for (const ReplaySave& save : saves)
        if (moment_of(save.at_s) >= now) return save_of(guest, moment_of(save.at_s), save.step);
      const ReplaySave& last = saves.back();
      return next_from(guest, moment_of(last.at_s), last.step, now);
    }
    return next_from(guest, at.began, std::llround(at.progress_s / guest.step_s), now);
  }

  /// It ends the step that it is in.
  std::optional<Save> told(JobNumber job, Moment now) override {
    const ReplayGuest& guest = replay_.guests[job];
    if (!guest.handles_term) return std::nullopt;
    const Now& at = now_at_[job];
    Moment from = at.began;
    std::int64_t step = std::llround(at.progress_s / guest.step_s);
    if (at.stay) {
      const ReplayStay& stay = guest.stays[*at.stay];
      for (const ReplaySave& save : stay.saves) {
        if (moment_of(save.at_s) > now) break;
        from = moment_of(save.at_s);
        step = save.step;
      }
    }
    step += static_cast<std::int64_t>(seconds_of(now - from) / guest.step_s) + 1;
    return Save{now + moment_of(guest.told_s), now, work_s(guest, step)};
  }

  // ---- what the testbed's coordinator decided

  void ended(JobNumber job) { now_at_[job].is_over = true; }

  std::optional<NodeNumber> destination(JobNumber job) {
    const auto& stays = replay_.guests[job].stays;
    Now& at = now_at_[job];
    at.is_placing = at.is_placing || at.is_over;
    if (at.next >= stays.size()) return std::nullopt;
    return index_of(replay_.nodes, stays[at.next].node);
  }

  std::optional<NodeNumber> holder(JobNumber job) const {
    const Now& at = now_at_[job];
    const auto& stays = replay_.guests[job].stays;
    const bool is_here = at.stay && !at.is_placing;
    const std::size_t stay = is_here ? *at.stay : at.next;
    if (stay >= stays.size() || stays[stay].copies.empty()) return std::nullopt;
    const auto& copies = stays[stay].copies;
    if (!is_here) return index_of(replay_.nodes, copies.front().holder);
    const double now_s = seconds_of(clock());
    for (const ReplayCopy& copy : copies)
      if (copy.at_s >= now_s - kSameMoment_s) return index_of(replay_.nodes, copy.holder);
    return index_of(replay_.nodes, copies.back().holder);
  }

  std::function<Moment()> clock;

 private:
  struct Now {
    Moment began{0};
    double progress_s = 0;
    std::optional<std::size_t> stay;  ///< of the record, that this one is
    std::size_t next = 0;             ///< stay of the record
    bool is_over = false;             ///< its processes are ended
    bool is_placing = false;          ///< and it is being sent elsewhere
  };

  static double work_s(const ReplayGuest& guest, std::int64_t step) {
    return static_cast<double>(step) * guest.step_s;
  }

  /// It is written in what a save takes that it is told of, but for the rest of a step.
  static Save save_of(const ReplayGuest& guest, Moment at, std::int64_t step) {
    const double writing_s = std::max(guest.told_s - guest.step_s / 2, 0.0);
    return {at, at - moment_of(writing_s), work_s(guest, step)};
  }

  /// Each so many steps, from when it had done `step` of them on.
  static std::optional<Save> next_from(
      const ReplayGuest& guest, Moment from, std::int64_t step, Moment now
  ) {
    for (std::int64_t next = (step / guest.save_every + 1) * guest.save_every; next < guest.steps;
         next += guest.save_every) {
      const Moment at = from + moment_of(work_s(guest, next - step));
      if (at >= now) return save_of(guest, at, next);
    }
    return std::nullopt;
  }

  const Replay& replay_;
  bool are_places_given_;
  std::vector<Now> now_at_;
};

// ---- what is told

const char* word_of(Happening::What what) {
  switch (what) {
    case Happening::What::kMade:
      return "made";
    case Happening::What::kCopied:
      return "copied";
    case Happening::What::kDurable:
      return "durable";
    case Happening::What::kBegan:
      return "began";
    case Happening::What::kEnded:
      return "ended";
  }
  return "";
}

/// Its names are words of JSON already: parse_replay() lets no others pass.
std::string row_of(const Replay& replay, const Happening& one) {
  const bool is_copy = one.what == Happening::What::kCopied;
  return fmt::format(
      R"({{"what":"{}","at_s":{:.6f},"guest":{},"node":"{}","to":"{}",)"
      R"("generation":{},"bytes":{:.0f},"work_s":{:.6f}}})",
      word_of(one.what),
      seconds_of(one.at),
      one.job,
      replay.nodes[one.node],
      is_copy ? replay.nodes[one.peer] : "",
      one.generation,
      one.what == Happening::What::kBegan ? 0 : one.bytes,
      one.what == Happening::What::kBegan ? one.bytes : 0
  );
}

/// Where it is not here when it ended there, it ends as soon as it is.
void end_when_it_did(World& world, Policy& policy, JobNumber job, Moment when) {
  world.agenda().at(when, [&world, &policy, job, when] {
    const auto run = world.run_of(job);
    if (!run) return end_when_it_did(world, policy, job, world.now() + kLookedForAgain);
    world.finish(*run);
  });
}

/// What copies of the owner's node sent from their word until they gave it back.
void watch_owner(
    World& world,
    const Production& policy,
    std::size_t number,
    const ReplayOwner& owner,
    NodeNumber node,
    const std::function<void(const std::string&)>& tell
) {
  world.agenda().at(moment_of(owner.declared_s), [&world, &policy, number, owner, node, tell] {
    const double before = policy.copied_from(node);
    world.agenda().at(moment_of(owner.returns_s), [&policy, number, before, node, tell] {
      tell(fmt::format(
          R"({{"what":"sent","owner":{},"bytes":{:.0f}}})",
          number,
          policy.copied_from(node) - before
      ));
    });
  });
}

}  // namespace

Result<Replay> parse_replay(std::string_view text) {
  auto replay = from_json<Replay>(text);
  if (!replay) return fail(replay.error().hinting(kHelp));
  RN_CHECK(check(*replay));
  return replay;
}

Status play_replay(
    const Replay& replay,
    const ReplayOptions& options,
    const std::function<void(const std::string&)>& tell
) {
  RN_CHECK(check(replay));
  RN_TRY(Setting setting, setting_of(replay, options.are_places_given));
  RN_TRY(const auto world, World::make(std::move(setting), nullptr));
  ReplayedGuests guests(replay, options.are_places_given);
  guests.clock = [&world] { return world->now(); };
  Production::Options how;
  how.cadence = Cadence::daemons();
  how.cadence.heartbeat_ms = replay.heartbeat_ms;
  how.seed = options.seed;
  how.machine = replay.machine;
  how.guests = &guests;
  how.on_happened = [&](const Happening& one) {
    if (one.what == Happening::What::kEnded) guests.ended(one.job);
    tell(row_of(replay, one));
  };
  if (options.are_places_given) {
    how.migrates_back = false;
    how.given_destination = [&](JobNumber job) { return guests.destination(job); };
    how.given_holder = [&](JobNumber job) { return guests.holder(job); };
  }
  Production policy(how);
  for (std::size_t i = 0; i < replay.owners.size(); ++i) {
    const ReplayOwner& owner = replay.owners[i];
    watch_owner(*world, policy, i, owner, *index_of(replay.nodes, owner.node), tell);
  }
  for (JobNumber job = 0; options.are_places_given && job < replay.guests.size(); ++job) {
    const double ended_s = replay.guests[job].ended_s;
    if (ended_s > 0) end_when_it_did(*world, policy, job, moment_of(ended_s));
  }
  world->run(policy);
  return {};
}

}  // namespace rn::evaluate
