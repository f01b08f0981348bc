// SPDX-License-Identifier: Apache-2.0
#include "replay_command.h"

#include <cstdio>
#include <memory>
#include <string>

#include "base/log.h"
#include "base/printable.h"
#include "evaluate/replay.h"
#include "evaluate/trace_rows.h"

namespace rn {

namespace {

struct Wanted {
  std::string file;
  evaluate::ReplayOptions options;
};

int complain(const Error& error) {
  std::fprintf(
      stderr,
      "reclaim-sim: %s\n  next: %s\n",
      printable_lines(error.message).c_str(),
      error.hint.empty() ? "docs/evaluation.md" : error.hint.c_str()
  );
  return kUsageStatus;
}

int carry_out(const Wanted& wanted) {
  const auto text = evaluate::read_trace_text(wanted.file);
  if (!text) return complain(text.error());
  const auto replay = evaluate::parse_replay(*text);
  if (!replay) return complain(replay.error().with(wanted.file));
  log::set_level(log::Level::kError);
  const auto played = evaluate::play_replay(*replay, wanted.options, [](const std::string& row) {
    std::printf("%s\n", row.c_str());
  });
  if (!played) return complain(played.error().with(wanted.file));
  return std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace

std::function<int()> add_replay(CLI::App& app) {
  auto wanted = std::make_shared<Wanted>();
  CLI::App* command = app.add_subcommand(
      "replay",
      "plays a run of the testbed once more, as scripts/testbed/predict.py has taken it from a "
      "record, and prints what happened, a JSON object on each line"
  );
  command->add_option("FILE", wanted->file, "docs/formats/replay.md")->required();
  command->add_flag(
      "--given",
      wanted->options.are_places_given,
      "guests go where they went, and save when they saved; else the simulated coordinator decides"
  );
  command->add_option("--seed", wanted->options.seed, "of all draws");
  return [wanted, command]() -> int { return command->parsed() ? carry_out(*wanted) : -1; };
}

}  // namespace rn
