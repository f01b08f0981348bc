// SPDX-License-Identifier: Apache-2.0
#include "cli_notebook.h"

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <thread>
#include <utility>

#include "cli_job_file.h"
#include "cli_print.h"
#include "cli_run.h"
#include "command_line.h"

#include "base/printable.h"
#include "io/http.h"
#include "io/loop.h"
#include "io/websocket_client.h"
#include "model/tunnel.h"

namespace rn::cli {

namespace {

constexpr std::uint32_t kJupyterPort = 8888;
constexpr std::uint32_t kNotebookWaitMaxS = 24 * 3600;
constexpr auto kNotebookLook = std::chrono::seconds(1);
constexpr auto kProbeLimit = seconds(15);

std::string path_of_job(const std::string& job) {
  return "/v1/jobs/" + io::percent_encode(job);
}

Result<api::NotebookAnswer> address_of(const Client& client, const std::string& job) {
  return client.send_as<api::NotebookAnswer>("POST", path_of_job(job) + "/notebook", "");
}

/// Whether something in the guest takes connections at the port: one is opened, as `forward` does.
bool takes_connections(const Client& client, const Job& job, std::uint32_t port) {
  bool is_open = false;
  io::Loop loop;  // outlives what is on it
  std::shared_ptr<io::WebSocket> socket;
  const io::HttpCall call = client.call("GET", "");
  io::WebSocketClientConfig config;
  config.url = "wss" + client.login().url.substr(5) +
               "/v1/forward?job=" + io::percent_encode(job.id.str()) +
               "&port=" + std::to_string(port);
  config.tls = *call.tls;
  config.headers = call.headers;
  auto connecting = io::WebSocketConnect::start(
      loop,
      std::move(config),
      [&](Result<std::shared_ptr<io::WebSocket>> opened) {
        if (!opened) return loop.stop();
        socket = *opened;
        socket->on_message([&](const Blob& packet) {
          is_open =
              !packet.empty() && packet[0] == static_cast<std::uint8_t>(tunnel::Kind::kOpened);
          loop.stop();
        });
        socket->on_close([&](const Error&) { loop.stop(); });
      }
  );
  loop.run_after(kProbeLimit, [&] { loop.stop(); });
  loop.run();
  connecting.cancel();
  if (socket) socket->close("seen");
  loop.poll();
  return is_open;
}

/// What it does meanwhile, once for each thing that it does.
void say_what_it_does(const Client& client, const Job& job, std::string& said) {
  const auto why = client.get_as<api::WhyAnswer>(path_of_job(job.id.str()) + "/why");
  if (!why || why->sentence == said) return;
  said = why->sentence;
  std::fprintf(stderr, "%s\n", printable(said).c_str());
}

/// kConflict: it is over; kTimeout: it did not answer, and goes on.
Result<Job> wait_for_notebook(
    const Client& client, const std::string& job, std::uint32_t port, std::uint32_t wait_s
) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(wait_s);
  std::string said;
  while (true) {
    RN_TRY(Job found, client.get_as<Job>(path_of_job(job)));
    const std::string number = std::to_string(found.number);
    if (is_terminal(found.state))
      return fail(
          ErrorCode::kConflict,
          "job " + number + " is over: " + std::string(to_string(found.state)) +
              (found.reason.empty() ? "" : " (" + found.reason + ")"),
          "`reclaim logs " + number + "` has what it said last"
      );
    const bool runs = found.state == JobState::kRunning || found.state == JobState::kNoticed;
    if (runs && takes_connections(client, found, port)) return found;
    if (!runs) say_what_it_does(client, found, said);
    if (std::chrono::steady_clock::now() >= until)
      return fail(
          ErrorCode::kTimeout,
          "the notebook of job " + number + " did not answer within " + std::to_string(wait_s) +
              " s; the job goes on",
          "`reclaim why " + number + "`, then `reclaim notebook " + number + "`"
      );
    std::this_thread::sleep_for(kNotebookLook);
  }
}

int print_address(const api::NotebookAnswer& answer, const Job& job, bool is_json) {
  if (is_json) {
    print_json(to_json(answer));
    return 0;
  }
  const std::string number = std::to_string(job.number);
  std::printf("%s\n", printable(answer.url).c_str());
  std::fflush(stdout);
  std::fprintf(
      stderr,
      "  opens the notebook of job %s in one browser, once, within %u minutes; there it stays\n"
      "  %s, wherever the job runs\n"
      "  reclaim notebook %s   prints another one\n"
      "  reclaim stop %s       ends it; its files: reclaim cp %s: FOLDER\n",
      number.c_str(),
      unsigned{answer.lives_s} / 60,
      printable(answer.place).c_str(),
      number.c_str(),
      number.c_str(),
      number.c_str()
  );
  return 0;
}

/// A site without an address for notebooks keeps no job that nobody can open.
int complain_and_stop(const Client& client, const JobId& job, const Error& error) {
  if (error.code == ErrorCode::kUnsupported) {
    const auto stopped = client.send("POST", path_of_job(job.str()) + "/stop", "{}");
    std::fprintf(stderr, stopped ? "the job was stopped\n" : "the job goes on\n");
  }
  return complain(error);
}

int start_notebook(const Client& client, const NotebookFlags& flags) {
  auto spec = notebook_spec(flags);
  if (!spec) return complain(spec.error());
  RunOptions options;
  options.spec = *std::move(spec);
  options.folder = std::filesystem::absolute(flags.run.folder).lexically_normal().string();
  options.uploads = !flags.run.has_no_upload;
  options.upload_limit_bytes = flags.run.upload_mib << 20;
  options.warns = false;
  const auto submitted = submit_job(client, options);
  if (!submitted) return complain(submitted.error());
  const JobId id = submitted->job.id;
  const auto known = address_of(client, id.str());
  if (!known) return complain_and_stop(client, id, known.error());
  if (flags.run.is_detached) {
    print_json(id.str());
    return 0;
  }
  const auto job = wait_for_notebook(client, id.str(), kJupyterPort, flags.wait_s);
  if (!job) return complain(job.error());
  const auto address = address_of(client, id.str());
  if (!address) return complain(address.error());
  return print_address(*address, *job, flags.is_json);
}

}  // namespace

