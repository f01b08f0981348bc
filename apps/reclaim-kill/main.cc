// SPDX-License-Identifier: Apache-2.0
//
// reclaim-kill: `reclaim-warden kill` in one word. It cuts the guests' packets before that program
// is loaded, and before this one's own C library is ready (ADR 0012). Static, and small: it
// allocates nothing, and reads a file only to look whether a lab that is named is the one meant. It
// shuts the pinned gate (ahead.h); tells a warden that lives, without waiting for it; takes
// precedence on the processor, which what it becomes keeps; and becomes `reclaim-warden kill` with
// the same words, which does the whole and says how it went.

#include <cstdio>

#include "become.h"

namespace {

constexpr char kSelf[] = "reclaim-kill";
constexpr int kMostWords = 64;

}  // namespace

int main(int argc, char** argv) {
  rn::begin(argc - 1, argv + 1);
  const rn::CutAhead& ahead = rn::ahead_of_all;
  if (ahead.is_meant) {
    rn::tell_the_warden(ahead);
    rn::say(kSelf, ahead);
  }
  static char name[] = "reclaim-warden";
  static char verb[] = "kill";
  char* words[kMostWords + 2] = {name, verb};
  if (argc - 1 >= kMostWords) {
    std::fputs("reclaim-kill: too many words\n  next: reclaim-kill --help\n", stderr);
    return 2;
  }
  for (int i = 1; i < argc; ++i) words[i + 1] = argv[i];
  rn::take_precedence();
  rn::become_the_warden(kSelf, words);
  return rn::say_what_is_left_to_do(kSelf, ahead);
}
