// SPDX-License-Identifier: Apache-2.0
#include "cli_run_flags.h"

#include <filesystem>

#include "cli_job_file.h"
#include "cli_notify.h"
#include "command_line.h"

#include "base/printable.h"
#include "base/utf8.h"

namespace rn::cli {

namespace {

/// What a flag says, where it was given.
template <class T, class Parse>
Status take(const char* flag, const std::string& text, Parse parse, T& out) {
  if (text.empty()) return {};
  const auto value = parse(text);
  if (!value) return fail(value.error().with(flag));
  out = *value;
  return {};
}

}  // namespace

Result<JobSpec> spec_of(const RunFlags& flags) {
  RN_CHECK(check_text("the command's", flags.command));
  RN_CHECK(check_text("--env", flags.env));
  RN_CHECK(check_text("--name", {flags.name}));
  for (const auto* globs : {&flags.checkpoints, &flags.outputs, &flags.temporary})
    RN_CHECK(check_text("a glob,", *globs));
  RN_CHECK(check_text("--image", {flags.image}));
  RN_CHECK(check_text("--data", flags.data));
  RN_CHECK(check_text("--lab", flags.labs));
  RN_CHECK(check_text("--peer", flags.peers));
  RN_CHECK(check_text("--copies-at", flags.copies_at));
  RN_CHECK(check_text("--complete-marker", {flags.marker}));
  RN_CHECK(check_text("--tell-file", {flags.tell_file}));
  RN_CHECK(check_text("--tell-hook", {flags.tell_hook}));
  RN_CHECK(check_text("--compute-capability", {flags.capability}));
  JobSpec spec;
  spec.command = flags.command;
  spec.image = flags.image;
  spec.name = flags.name;
  spec.priority = flags.priority;
  spec.max_restarts = flags.max_restarts;
  spec.checkpoint.paths = flags.checkpoints;
  spec.checkpoint.outputs = flags.outputs;
  spec.checkpoint.temporary = flags.temporary;
  spec.checkpoint.is_stateless = flags.is_stateless;
  spec.checkpoint.is_told = flags.is_told;
  spec.checkpoint.tell_file = flags.tell_file;
  spec.checkpoint.tell_hook = flags.tell_hook;
  spec.checkpoint.tell_api = flags.has_tell_api;
  spec.checkpoint.copies = flags.copies;
  spec.checkpoint.destinations = flags.copies_at;
  spec.checkpoint.complete_marker = flags.marker;
  spec.resources.compute_capability_min = flags.capability;
  spec.only_labs = flags.labs;
  spec.data = flags.data;
  if (!flags.gpu.empty()) RN_CHECK(parse_gpu(flags.gpu, spec.resources));
  RN_CHECK(take("--cpus", flags.cpus, parse_cpu_milli, spec.resources.cpu_milli));
  RN_CHECK(take("--cpus-min", flags.cpus_min, parse_cpu_milli, spec.resources.cpu_milli_min));
  RN_CHECK(take("--memory", flags.memory, parse_memory_mib, spec.resources.memory_mib));
  RN_CHECK(take("--disk", flags.disk, parse_memory_mib, spec.resources.disk_mib));
  RN_CHECK(take("--signal", flags.signal, parse_signal, spec.checkpoint.signal));
  RN_CHECK(take("--notice", flags.notice, parse_duration_s, spec.notice_s));
  RN_CHECK(take("--max-duration", flags.max_duration, parse_duration_s, spec.max_duration_s));
  RN_CHECK(take("--idle-stop", flags.idle_stop, parse_duration_s, spec.idle_stop_s));
  for (const std::string& text : flags.peers) {
    RN_TRY(NetworkAllow peer, parse_peer(text));
    spec.peers.push_back(std::move(peer));
  }
  for (const std::string& pair : flags.env) {
    const auto equals = pair.find('=');
    if (equals == std::string::npos || equals == 0)
      return fail(
          ErrorCode::kInvalid, "--env '" + pair + "' is not NAME=VALUE", "for example --env SEED=7"
      );
    spec.env[pair.substr(0, equals)] = pair.substr(equals + 1);
  }
  return spec;
}

namespace {

/// Where it may run, and what it gets there.
void add_where_flags(CLI::App& app, RunFlags& f) {
  app.add_option("--image", f.image, "image of the allow list (reclaim image ls)")
      ->capture_default_str()
      ->type_name("IMAGE");
  app.add_option("--gpu", f.gpu, "number of GPUs and memory of each: 1, 24GB, 24GB:2")
      ->type_name("GPUS");
  app.add_option("--compute-capability", f.capability, "of the GPU, at least: 8.0")
      ->type_name("VERSION");
  app.add_option("--cpus", f.cpus, "cores wanted: 2, 0.5")->type_name("CORES");
  app.add_option("--cpus-min", f.cpus_min, "cores that will do (default 0.1)")->type_name("CORES");
  app.add_option("--memory", f.memory, "memory: 512MB, 4GB (default 1GB)")->type_name("SIZE");
  app.add_option("--disk", f.disk, "disk (default 2GB)")->type_name("SIZE");
  add_number(app, "--priority", f.priority, "0 (first) to 7 (last)", 0u, 7u);
  app.add_option("--notice", f.notice, "notice wanted before a reclaim: 5m")->type_name("TIME");
  add_number(app, "--copies", f.copies, "so many other machines hold each save", 1u, 8u);
  app.add_option(
         "--copies-at", f.copies_at, "node or lab where these may be, repeatable (default: any)"
  )
      ->take_all()
      ->type_name("LAB");
  app.add_option("--lab", f.labs, "run only on this lab's machines, repeatable")
      ->take_all()
      ->type_name("LAB");
  app.add_option(
         "--data", f.data, "data set of the node's (reclaim nodes), read as /data/NAME, repeatable"
  )
      ->take_all()
      ->type_name("DATA");
  app.add_option("--max-duration", f.max_duration, "stop it after: 2h")->type_name("TIME");
  app.add_option(
         "--idle-stop",
         f.idle_stop,
         "stop it when it used nothing of its GPUs, or cores, for so long: 2h"
  )
      ->type_name("TIME");
}

/// What it saves, when it is told to, and what of it comes home.
void add_saving_flags(CLI::App& app, RunFlags& f) {
  app.add_option(
         "--signal", f.signal, "signal on which it saves: auto (default), none, TERM, USR1, USR2"
  )
      ->type_name("SIGNAL");
  app.add_flag(
      "--tell",
      f.is_told,
      "it saves on --signal and goes on: signal it whenever a save is due, and not only before a "
      "reclaim"
  );
  app.add_option(
         "--tell-file",
         f.tell_file,
         "instead of a signal: this file appears in its folder whenever a save is due, and it "
         "deletes it when it has saved"
  )
      ->type_name("NAME");
  app.add_option(
         "--tell-hook",
         f.tell_hook,
         "instead of a signal: /bin/sh runs this line in the guest whenever a save is due; it ends "
         "when that is done"
  )
      ->type_name("LINE");
  app.add_flag(
      "--tell-api",
      f.has_tell_api,
      "instead of a signal: it asks the socket RECLAIM_API whether a save is due, and says there "
      "when it has saved"
  );
  app.add_option("--checkpoint", f.checkpoints, "glob of checkpoint files, repeatable")
      ->take_all()
      ->type_name("GLOB");
  app.add_option("--complete-marker", f.marker, "file that it writes when a checkpoint is whole")
      ->type_name("FILE");
  app.add_option("--output", f.outputs, "glob of what is brought back (default: all that changed)")
      ->take_all()
      ->type_name("GLOB");
  app.add_option("--temporary", f.temporary, "glob left out of checkpoints and outputs")
      ->take_all()
      ->type_name("GLOB");
}

void refuse_empty_values(CLI::App& app) {
  for (const char* flag :
       {"--image",
        "--gpu",
        "--compute-capability",
        "--cpus",
        "--cpus-min",
        "--memory",
        "--disk",
        "--signal",
        "--tell-file",
        "--tell-hook",
        "--notice",
        "--checkpoint",
        "--output",
        "--lab",
        "--temporary",
        "--complete-marker",
        "--copies-at",
        "--peer",
        "--folder",
        "--max-duration",
        "--idle-stop"}) {
    if (CLI::Option* option = app.get_option_no_throw(flag)) option->check(filled);
  }
}

}  // namespace

Status check_text(const std::string& what, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (is_utf8(word)) continue;
    return fail(
        ErrorCode::kInvalid,
        what + " '" + printable(word) + "' is not text in UTF-8",
        "put such bytes into a file of the folder, or into a script that makes them"
    );
  }
  return {};
}

