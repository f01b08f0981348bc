// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "commands.h"
#include <unistd.h>

#include "base/printable.h"

namespace rn::cli {

namespace {

CLI::App* add_contract_command(
    CLI::App& contract,
    Commands& commands,
    Options& o,
    const std::string& name,
    const std::string& what,
    int (*act)(const Client&, const ContractOptions&)
) {
  CLI::App* app = commands.add(contract, name, what, [&o, act](const Client& c) {
    ContractOptions options = o.contract;
    if (!o.is_sure && isatty(STDIN_FILENO) != 0) options.confirms = ask_terminal;
    return act(c, options);
  });
  app->add_option("node", o.contract.node, "id, or hostname")
      ->required()
      ->check(filled)
      ->type_name("NODE");
  add_json(app, o.contract.is_json);
  return app;
}

}  // namespace

void add_site_commands(Commands& commands, Options& o) {
  CLI::App* app = commands.add("nodes", "List nodes.", [&o](const Client& c) {
    return o.why_node.empty() ? nodes(c, o.is_json) : node_hazard(c, o.why_node, o.is_json);
  });
  app->add_option(
         "--why", o.why_node, "NODE: how likely its owner takes it back soon, and how that is known"
  )
      ->type_name("NODE");
  add_json(app, o.is_json);
  app->footer("'reclaim nodes revoke NODE' takes one out for good.");
  CLI::App* revoke = commands.add(
      *app,
      "revoke",
      "Take a node out for good: its certificate counts no more, its jobs go elsewhere.",
      [&o](const Client& c) {
        RevokeNodeOptions options{o.name, o.is_json, {}};
        if (!o.is_sure && isatty(STDIN_FILENO) != 0) options.confirms = ask_terminal;
        return revoke_node(c, options);
      }
  );
  revoke->add_option("node", o.name, "id, or hostname")
      ->required()
      ->check(filled)
      ->type_name("NODE");
  revoke->add_flag("-y,--yes", o.is_sure, "on a terminal: do not ask");
  add_json(revoke, o.is_json);

  app = commands.add("offers", "List what is lent now.", [&o](const Client& c) {
    return offers(c, o.offers);
  });
  app->add_option("--gpu", o.offers.gpu, "where so many GPUs of so much memory are: 1, 24GB:2")
      ->check(filled);
  add_json(app, o.offers.is_json);
  app->footer("'reclaim plan' says where a job fits, and when.");

  app = commands.add(
      "top",
      "Show nodes, GPUs and jobs as they are, until q or Ctrl-C.",
      [&o](const Client& c) { return top(c, o.top); }
  );
  add_number(*app, "--every", o.top.every_s, "seconds between two looks", 1u, kEveryMaxS);
  app->add_flag("--once", o.top.is_once, "print it once, for scripts");
  add_json(app, o.top.is_json);
  add_examples(app, {"reclaim top --once"});

  app = commands.add("events", "Show what happened, from the audit log.", [&o](const Client& c) {
    return events(c, o.events);
  });
  app->add_option("--job", o.events.job, "of this job")->check(name_word)->type_name("JOB");
  app->add_option("--node", o.events.node, "of this node")->check(name_word)->type_name("NODE");
  app->add_option("--kind", o.events.kind, "kinds that begin so: job., reclaim.");
  add_number(*app, "-n,--limit", o.events.limit, "the newest so many", 1u, kRowsMax);
  add_json(app, o.events.is_json);
  add_examples(
      app,
      {"reclaim events --job 17               what became of job 17",
       "reclaim events --kind reclaim. -n 5   the newest of what owners took back"}
  );

  app = commands.add("whoami", "Show who the coordinator takes us for.", [&o](const Client& c) {
    return whoami(c, o.is_json);
  });
  add_json(app, o.is_json);
}

void add_take(Commands& commands, Options& o) {
  CLI::App* app = commands.add(
      "take",
      "Take a node of your lab, or GPUs of it, back from wherever you are.",
      [&o](const Client& c) { return take(c, o.take); }
  );
  app->add_option("node", o.take.node, "id, or hostname")->required()->check(filled);
  add_numbers(*app, "--gpu", o.take.gpus, "only this GPU; repeatable", 0u, kGpuMax);
  CLI::Option* const now =
      app->add_flag("--now", o.take.is_now, "at once: nothing is saved any more");
  app->add_option(
         "--in,--notice", o.take.in, "at that time: 10m (default: with its contract's notice)"
  )
      ->check(filled)
      ->excludes(now);
  app->add_flag("--detach", o.take.is_detached, "until it has begun, not until it is cleared");
  add_json(app, o.take.is_json);
  app->footer(
      "Examples:\n"
      "  reclaim take node-7            with the notice of its contract\n"
      "  reclaim take node-7 --now      at once: nothing is saved any more\n"
      "  reclaim take node-7 --gpu 1    one GPU; its others stay lent\n\n"
      "Exit codes: 0 cleared (with --detach: begun), 1 something of a guest is left, 5 refused or "
      "given\nback before, 6 not reached and nothing done, 7 told and not answered. Ctrl-C ends "
      "the "
      "watching, not\nthe order. Only 'reclaim-agent release' on the machine lends it again."
  );
}

void add_contract_commands(CLI::App& app, Commands& commands, Options& o) {
  CLI::App* contract =
      app.add_subcommand("contract", "See and change what a node of your lab lends.");
  contract->require_subcommand(1);
  contract->footer(
      "A change that only lends less takes effect at once. Any other waits until somebody at the "
      "machine\nsays 'reclaim-agent contract accept'. Exit codes: 0 in force or waiting, 5 another "
      "contract is in force\nby now, or the machine refuses it, 6 not reached and nothing done, 7 "
      "told and not answered."
  );
  add_contract_command(*contract, commands, o, "get", "Print the one in force.", contract_get);
  CLI::App* set = add_contract_command(
      *contract, commands, o, "set", "Send the contract in a file.", contract_set
  );
  set->add_option("file", o.contract.file, "as for 'reclaim-agent contract set'")
      ->required()
      ->type_name("FILE");
  CLI::App* edit = add_contract_command(
      *contract, commands, o, "edit", "Change the one in force in your editor.", contract_edit
  );
  edit->footer("The editor is $VISUAL, or $EDITOR, or vi.");
  for (CLI::App* sub : {set, edit}) {
    sub->add_flag("--replace", o.contract.replaces, "take the place of a change that waits");
    sub->add_flag("-y,--yes", o.is_sure, "on a terminal: do not ask");
  }
  CLI::App* diff = add_contract_command(
      *contract,
      commands,
      o,
      "diff",
      "What waits at the machine, or what a file would change, and what that means.",
      contract_diff
  );
  diff->add_option("file", o.contract.file, "instead of what waits")->type_name("FILE");
}

void add_image_commands(CLI::App& app, Commands& commands, Options& o) {
  CLI::App* image =
      app.add_subcommand("image", "List, add, fetch and remove images that jobs may run in.");
  image->require_subcommand(1);
  CLI::App* add =
      commands.add(*image, "add", "Upload an archive and list it.", [&o](const Client& c) {
        return add_image_command(c, o.name, o.archive, o.base);
      });
  add->add_option("name", o.name, "its name")->required()->check(name_word);
  add->add_option("archive", o.archive, "what 'docker save' or 'docker export' wrote")
      ->required()
      ->check(filled)
      ->type_name("FILE");
  add->add_option("--base", o.base, "the listed image that it is built on (needed from users)")
      ->type_name("IMAGE");
  CLI::App* save =
      commands
          .add(*image, "save", "Fetch an image's archive, to build on it.", [&o](const Client& c) {
            return save_image(c, {o.name, o.archive, o.is_sure});
          });
  save->add_option("name", o.name, "its name")->required()->check(name_word)->type_name("IMAGE");
  save->add_option("file", o.archive, "where to write it")
      ->required()
      ->check(filled)
      ->type_name("FILE");
  save->add_flag("--force", o.is_sure, "replace a file that is there");
  CLI::App* ls = commands.add(*image, "ls", "List images.", [&o](const Client& c) {
    return list_images(c, o.is_json);
  });
  add_json(ls, o.is_json);
  CLI::App* rm = commands.add(*image, "rm", "Take an image off the list.", [&o](const Client& c) {
    return remove_image(c, o.name);
  });
  rm->add_option("name", o.name, "its name")->required()->check(name_word)->type_name("IMAGE");
}

void add_token_commands(CLI::App& app, Commands& commands, Options& o) {
  CLI::App* token = app.add_subcommand(
      "token", "Make, list and revoke tokens: of nodes that join, and of users."
  );
  token->require_subcommand(1);
  CLI::App* create = commands.add(
      *token,
      "create",
      "Make a one-use join token for a lab's node, or a user's token.",
      [&o](const Client& c) {
        if (!o.token.user.empty()) o.token.kind = "user";
        return create_token(c, o.token, o.is_json);
      }
  );
  create->add_option("--lab", o.token.lab, "the lab")
      ->required()
      ->check(name_word)
      ->type_name("LAB");
  CLI::Option* const user =
      create->add_option("--user", o.token.user, "make a user token for this user instead")
          ->check(name_word);
  create->add_option("--role", o.token.role, "of the user: viewer, user, owner, admin")
      ->capture_default_str()
      ->check(CLI::IsMember({"viewer", "user", "owner", "admin"}))
      ->needs(user);
  add_number(*create, "--ttl-s", o.token.ttl_s, "seconds to live; 0: a user token never expires");
  add_json(create, o.is_json);
  add_examples(
      create,
      {"reclaim token create --lab vision                 for a machine that joins",
       "reclaim token create --lab vision --user anna     for a person"},
      "'reclaim-agent join URL --token T' and 'reclaim login URL --token T' take it. It is shown "
      "once."
  );
  CLI::App* ls = commands.add(*token, "ls", "List tokens.", [&o](const Client& c) {
    return list_tokens(c, o.is_json);
  });
  add_json(ls, o.is_json);
  CLI::App* revoke = commands.add(*token, "revoke", "Revoke a token.", [&o](const Client& c) {
    return revoke_token(c, o.name);
  });
  revoke->add_option("id", o.name, "its id")->required()->check(name_word);
}

void add_notify_commands(CLI::App& app, Commands& commands, Options& o) {
  CLI::App* notify =
      app.add_subcommand("notify", "Say who is told by mail or webhook of what becomes of jobs.");
  notify->require_subcommand(1);
  NotifyOptions& n = o.notify;
  CLI::App* add = commands.add(
      *notify,
      "add",
      "Have an address or a webhook told of your jobs, or of machines that you own.",
      [&n](const Client& c) { return add_notification(c, n); }
  );
  CLI::Option* const mail = add->add_option("--mail", n.mail, "an address")->check(filled);
  CLI::Option* const hook = add->add_option("--webhook", n.webhook, "a URL")->check(filled);
  mail->excludes(hook);
  add->add_option(
         "--on",
         n.on,
         "finished,failed,cancelled,moved,waiting,restarted,expiring,idle,unsaved; owners also "
         "reclaimed,returned,wedged,refused,lost,lent,wanted,sick (default: "
         "finished,failed,moved,waiting,expiring,idle,unsaved)"
  )
      ->delimiter(',')
      ->check(filled);
  add->add_option("--job", n.job, "of this job alone")->check(name_word);
  add_json(add, n.is_json);
  CLI::App* list = commands.add(*notify, "list", "List your rules.", [&n](const Client& c) {
    return list_notifications(c, n);
  });
  list->add_flag("--all", n.all, "those of all users, for admins");
  add_json(list, n.is_json);
  const auto with_rule = [&](const char* name, const char* what, auto action) {
    CLI::App* command =
        commands.add(*notify, name, what, [&n, action](const Client& c) { return action(c, n); });
    command->add_option("rule", n.rule, "its id")->required()->check(name_word);
    return command;
  };
  with_rule("confirm", "Give the code that an address was sent.", confirm_notification)
      ->add_option("code", n.code, "from the mail")
      ->required()
      ->check(filled);
  with_rule("test", "Send a test, and say what became of it.", test_notification);
  with_rule("remove", "Remove a rule.", remove_notification);
}

void add_quota_commands(Commands& commands, Options& o) {
  QuotaOptions& q = o.quota;
  CLI::App* app = commands.add(
      "quota",
      "Show what I may have of GPUs and jobs, and what I have of it; administrators set it.",
      [&q](const Client& c) { return show_quotas(c, q.is_json); }
  );
  add_json(app, q.is_json);
  app->footer(
      "Owners see their lab and its users, administrators everybody. docs/quotas.md says what a "
      "quota does."
  );
  CLI::App* set = commands.add(
      *app,
      "set",
      "Set what a user or a lab may have, in place of what was set before (administrators).",
      [&q](const Client& c) { return set_quota(c, q); }
  );
  set->add_option(
         "who", q.subject, "user:NAME or lab:NAME; user:* and lab:*: each that has none of its own"
  )
      ->required()
      ->check(filled);
  set->add_option("--model", q.model, "of GPUs alone with this in their model's name: H100")
      ->check(filled);
  add_number(*set, "--gpus", q.gpus, "GPUs held at once");
  add_number(*set, "--running", q.running, "jobs that run at once");
  add_number(*set, "--jobs", q.jobs, "jobs that wait and run");
  set->add_option("--gpu-hours", q.gpu_hours, "used within a time: 200, 200/7d (default: 7d)")
      ->check(filled);
  set->add_option(
         "--idle-stop",
         q.idle_stop,
         "stop jobs that used nothing of their GPUs, or cores, for so long, where they do not say "
         "it themselves: 2h"
  )
      ->check(filled);
  add_json(set, q.is_json);
  CLI::App* rm =
      commands.add(*app, "rm", "Remove a quota (administrators).", [&q](const Client& c) {
        return remove_quota(c, q);
      });
  rm->add_option("who", q.subject, "user:NAME, lab:NAME, user:* or lab:*")
      ->required()
      ->check(filled);
  rm->add_option("--model", q.model, "the one of these GPUs (default: the one of all)")
      ->check(filled);
}

void add_completion(CLI::App& app, Commands& commands, Options& o) {
  CLI::App* completion = commands.add_prepared(
      "completion",
      "Print a script by which a shell completes commands, flags, and what the site has.",
      [&app, &o] {
        const std::string script = completion_script(completed_commands(app), "reclaim", o.name);
        std::fputs(script.c_str(), stdout);
        return 0;
      }
  );
  completion->add_option("shell", o.name, "which one")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completion->footer(
      "bash: source <(reclaim completion bash)\n"
      "zsh:  source <(reclaim completion zsh), after compinit\n"
      "fish: reclaim completion fish | source\n"
      "Debian's package installs all three."
  );
  // What the scripts call; without a group it is not shown.
  CLI::App* live = commands.add_prepared("__complete", "What a shell asks for.", [&o] {
    return complete_live(o.name, o.from);
  });
  live->group("");
  live->add_option("kind", o.name)->required();
  live->add_option("prefix", o.from);
}
}  // namespace rn::cli
