// SPDX-License-Identifier: Apache-2.0
//
// reclaim-warden, as it is called: static and small, it becomes the large program of the same name
// in a folder of its own (main.cc), with the same words. `kill` cuts first, as reclaim-kill does:
// the large one's libraries take milliseconds to load, and a disk that hangs may hold them up
// (ADR 0012).

#include <cstdio>

#include "become.h"

int main(int argc, char** argv) {
  constexpr char kSelf[] = "reclaim-warden";
  rn::begin(argc - 1, argv + 1);
  const rn::CutAhead& ahead = rn::ahead_of_all;
  if (ahead.is_meant) {
    rn::tell_the_warden(ahead);
    rn::take_precedence();
  }
  rn::become_the_warden(kSelf, argv);
  if (ahead.is_meant) rn::say(kSelf, ahead);
  if (ahead.is_over) return rn::say_what_is_left_to_do(kSelf, ahead);
  std::fputs(
      "  next: install the whole package, or copy it there as docs/lending.md has it\n", stderr
  );
  return 1;
}