void add_notebook_flags(CLI::App& app, NotebookFlags& flags) {
  app.add_option("job", flags.job, "of one that there is: print an address of it again")
      ->check(name_word)
      ->type_name("JOB");
  add_place_flags(app, flags.run);
  app.add_option("--name", flags.run.name, "a name for people");
  app.add_option("--env", flags.run.env, "NAME=VALUE, repeatable")->take_all();
  app.add_option("--idle", flags.idle, "it ends after so long without work: 2h (default: never)")
      ->check(filled);
  app.add_option("--folder", flags.run.folder, "folder to upload")
      ->capture_default_str()
      ->type_name("FOLDER");
  add_number(
      app,
      "--max-upload-mib",
      flags.run.upload_mib,
      "refuse bigger folders",
      std::uint64_t{1},
      kUploadMibMax
  );
  app.add_flag("--no-upload", flags.run.has_no_upload, "start in an empty folder");
  add_number(
      app, "--wait", flags.wait_s, "seconds to wait until it answers", 1u, kNotebookWaitMaxS
  );
  CLI::Option* const json = app.add_flag("--json", flags.is_json, "the address as JSON");
  app.add_flag("-d,--detach", flags.run.is_detached, "only submit, and print the job")
      ->excludes(json);
  app.footer(
      "Examples: reclaim notebook --gpu 24GB --idle 2h\n"
      "          reclaim notebook 12\n"
      "It goes on until 'reclaim stop', --idle or --max-duration, and moves with its files when "
      "an\n"
      "owner takes the machine back; what its kernels hold in memory does not (docs/notebooks.md)."
  );
}

Status check_notebook_flags(const CLI::App& app, const NotebookFlags& flags) {
  if (flags.job.empty()) return {};
  for (const CLI::Option* option : app.get_options()) {
    const bool is_of_both = option->check_lname("wait") || option->check_lname("json");
    if (!option->nonpositional() || is_of_both || option->count() == 0) continue;
    return fail(
        ErrorCode::kInvalid,
        "job " + flags.job + " is there already: " + option->get_name() + " is of a new one",
        "leave out the one or the other"
    );
  }
  return {};
}

Result<JobSpec> notebook_spec(const NotebookFlags& flags) {
  RunFlags run = flags.run;
  run.command = {"reclaim-notebook"};
  run.has_tell_api = true;
  run.temporary = {".ipynb_checkpoints/"};
  RN_TRY(JobSpec spec, spec_of(run));
  spec.env["NOTEBOOK_PORT"] = std::to_string(kJupyterPort);
  if (flags.idle.empty()) return spec;
  auto idle_s = parse_duration_s(flags.idle);
  if (!idle_s) return fail(idle_s.error().with("--idle"));
  spec.env["NOTEBOOK_IDLE_S"] = std::to_string(*idle_s);
  return spec;
}

int notebook(const Client& client, const NotebookFlags& flags) {
  if (flags.job.empty()) return start_notebook(client, flags);
  const auto known = address_of(client, flags.job);
  if (!known) return complain(known.error());
  const auto job = wait_for_notebook(client, flags.job, known->port, flags.wait_s);
  if (!job) return complain(job.error());
  const auto address = address_of(client, flags.job);
  if (!address) return complain(address.error());
  return print_address(*address, *job, flags.is_json);
}

}  // namespace rn::cli
