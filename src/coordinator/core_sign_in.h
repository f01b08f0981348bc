// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "coordinator/core_state.h"

// A token for somebody whom the site's identity provider vouched for. What they may do is what the
// site's own table of users says; who is not in it gets nothing.
namespace rn::coordinator {

/// kDenied with whom to ask: unknown here, or an administrator whom the operator did not name.
/// kExhausted: too many sign-ins of this user, or tokens of the site.
Result<Answer> sign_in(State& state, const Caller& caller, const SignIn& command);

}  // namespace rn::coordinator
