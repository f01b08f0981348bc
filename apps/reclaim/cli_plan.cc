// SPDX-License-Identifier: Apache-2.0
#include "cli_plan.h"

#include <cmath>
#include <cstdio>
#include <vector>

#include "cli_print.h"

#include "base/printable.h"
#include "io/standard_output.h"
#include "model/codec.h"
#include "model/job_rules.h"

namespace rn::cli {

namespace {

std::string figure(double value) {
  char text[32];
  std::snprintf(text, sizeof text, value < 1 ? "%.2f" : "%.1f", value);
  return text;
}

/// "0.3", or "0.3 to 1.2" where these differ as shown.
std::string range(const std::string& least, const std::string& most) {
  return least == most ? least : least + " to " + most;
}

std::string host_of(const api::PlanCandidate& candidate) {
  const std::string& name = candidate.hostname.empty() ? candidate.node.str() : candidate.hostname;
  return candidate.lab.str() + "/" + name;
}

std::string verdict_words(const api::Plan& plan) {
  switch (plan.verdict) {
    case PlanVerdict::kNow:
      return "starts now: ";
    case PlanVerdict::kWaits:
      return "would wait, as number " + std::to_string(plan.queue_position) + " in the queue: ";
    case PlanVerdict::kNever:
      return "can never run here: ";
  }
  return {};
}

std::string start_words(const api::Plan& plan) {
  if (!plan.starts_in_s) return "not known: nothing says when a node can take it";
  const std::string time = "in about " + duration_words(*plan.starts_in_s);
  if (plan.verdict == PlanVerdict::kNow)
    return time + ", as starts on " + host_of(plan.candidates.front()) + " took lately";
  return time + (plan.queue_position > 1 ? ", if nobody who waits before it takes the place" : "");
}

std::string notice_words(const api::Plan& plan) {
  const std::string granted =
      range(std::to_string(plan.notice_least_s), std::to_string(plan.notice_most_s)) +
      " s before a reclaim";
  if (plan.notice_wanted_s == 0) return granted;
  return granted + ", " + std::to_string(plan.notice_wanted_s) + " s asked for";
}

/// Of a plan's figure, in its unit.
std::string amount_words(Estimated what, double amount) {
  constexpr double kBytesOfMib = 1 << 20;
  switch (what) {
    case Estimated::kDuration:
      return duration_words(amount);
    case Estimated::kCheckpoint:
    case Estimated::kMemory:
    case Estimated::kGpuMemory:
      return human_bytes(static_cast<std::uint64_t>(amount * kBytesOfMib));
  }
  return {};
}

std::string verb_of(Estimated what) {
  switch (what) {
    case Estimated::kDuration:
      return "took";
    case Estimated::kCheckpoint:
      return "saved";
    case Estimated::kMemory:
    case Estimated::kGpuMemory:
      return "held";
  }
  return {};
}

std::string likeness_words(Likeness likeness) {
  switch (likeness) {
    case Likeness::kCommand:
      return "yours, of this image and command";
    case Likeness::kUserAndImage:
      return "yours, of this image";
    case Likeness::kImage:
      return "everybody's, of this image";
    case Likeness::kSite:
      return "everybody's";
  }
  return {};
}

/// "similar jobs took 2.1 h to 3.0 h (9 of 10 of 120 jobs: yours, of this image)"
std::string estimate_words(const api::PlanEstimate& one) {
  if (!one.low || !one.high)
    return "not enough history: " + std::to_string(one.jobs) +
           " jobs that ended well tell it, and " + std::to_string(one.jobs_needed) + " are needed";
  return "similar jobs " + verb_of(one.of) + " " +
         range(amount_words(one.of, *one.low), amount_words(one.of, *one.high)) + " (" +
         std::to_string(std::lround(10 * one.share)) + " of 10 of " + std::to_string(one.jobs) +
         " jobs: " + likeness_words(one.likeness) + ")";
}

std::string head_of(Estimated what) {
  switch (what) {
    case Estimated::kDuration:
      return "  run time        ";
    case Estimated::kCheckpoint:
      return "  checkpoint      ";
    case Estimated::kMemory:
      return "  memory          ";
    case Estimated::kGpuMemory:
      return "  GPU memory      ";
  }
  return {};
}

std::string horizon_words(const api::Plan& plan) {
  if (!plan.is_horizon_assumed) return " of running";
  return plan.is_horizon_estimated
             ? ", the upper end of what similar jobs took: it does not say how long it may run"
             : ", which is assumed: it does not say how long it may run";
}

std::string fit_words(const api::PlanCandidate& candidate) {
  if (candidate.fit == PlanFit::kNotNow) return "not now";
  if (candidate.fit == PlanFit::kNever) return "never";
  return candidate.rank == 0 ? "fits" : "fits, " + std::to_string(candidate.rank);
}

std::vector<std::string> row_of(const api::PlanCandidate& c) {
  const bool is_possible = c.fit != PlanFit::kNever;
  const std::string stays = percent_words(c.stays) + " (" + percent_words(c.stays_low) + " to " +
                            percent_words(c.stays_high) + ")";
  return {
      c.node.str(),
      dash(c.hostname),
      c.lab.str(),
      fit_words(c),
      c.starts_in_s ? duration_words(*c.starts_in_s) : "-",
      is_possible ? figure(c.interruptions) : "-",
      is_possible ? stays : "-",
      std::to_string(c.notice_s) + " s",
      c.leaves_in_s ? "in " + duration_words(*c.leaves_in_s) : "-",
      c.reason};
}

void print_plan(const api::Plan& plan, const std::string& file) {
  std::fputs(words_of_plan(plan).c_str(), stdout);
  if (!plan.candidates.empty()) std::fputs(table_of_plan(plan).c_str(), stdout);
  for (const std::string& warning : plan.warnings)
    std::fprintf(stderr, "warning: %s\n", printable_lines(warning).c_str());
  std::fprintf(stderr, "  next: %s\n", printable(next_after_plan(plan, file)).c_str());
}

}  // namespace

int exit_code_of_plan(PlanVerdict verdict) {
  switch (verdict) {
    case PlanVerdict::kNow:
      return kPlanNow;
    case PlanVerdict::kWaits:
      return kPlanWaits;
    case PlanVerdict::kNever:
      return kPlanNever;
  }
  return kPlanFailed;
}

int complain_of_plan(const Error& error) {
  complain(error);
  return kPlanFailed;
}

std::string words_of_plan(const api::Plan& plan) {
  std::string text = verdict_words(plan) + printable(plan.sentence) + "\n";
  if (plan.verdict == PlanVerdict::kNever) return text;
  const std::string run = duration_words(plan.horizon_s);
  text += "  expected start  " + printable(start_words(plan)) + "\n";
  text += "  interruptions   " +
          range(figure(plan.interruptions_least), figure(plan.interruptions_most)) +
          " expected in " + run + horizon_words(plan) + "\n";
  text += "  notice          " + notice_words(plan) + "\n";
  for (const api::PlanEstimate& one : plan.estimates) {
    if (one.of == Estimated::kGpuMemory && one.jobs == 0) continue;  // as where there is no GPU
    text += head_of(one.of) + estimate_words(one) + "\n";
  }
  return text;
}

std::string table_of_plan(const api::Plan& plan) {
  std::vector<std::vector<std::string>> rows;
  for (const api::PlanCandidate& candidate : plan.candidates) rows.push_back(row_of(candidate));
  return table(
      {"NODE",
       "HOST",
       "LAB",
       "FIT",
       "START",
       "INTERRUPTIONS",
       "UNDISTURBED",
       "NOTICE",
       "LEAVES",
       "WHY"},
      rows
  );
}

std::string next_after_plan(const api::Plan& plan, const std::string& file) {
  const std::string submit = file.empty()  ? "'reclaim run' with the same flags and a command"
                             : file == "-" ? "'reclaim submit -'"
                                           : "'reclaim submit " + file + "'";
  switch (plan.verdict) {
    case PlanVerdict::kNow:
      return submit;
    case PlanVerdict::kWaits:
      return submit +
             " puts it in the queue, and 'reclaim why' says what it waits for; or ask for "
             "less";
    case PlanVerdict::kNever:
      if (plan.is_over_quota)
        return "ask for less, or ask an administrator for more; 'reclaim quota' shows what you may "
               "have";
      return plan.candidates.empty()
                 ? "lend a machine: reclaim token create --lab LAB"
                 : "ask for less than the first of these nodes lacks ('reclaim offers' shows what "
                   "is lent), or ask its owner";
  }
  return submit;
}

int plan(const Client& client, const PlanOptions& options) {
  const Status good = check_spec(options.spec);
  if (!good) return complain_of_plan(good.error());
  const auto text = client.send("POST", "/v1/plan", to_json(options.spec));
  if (!text) return complain_of_plan(text.error());
  const auto answer = from_json<api::Plan>(*text, Unknown::kLenient);
  if (!answer) return complain_of_plan(answer.error());
  if (options.is_json) {
    print_json(*text);
  } else {
    print_plan(*answer, options.file);
  }
  // Whoever is not told the answer must not take the exit status for it.
  const Status written = io::flush_output();
  if (!written)
    return written.error().code == ErrorCode::kUnavailable ? io::kReaderGone
                                                           : complain_of_plan(written.error());
  return exit_code_of_plan(answer->verdict);
}

}  // namespace rn::cli
