// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ahead.h"

// What the small programs do behind their cut, and how they become the large one. `program`: in
// whose name something is said, on stderr.
namespace rn {

/// A warden that lives would open the gate again for what it does not know of. Nothing is waited
/// for: what this program becomes asks it once more, and hears the answer.
void tell_the_warden(const CutAhead& ahead);

/// What is cut, or why it is not.
void say(const char* program, const CutAhead& ahead);

/// The processor before others, which what this program becomes keeps. Not before the cut is
/// through: packets that have passed the gate already wait for the kernel's own threads on this
/// processor, which would come after us.
void take_precedence();

/// Becomes the large reclaim-warden with these words. Comes back when there is none, and says so.
void become_the_warden(const char* program, char** words);

/// With no program to become, what was not done. The exit status.
int say_what_is_left_to_do(const char* program, const CutAhead& ahead);

}  // namespace rn
