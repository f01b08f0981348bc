// SPDX-License-Identifier: Apache-2.0
//
// reclaim-warden: the privileged half of a provider node. See docs/emergency.md for the owner.

#include <csignal>
#include <filesystem>
#include <string>

#include "command_line.h"
#include "doctor.h"
#include "kill.h"
#include "leave.h"
#include "options.h"
#include "serve.h"

int main(int argc, char** argv) {
  using namespace rn::warden_cli;
  CLI::App app(
      "Gives the machine back to its owner: starts guests and ends them, as root and without a "
      "network.\n\n"
      "'reclaim-warden kill' takes the machine back now, with the daemon alive or dead; "
      "'reclaim-kill' does the same\nsooner. Everything else is said to 'reclaim-agent'."
  );
  app.require_subcommand(1);
  Options options;
  int code = kUsage;
  add_serve(app, options, code);

  CLI::App& kill =
      *app.add_subcommand("kill", "take the machine back now; works without the daemon");
  add_places(kill, options);
  rn::add_numbers(kill, "--gpu", options.kill_gpus, "only guests of these GPUs", 0u, 63u);
  CLI::Option* const cut_only =
      kill.add_flag("--cut-only", options.is_cut_only, "cut their packets, let them live");
  CLI::Option* const cut_transfers = kill.add_flag(
                                             "--transfers",
                                             options.cuts_transfers,
                                             "only cut the agent's own transfers; guests stay"
  )
                                         ->excludes(cut_only)
                                         ->excludes("--gpu");
  kill.add_flag("--allow-transfers", options.allows_transfers, "let them go on")
      ->excludes(cut_only)
      ->excludes(cut_transfers)
      ->excludes("--gpu");
  kill.callback([&] { code = order_kill(options); });
  CLI::App& verify = *app.add_subcommand("verify", "look whether anything of a guest is left");
  add_places(verify, options);
  verify.callback([&] { code = look_whether_clear(options); });
  CLI::App& doctor = *app.add_subcommand(
      "doctor", "ask this machine's kernel what it has, and say what is done without the rest"
  );
  doctor.callback([&] { code = look_at_kernel(); });
  CLI::App& leave = *app.add_subcommand("leave", "remove everything and say what");
  add_places(leave, options);
  leave.callback([&] { code = rn::warden_cli::leave(options); });

  CLI::App& exec =
      *app.add_subcommand("engine-exec", "(internal) start the private engine")->group("");
  exec.add_option("--etc", options.exec.etc)->required();
  exec.add_option("--containerd", options.exec.containerd)->required();
  exec.add_option("--log", options.exec.log)->required();
  exec.add_option("argv", options.exec.argv)->required();
  exec.callback([&] {
    (void)std::signal(SIGPIPE, SIG_DFL);  // a program inherits what is ignored
    const rn::Status started = rn::warden::exec_engine(options.exec);
    code = started ? kDone : complain(started.error());
  });

  // Before any verb runs: engine and guests see these paths from other folders, and the kernel
  // names mounts by their true paths.
  app.parse_complete_callback([&] {
    for (std::string* path : {&options.state, &options.run, &options.init}) {
      if (path->empty()) continue;
      std::error_code failed;  // below a folder that is gone, a relative path stays what it is
      const auto absolute = std::filesystem::absolute(*path, failed);
      if (failed) continue;
      std::string whole = std::filesystem::weakly_canonical(absolute, failed);
      while (whole.size() > 1 && whole.back() == '/') whole.pop_back();
      if (!failed) *path = whole;
    }
  });
  return rn::run_command_line(app, argc, argv, "reclaim-warden", [&] { return code; });
}