Result<RunOptions> options_of(const RunFlags& flags) {
  RunOptions options;
  RN_TRY(options.spec, spec_of(flags));
  options.folder = std::filesystem::absolute(flags.folder).lexically_normal().string();
  options.uploads = !flags.has_no_upload;
  RN_CHECK(check_notify(flags.notify));
  options.notify = flags.notify;
  options.is_detached = flags.is_detached;
  options.is_json = flags.is_json;
  options.upload_limit_bytes = flags.upload_mib << 20;
  return options;
}

void add_notify(CLI::App& app, std::vector<std::string>& out) {
  app.add_option(
         "--notify",
         out,
         "address or webhook that is told of it, repeatable (docs/notifications.md)"
  )
      ->take_all()
      ->type_name("RECEIVER")
      ->check(filled);
}

Status check_notify(const std::vector<std::string>& receivers) {
  RN_CHECK(check_text("--notify", receivers));
  for (const std::string& receiver : receivers) {
    const auto request = notify_request(receiver);
    if (!request) return fail(request.error().with("notify"));
  }
  return {};
}

void add_place_flags(CLI::App& app, RunFlags& f) {
  add_where_flags(app, f);
  refuse_empty_values(app);
}

void add_run_flags(CLI::App& app, RunFlags& f) {
  add_where_flags(app, f);
  app.footer(
      "Examples:\n"
      "  reclaim run -- python3 train.py\n"
      "  reclaim run --gpu 24GB --max-duration 8h --checkpoint 'ckpt/*.pt' -- python3 train.py\n"
      "  reclaim run -d --stateless -- sh render.sh     only submits; starts over after a "
      "reclaim\n\n"
      "Not uploaded: .git, .reclaim, __pycache__, sockets, pipes and devices, and what .gitignore\n"
      "and .reclaimignore name; before the upload it is said what, with number and bytes. A line\n"
      "!NAME in .reclaimignore takes NAME along. A whole home folder is refused, unless its\n"
      ".reclaimignore says what stays there."
  );
  app.add_option("--name", f.name, "a name for people")->type_name("NAME");
  app.add_option("--env", f.env, "a variable of its environment, repeatable")
      ->take_all()
      ->type_name("NAME=VALUE");
  add_saving_flags(app, f);
  app.add_option("--peer", f.peers, "address it wants to reach: 10.1.2.3:5000/udp; owners decide")
      ->take_all()
      ->type_name("ADDRESS");
  add_notify(app, f.notify);
  add_number(
      app,
      "--max-restarts",
      f.max_restarts,
      "start it again so often after crashes of its own",
      0u,
      1000u
  );
  app.add_option("--folder", f.folder, "folder to upload and to bring outputs to")
      ->capture_default_str()
      ->type_name("FOLDER");
  add_number(
      app,
      "--max-upload-mib",
      f.upload_mib,
      "refuse a folder that is bigger than so many MiB",
      std::uint64_t{1},
      kUploadMibMax
  );
  app.add_flag(
         "--stateless",
         f.is_stateless,
         "it saves nothing: after a reclaim it starts from the beginning"
  )
      ->excludes("--checkpoint")
      ->excludes("--complete-marker");
  app.add_flag("--no-upload", f.has_no_upload, "start in an empty folder");
  CLI::Option* const detach = app.add_flag("-d,--detach", f.is_detached, "only submit");
  app.add_flag("--json", f.is_json, "with --detach: the answer as JSON")->needs(detach);
  app.add_option("command", f.command, "the command, after --")->required();
  app.positionals_at_end();
  refuse_empty_values(app);
}

}  // namespace rn::cli
