// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <utility>

#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "warden/server.h"

// The server's hands: each effect runs on a worker and comes back to the core as an event.
namespace rn::warden {

namespace {

constexpr milliseconds kEnginePauseMax = seconds(30);
constexpr milliseconds kSearchAgain{100};
constexpr milliseconds kDataPatience = seconds(15);  ///< then a disk that hangs is not there

}  // namespace

/// Runs `work()` in the pool and `then(answer)` on the loop. A full queue is a broken invariant of
/// the core's bounds (128 guests, one operation of a kind each).
template <class Work, class Then>
void WardenServer::work(io::Workers& pool, Work work, Then then) {
  ++activity_;
  const Status begun =
      pool.submit_for(std::move(work), [this, then = std::move(then)](auto answer) mutable {
        ++activity_;
        then(std::move(answer));
      });
  if (!begun) log::error("warden.overloaded", {{"why", begun.error().describe()}});
}

void WardenServer::perform(const SendAnswer& effect) {
  warden_wire::Answer answer = effect.answer;
  // The core's state has no telemetry; a query's answer gets it here.
  if (answer.code.empty() && answer.state != warden_wire::WardenState{}) answer.state = state();
  send(effect.caller.session, answer);
}

void WardenServer::perform(const MakeDisk& effect) {
  work(
      *slow_,
      [this, effect] { return machine_->make_disk(effect); },
      [this, op = effect.op](Result<std::string> folder) {
        tell(DiskMade{op, std::move(folder)});
      }
  );
}

void WardenServer::perform(const AdoptDisk& effect) {
  work(
      *slow_,
      [this, effect] { return machine_->adopt_disk(effect); },
      [this, op = effect.op](Status done) {
        tell(Finished{op, std::move(done)});
      }
  );
}

void WardenServer::perform(const DropDisk& effect) {
  work(
      *slow_,
      [this, effect] { return machine_->drop_disk(effect); },
      [this, op = effect.op](Status done) {
        tell(Finished{op, std::move(done)});
      }
  );
}

void WardenServer::perform(const Start& effect) {
  work(
      *slow_,
      [this, effect] { return machine_->start(effect); },
      [this, effect](Result<StartedGuest> started) {
        GuestRecord record = effect.record;
        const bool is_up = started.has_value();
        if (is_up) {
          record.container = started->container;
          record.pid = started->pid;
        }
        tell(Started{effect.op, std::move(started)});
        // After the core knows the container, so that its end finds a record.
        if (is_up) watch_end(record);
      }
  );
}

void WardenServer::perform(const Go& effect) {
  work(
      *fast_,
      [this, effect] { return machine_->go(effect); },
      [this, op = effect.op](Status done) {
        tell(Finished{op, std::move(done)});
      }
  );
}

void WardenServer::perform(const Signal& effect) {
  work(
      *fast_,
      [this, effect] { return machine_->signal(effect); },
      [this, op = effect.op](Result<std::uint32_t> count) {
        tell(Signalled{op, std::move(count)});
      }
  );
}

void WardenServer::perform(const Kill& effect) {
  work(
      *fast_,
      [this, effect] { return machine_->kill(effect); },
      [this, op = effect.op](Status done) {
        tell(Finished{op, std::move(done)});
      }
  );
}

void WardenServer::perform(const Notify& effect) {
  work(
      *fast_,
      [this, effect] { return machine_->notify(effect); },
      [this, op = effect.op](Status done) {
        tell(Finished{op, std::move(done)});
      }
  );
}

void WardenServer::perform(const Forget& effect) {
  unwatch(effect.record.container);
  work(
      *slow_,
      [this, effect] { return machine_->forget(effect); },
      [this, op = effect.op](Status done) {
        tell(Finished{op, std::move(done)});
      }
  );
}

void WardenServer::perform(const RemoveStray& effect) {
  unwatch(effect.container.container);
  work(
      *slow_,
      [this, effect] { return machine_->remove_stray(effect.container); },
      [](const Status& done) {
        if (!done) log::warning("guest.stray_stays", {{"why", done.error().describe()}});
      }
  );
}

void WardenServer::perform(const Import& effect) {
  work(
      *slow_,
      [this, effect] { return machine_->import(effect); },
      [this, op = effect.op](Result<std::string> id) {
        tell(Imported{op, std::move(id)});
      }
  );
}

void WardenServer::perform(const Clear& effect) {
  work(
      *clearer_,
      [this, effect] {
        return machine_->clear(effect, [this, id = effect.reclaim](Instant cut) {
          loop_.post([this, id, cut] { tell(WasCut{id, to_ns(cut)}); });
        });
      },
      [this, id = effect.reclaim](ClearReport report) {
        tell(WasCleared{id, std::move(report)});
      }
  );
}

void WardenServer::perform(const SetGates& effect) {
  // On the loop, in order with its neighbours: a few system calls on open descriptors.
  if (const Status set = machine_->set_gates(effect); !set)
    log::error("gates.not_set", {{"why", set.error().describe()}});
}

void WardenServer::perform(const Watch& effect) {
  watch_end(effect.record);
}

// ---- the guests' ends

void WardenServer::watch_end(const GuestRecord& record) {
  if (watches_.contains(record.container)) return;
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, record.pid, 0));
  if (pidfd < 0) return seen_end(record);  // ended already
  const auto watch = loop_.watch_readable(pidfd, [this, record] {
    unwatch(record.container);
    seen_end(record);
  });
  if (!watch) {
    close(pidfd);
    log::error("guest.not_watched", {{"why", watch.error().describe()}});
    return;
  }
  watches_[record.container] = EndWatch{pidfd, *watch};
}

