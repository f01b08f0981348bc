// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "coordinator/core_state.h"
#include "model/job_rules.h"

// What people ask for, checked against who they are. Deny by default.
namespace rn::coordinator {

void on_command(State& state, const ApiCommand& event);

/// Into the audit log and the process's own: what the caller did, of no job and no node.
void audit(State& state, const Caller& caller, std::string kind, std::string message);

/// A job as it would be taken now, without id, number and key; for `count` of them, if there is
/// room for so many. Errors: what makes no sense, an image that is not listed, what can never
/// begin, no room.
Result<JobRow> new_row(
    const State& state, const Caller& caller, const JobSpec& spec, std::size_t count = 1
);

/// kDenied or kInvalid for who may not submit, or with such a key.
Status check_submitter(const Caller& caller, const std::string& key);
/// An earlier submit of the caller had this key.
bool is_key_known(const State& state, const Caller& caller, const std::string& key);
/// It was for this job, and for something else.
Error key_used_for(const JobEntry& job);
/// Gives it a number, an id and a key of its own. The next number is the caller's to write.
JobEntry& take_job(State& state, const Caller& caller, JobRow row);
/// Of all kinds, ended ones included.
inline constexpr std::size_t kMaxTokens = 100'000;

/// Gives it a secret, the moment, and an id if it has none.
TokenMade put_token(State& state, TokenRow row);
/// 1 to 64 letters, digits, -_.@
bool is_name(const std::string& text);
bool may_stop(const Caller& caller, const Job& job);
/// What the job's user reads, also if nobody gave a reason.
std::string stop_words(const Caller& caller, const std::string& reason);

/// What the submitter should know although the job is accepted.
std::vector<std::string> warnings_for(const State& state, const JobEntry& job);

/// Of these, what it asks for and gets less of.
std::vector<std::string> shortfalls_of(
    const State& state, const JobEntry& job, const std::vector<sched::Candidate>& candidates
);

}  // namespace rn::coordinator
