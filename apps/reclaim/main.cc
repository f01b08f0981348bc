// SPDX-License-Identifier: Apache-2.0
#include "commands.h"

using namespace rn;
using namespace rn::cli;

namespace {

CLI::App* add_login(CLI::App& app, LoginOptions& out) {
  CLI::App* sub = app.add_subcommand(
      "login", "Remember a coordinator and a token, or sign in there in a browser."
  );
  sub->add_option("url", out.url, "https://coordinator:7443")->required();
  add_secret(
      *sub,
      "--token",
      out.token,
      "a user token; without it you sign in with an account of the site's identity provider"
  );
  sub->add_option(
      "--ca-fingerprint", out.ca_fingerprint, "of the site's CA, where no token says it"
  );
  sub->add_flag(
      "--browser",
      out.is_by_browser,
      "sign in by a browser on this machine, and not by a code that any browser takes"
  );
  sub->add_option(
         "--port",
         out.browser.port,
         "with --browser: of this machine, where it comes back to; for ssh -L. Else one is found"
  )
      ->check(CLI::Range(1024, 65535));
  sub->add_option("--wait-s", out.browser.wait_s, "with --browser: so long for somebody to do it")
      ->check(CLI::Range(1, 600));
  add_examples(
      sub,
      {"reclaim login https://coordinator:7443 --token -     reads the token from standard input",
       "reclaim login https://coordinator:7443               signs in, where the site offers it"},
      "It is remembered in $XDG_CONFIG_HOME/reclaimnet/config.json, or in ~/.config."
  );
  return sub;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Run work on machines and GPUs that others lend.\n\n"
      "First steps:\n"
      "  reclaim login https://COORDINATOR:7443 --token TOKEN    once\n"
      "  reclaim run -- python3 train.py    in the folder with the script: uploads it, shows the\n"
      "                                     log, brings what it made back\n"
      "  reclaim ps                         jobs and their numbers\n"
      "  reclaim why 17                     why job 17 waits, or runs where it does\n"
      "  reclaim logs -f 17                 what it says; reclaim cp 17: out brings its files\n\n"
      "Who lends a machine takes it back with 'reclaim take NODE' from afar, and on the machine "
      "itself\nwith 'reclaim-agent reclaim'. 'reclaim COMMAND --help' explains a command."
  );
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 success, 1 failure, 2 usage, 3 not found, 4 permission, 5 conflict,\n"
      "6 coordinator unreachable, 7 timeout, 8 no room or quota, 130 interrupted, 141 nobody\n"
      "reads the output; 'run' exits with the job's own code, 'exec' with its command's, 'plan' "
      "has its "
      "own.\n"
      "See docs/commands.md."
  );
  Commands commands(app);
  Options options;
  CLI::App* login_app = add_login(app, options.login);
  add_run(commands, options.run);
  add_submit(commands, options);
  add_plan(commands, options);
  add_job_commands(commands, options);
  add_copy(commands, options);
  add_forward(commands, options);
  add_attach(commands, options);
  add_exec(commands, options);
  add_notebook(commands, options);
  add_site_commands(commands, options);
  add_take(commands, options);
  add_contract_commands(app, commands, options);
  add_image_commands(app, commands, options);
  add_token_commands(app, commands, options);
  add_notify_commands(app, commands, options);
  add_quota_commands(commands, options);
  add_completion(app, commands, options);
  return run_command_line(
      app,
      argc,
      argv,
      "reclaim",
      [&] { return login_app->parsed() ? login(options.login) : commands.run(); },
      {{"plan", kPlanFailed}, {"exec", kExecFailed}}
  );
}