void WardenServer::unwatch(const std::string& container) {
  const auto node = watches_.extract(container);
  if (node.empty()) return;
  loop_.unwatch(node.mapped().watch);
  close(node.mapped().pidfd);
}

void WardenServer::seen_end(const GuestRecord& record) {
  work(
      *slow_,
      [this, record] { return machine_->look_at_end(record); },
      [this](const Exited& end) { tell(end); }
  );
}

// ---- the engine

void WardenServer::supervise_engine() {
  if (is_engine_asked_ || clock_.now().boot < engine_next_) return;
  is_engine_asked_ = true;
  const Status begun = engine_->submit_for(
      [this] { return machine_->ensure_engine(clock_.now().boot); },
      [this](const Result<EngineFacts>& facts) {
        is_engine_asked_ = false;
        engine_answered(facts);
      }
  );
  if (!begun) is_engine_asked_ = false;
}

void WardenServer::engine_answered(const Result<EngineFacts>& facts) {
  if (!facts) {
    if (is_engine_up_ || engine_pause_.count() == 0)
      log::warning("engine.down", {{"why", facts.error().describe()}});
    is_engine_up_ = is_found_ = false;
    engine_refusal_.clear();
    engine_pause_ =
        std::min(std::max(engine_pause_ * 2, milliseconds(500)), milliseconds(kEnginePauseMax));
    engine_next_ = clock_.now().boot + engine_pause_;
    return tell(EngineChanged{false, ""});
  }
  engine_pause_ = milliseconds(0);
  if (!is_engine_up_) {
    const bool is_refused = config_.is_engine_floor_strict && !facts->warnings.empty();
    std::string refusal;
    for (const std::string& warning : facts->warnings) {
      if (is_refused) refusal += (refusal.empty() ? "" : "; ") + warning;
    }
    if (!is_refused || engine_refusal_ != refusal) {
      for (const std::string& warning : facts->warnings)
        log::warning("engine.below_floor", {{"what", warning}});
    }
    engine_refusal_ = refusal;
    if (is_refused) {
      engine_next_ = clock_.now().boot + kEnginePauseMax;
      return tell(EngineChanged{false, facts->name, refusal});
    }
    is_engine_up_ = true;
    is_found_ = false;
    tell(EngineChanged{true, facts->name});
  }
  if (!is_found_) search();
}

/// Which of the owner's data sets are there. On a thread of its own: a disk that hangs keeps nobody
/// waiting, and its data sets are not offered any more.
void WardenServer::look_at_data() {
  const auto offer = [this](std::vector<std::string> names) {
    if (names == data_sets_) return;
    data_sets_ = std::move(names);
    push_state();
  };
  if (is_data_looked_at_) {
    if (clock_.now().boot - data_asked_at_ >= kDataPatience) offer({});
    return;
  }
  is_data_looked_at_ = true;
  data_asked_at_ = clock_.now().boot;
  const Status begun = looker_->submit_for(
      [this] { return machine_->data_sets(); },
      [this, offer](std::vector<std::string> names) {
        is_data_looked_at_ = false;
        offer(std::move(names));
      }
  );
  if (!begun) is_data_looked_at_ = false;
}

/// A look at engine and disks. What a guest's effect changed meanwhile makes it worthless: then it
/// is done again.
void WardenServer::search() {
  if (is_searching_) return;
  is_searching_ = true;
  const std::uint64_t begun_at = activity_;
  std::vector<GuestRecord> live;
  for (const GuestRecord& guest : core_->journal().guests) {
    if (guest.slot < kSlots) live.push_back(guest);
  }
  const Status begun = engine_->submit_for(
      [this, live = std::move(live)] { return machine_->search(live); },
      [this, begun_at](Result<Reconciled> found) {
        is_searching_ = false;
        if (!found) {
          log::warning("warden.search_failed", {{"why", found.error().describe()}});
          return;  // supervision asks again
        }
        if (activity_ != begun_at) {
          loop_.run_after(kSearchAgain, [this] { search(); });
          return;
        }
        is_found_ = true;
        tell(std::move(*found));
        renew_lease();
      }
  );
  if (!begun) is_searching_ = false;
}

// ---- the guests' wires

void WardenServer::look_at_filters() {
  if (is_looking_) return;
  is_looking_ = true;
  const Status begun = filters_->submit_for(
      [this] { return machine_->look_at_filters(); },
      [this](const FilterLook& look) {
        is_looking_ = false;
        for (const traffic::FilterLoss& loss : look.lost) {
          const std::string why = loss.repaired ? "" : loss.repaired.error().message;
          tell(FilterLost{loss.slot, loss.interface, why});
        }
        for (const traffic::FilterBefore& one : look.before)
          tell(FilterFound{one.slot, one.interface, one.filter.what, one.filter.remove});
      }
  );
  if (!begun) is_looking_ = false;
}

}  // namespace rn::warden
