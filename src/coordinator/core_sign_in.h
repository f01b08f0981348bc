// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "coordinator/core_state.h"

// A token for somebody whom the site's identity provider vouched for. What they may do is what the
// site's own table of users says; who is not in it gets nothing.
namespace rn::coordinator {

/// kDenied with whom to ask: unknown here, or an administrator whom the operator did not name.
/// kExhausted: too many sign-ins of this user, or tokens of the site.
Result<Answer> sign_in(State& state, const Caller& caller, const SignIn& command);

/// Whether somebody with this token is told of what becomes of their jobs and machines: while it
/// counts, and of a sign-in for thirty days more, because jobs outlive it and nobody signs in to be
/// told.
bool is_told_by(const TokenRow& token, std::int64_t now_wall_ms);

}  // namespace rn::coordinator
