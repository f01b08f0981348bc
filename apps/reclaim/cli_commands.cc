// SPDX-License-Identifier: Apache-2.0
#include "cli_commands.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "cli_fetch.h"
#include "cli_print.h"
#include "cli_run.h"
#include "cli_save_file.h"
#include "cli_sign_in.h"
#include "cli_upload.h"
#include "command_line.h"

#include "base/printable.h"
#include "io/http.h"
#include "io/real_fs.h"
#include "io/url.h"

namespace rn::cli {

namespace {

std::string job_path(const std::string& job, const std::string& rest = {}) {
  return "/v1/jobs/" + io::percent_encode(job) + rest;
}

std::string command_of(const Job& job) {
  std::string text;
  for (const std::string& word : job.spec.command) text += (text.empty() ? "" : " ") + word;
  for (char& c : text) c = c == '\n' || c == '\t' ? ' ' : c;
  return shorten(text, 40);
}

/// "train[3]" for a task of an array, "train/3" for a member of a gang.
std::string job_name(const Job& job) {
  const std::string name = shorten(job.spec.name, 20);
  if (job.gang) return name + "/" + std::to_string(job.gang->rank);
  return job.array ? name + "[" + std::to_string(job.array->index) + "]" : name;
}

/// Of one that holds GPUs and uses nothing of them.
const char* idle_mark(const Job& job) {
  return job.idle_since_wall_ms != 0 && !is_terminal(job.state) ? " (idle)" : "";
}

/// Prints the raw answer, or gives it to `print` as T.
template <class T, class Print>
int show(const Client& client, const std::string& path, bool is_json, Print print) {
  const auto text = client.get(path);
  if (!text) return complain(text.error());
  if (is_json) {
    print_json(*text);
    return 0;
  }
  const auto body = from_json<T>(*text, Unknown::kLenient);
  if (!body) return complain(body.error());
  print(*body);
  return 0;
}

}  // namespace

namespace {

/// Where the provider has no sign-in by a code, by a browser on this machine.
Result<std::string> token_by_signing_in(const Login& site, const LoginOptions& options) {
  if (options.is_by_browser || options.browser.port != 0)
    return sign_in_by_browser(site, options.browser);
  auto token = sign_in_from_terminal(site);
  if (token || token.error().code != ErrorCode::kUnsupported) return token;
  std::fprintf(stderr, "%s\n", printable(token.error().message).c_str());
  return sign_in_by_browser(site, options.browser);
}

}  // namespace

int login(const LoginOptions& options) {
  if (!options.token.empty() && (options.is_by_browser || options.browser.port != 0))
    return complain(Error{
        ErrorCode::kInvalid,
        "--token is a way to log in, and --browser and --port are of another",
        "give the token, or sign in by the browser"});
  Login login;
  const auto url = io::site_url(options.url);
  if (!url) return complain(url.error());
  login.url = *url;
  login.token = options.token;
  login.ca_fingerprint =
      options.ca_fingerprint.empty() ? fingerprint_in_token(options.token) : options.ca_fingerprint;
  // Who was logged in there before knows the site already.
  if (const auto before = load_login();
      login.ca_fingerprint.empty() && options.token.empty() && before && before->url == login.url)
    login.ca_fingerprint = before->ca_fingerprint;
  if (!digest_from_hex(login.ca_fingerprint)) {
    return complain(Error{
        ErrorCode::kInvalid,
        options.ca_fingerprint.empty()
            ? "the site's CA fingerprint is missing: " + std::string(
                                                             options.token.empty()
                                                                 ? "there is no token to carry one"
                                                                 : "this token does not carry one"
                                                         )
            : "--ca-fingerprint: '" + options.ca_fingerprint.substr(0, 80) +
                  "' is no fingerprint of 64 hex digits",
        options.ca_fingerprint.empty()
            ? "give the token whole, as it was shown, or the fingerprint with --ca-fingerprint; "
              "the coordinator prints it at its start"
            : "give it as the coordinator prints it at its start"});
  }
  if (login.token.empty()) {
    const auto token = token_by_signing_in(login, options);
    if (!token) return complain(token.error());
    login.token = *token;
  }
  const Client client(login);
  const auto who = client.get_as<api::Whoami>("/v1/whoami");
  if (!who) return complain(who.error());
  const Status saved = save_login(login);
  if (!saved) return complain(saved.error());
  std::fprintf(
      stderr,
      "logged in to %s as %s (%s)\n  reclaim run -- python3 train.py   runs something\n",
      login.url.c_str(),
      printable(who->user).c_str(),
      printable(who->role).c_str()
  );
  return 0;
}

int whoami(const Client& client, bool is_json) {
  return show<api::Whoami>(client, "/v1/whoami", is_json, [](const api::Whoami& who) {
    std::printf(
        "%s (%s%s%s)\n",
        printable(who.user).c_str(),
        printable(who.role).c_str(),
        who.lab.empty() ? "" : ", lab ",
        printable(who.lab).c_str()
    );
  });
}

int ps(const Client& client, const PsOptions& options) {
  const std::string path =
      "/v1/jobs?limit=" + std::to_string(options.limit) + (options.all ? "&all=1" : "");
  return show<api::JobList>(client, path, options.is_json, [&](const api::JobList& list) {
    std::vector<std::vector<std::string>> rows;
    const std::int64_t now = wall_now_ms();
    for (const Job& job : list.jobs) {
      rows.push_back(
          {std::to_string(job.number),
           job.id.str(),
           dash(job_name(job)),
           job.owner.str(),
           std::string(to_string(job.state)) + idle_mark(job),
           dash(job.node.str()),
           std::to_string(job.epoch.attempt),
           relative_time(job.submitted_wall_ms, now),
           command_of(job)}
      );
    }
    std::fputs(
        table(
            {"NO", "JOB", "NAME", "USER", "STATE", "NODE", "ATTEMPT", "SUBMITTED", "COMMAND"}, rows
        )
            .c_str(),
        stdout
    );
    if (list.jobs.empty() && !options.all)
      std::fprintf(stderr, "no unfinished jobs; 'reclaim ps -a' shows finished ones\n");
  });
}

int why(const Client& client, const std::string& job, bool is_json) {
  return show<api::WhyAnswer>(
      client,
      job_path(job, "/why"),
      is_json,
      [](const api::WhyAnswer& why) {
        std::printf("%s", printable(why.sentence).c_str());
        if (why.queue_position) std::printf(" (position %u in the queue)", *why.queue_position);
        std::printf("\n");
      }
  );
}

namespace {

/// An array's id begins with "a-", a gang's with "g-", a job's with "j-" (docs/openapi.yaml).
bool is_array(const std::string& name) {
  return name.starts_with("a-");
}

bool is_gang(const std::string& name) {
  return name.starts_with("g-");
}

/// All members of it; answers the exit code.
int stop_gang(const Client& client, const std::string& id, const api::StopRequest& request) {
  const std::string path = "/v1/gangs/" + io::percent_encode(id) + "/stop";
  const auto stopped = client.send_as<api::GangStopped>("POST", path, to_json(request));
  if (!stopped) return complain(stopped.error());
  std::printf(
      "%s %s\n",
      printable(stopped->gang.str()).c_str(),
      stopped->state == GangState::kOver ? "over" : "stopping"
  );
  return 0;
}

/// All tasks of it; answers the exit code.
int stop_array(const Client& client, const std::string& id, const api::StopRequest& request) {
  const std::string path = "/v1/arrays/" + io::percent_encode(id) + "/stop";
  const auto stopped = client.send_as<api::ArrayStopped>("POST", path, to_json(request));
  if (!stopped) return complain(stopped.error());
  std::printf(
      "%s %u jobs stopping, %u were over\n",
      printable(stopped->array).c_str(),
      stopped->stopping,
      stopped->over
  );
  return 0;
}

}  // namespace

int stop_jobs(const Client& client, const StopOptions& options) {
  api::StopRequest request;
  request.saves_first = options.saves_first;
  request.deadline_ms = options.deadline_s * 1000;
  request.reason = options.reason;
  int code = 0;
  for (const std::string& name : options.jobs) {
    if (is_array(name)) {
      if (const int failed = stop_array(client, name, request); failed != 0) code = failed;
      continue;
    }
    if (is_gang(name)) {
      if (const int failed = stop_gang(client, name, request); failed != 0) code = failed;
      continue;
    }
    const auto job = client.send_as<Job>("POST", job_path(name, "/stop"), to_json(request));
    if (!job) {
      code = complain(job.error());
      continue;
    }
    // What runs has a moment to end, or to save first.
    const std::string state(is_terminal(job->state) ? to_string(job->state) : "stopping");
    std::printf("%s %s", printable(job->id.str()).c_str(), state.c_str());
    if (job->gang)
      std::printf(", with all members of gang %s", printable(job->gang->gang.str()).c_str());
    std::printf("\n");
  }
  return code;
}

std::string guests_of(const api::NodeInfo& node) {
  const std::string number = std::to_string(node.telemetry.guests);
  if (node.is_connected) return number;
  return node.telemetry.guests == 0 ? "-" : number + " (last seen)";
}

/// What is lent of what is there.
std::string cores_of(const api::NodeInfo& node) {
  const auto words = [](std::uint32_t milli) {
    char text[16];
    std::snprintf(text, sizeof(text), "%.1f", milli / 1000.0);
    return std::string(text);
  };
  const std::uint32_t all = node.facts.cpu_milli;
  const std::uint32_t lent = lent_cpu_milli(node.contract, node.facts);
  if (!node.contract.lends) return "0 of " + words(all);
  return lent == all ? words(all) : words(lent) + " of " + words(all);
}

std::string memory_of(const api::NodeInfo& node) {
  const std::uint64_t all = node.facts.memory_mib;
  const std::uint64_t lent = lent_memory_mib(node.contract, node.facts);
  return (node.contract.lends ? human_bytes(lent << 20) : "0") + " of " + human_bytes(all << 20);
}

int nodes(const Client& client, bool is_json) {
  return show<api::NodeList>(client, "/v1/nodes", is_json, [](const api::NodeList& list) {
    std::vector<std::vector<std::string>> rows;
    for (const api::NodeInfo& node : list.nodes) {
      std::uint64_t gpu_mib = 0;
      bool has_declared = false;  // by the node's configuration, seen by nobody
      for (const Gpu& gpu : node.facts.gpus) {
        gpu_mib = std::max(gpu_mib, gpu.memory_mib);
        has_declared = has_declared || gpu.is_static;
      }
      rows.push_back(
          {node.id.str(),
           dash(node.facts.hostname),
           node.lab.str(),
           std::string(to_string(node.state)) + (node.is_connected ? "" : " (away)"),
           std::string(to_string(node.lending)),
           std::to_string(node.facts.gpus.size()) +
               (gpu_mib == 0 ? "" : " x " + human_bytes(gpu_mib << 20)) +
               (has_declared ? " (declared)" : ""),
           cores_of(node),
           memory_of(node),
           guests_of(node),
           std::to_string(node.contract.notice_s) + " s",
           dash(listed(node.facts.data_sets))}
      );
    }
    std::fputs(
        table(
            {"NODE",
             "HOST",
             "LAB",
             "STATE",
             "LENDING",
             "GPUS",
             "CORES",
             "MEMORY",
             "GUESTS",
             "NOTICE",
             "DATA"},
            rows
        )
            .c_str(),
        stdout
    );
    if (list.nodes.empty())
      std::fprintf(
          stderr,
          "no nodes yet: reclaim token create --lab LAB, then on the node: reclaim-agent join URL "
          "--token T\n"
      );
  });
}

int show_job(const Client& client, const std::string& job, bool is_json) {
  return show<Job>(client, job_path(job), is_json, [&](const Job& one) {
    const auto line = [](const char* name, const std::string& value) {
      std::printf("%-13s %s\n", name, printable(value).c_str());
    };
    line("job", one.id.str() + " (number " + std::to_string(one.number) + ")");
    line(
        "state", std::string(to_string(one.state)) + (one.reason.empty() ? "" : ": " + one.reason)
    );
    line("owner", one.owner.str());
    if (one.array)
      line(
          "array",
          one.array->array + ", task " + std::to_string(one.array->index) + " of " +
              std::to_string(one.array->tasks) +
              (one.array->at_most == 0
                   ? ""
                   : ", at most " + std::to_string(one.array->at_most) + " at once")
      );
    if (one.gang)
      line(
          "gang",
          one.gang->gang.str() + ", member " + std::to_string(one.gang->rank) + " of " +
              std::to_string(one.gang->size)
      );
    line("command", command_of(one));
    line("image", one.spec.image);
    if (!one.spec.data.empty()) line("data", listed(one.spec.data));
    line("node", dash(one.node.str()));
    line("submitted", absolute_time(one.submitted_wall_ms));
    line("started", absolute_time(one.started_wall_ms));
    line("finished", absolute_time(one.finished_wall_ms));
    line(
        "generation",
        one.durable.generation == 0 ? "none durable yet" : std::to_string(one.durable.generation)
    );
    line("displaced", std::to_string(one.displacements) + " times");
    if (one.idle_since_wall_ms != 0 && !is_terminal(one.state))
      line("uses no GPU", "since " + absolute_time(one.idle_since_wall_ms));
    if (is_terminal(one.state)) line("exit code", std::to_string(one.exit_code));
  });
}

int copy(const Client& client, const std::string& from, const std::string& to) {
  const auto colon = from.find(':');
  if (colon == std::string::npos) {
    return complain(Error{
        ErrorCode::kInvalid,
        "'" + from + "' is not JOB:path",
        "for example reclaim cp 7:model.pt ."});
  }
  std::string prefix = from.substr(colon + 1);
  while (prefix.ends_with('/')) prefix.pop_back();
  if (prefix == ".") prefix.clear();
  const std::string job = from.substr(0, colon);
  if (const std::string wrong = job.empty() ? "which job?" : name_word(job); !wrong.empty()) {
    return complain(Error{
        ErrorCode::kInvalid,
        "'" + from + "' is not JOB:path: " + wrong,
        "for example reclaim cp 7:model.pt ."});
  }
  const auto listing = client.get_as<Listing>(job_path(job, "/outputs"));
  if (!listing) return complain(listing.error());
  const std::string folder = std::filesystem::absolute(to).lexically_normal().string();
  const Status fetched = fetch_listing(client, *listing, prefix, folder);
  return fetched ? 0 : complain(fetched.error());
}

int events(const Client& client, const EventsOptions& options) {
  std::string path = "/v1/events?newest=1&limit=" + std::to_string(options.limit);
  if (!options.job.empty()) path += "&job=" + io::percent_encode(options.job);
  if (!options.node.empty()) path += "&node=" + io::percent_encode(options.node);
  if (!options.kind.empty()) path += "&kind=" + io::percent_encode(options.kind);
  return show<api::EventList>(client, path, options.is_json, [](const api::EventList& list) {
    std::vector<std::vector<std::string>> rows;
    for (auto event = list.events.rbegin(); event != list.events.rend(); ++event) {
      rows.push_back(
          {std::to_string(event->seq),
           absolute_time(event->at_wall_ms),
           event->kind,
           dash(event->job.str()),
           dash(event->node.str()),
           event->message}
      );
    }
    std::fputs(table({"SEQ", "TIME", "KIND", "JOB", "NODE", "WHAT"}, rows).c_str(), stdout);
  });
}

int add_image_command(
    const Client& client,
    const std::string& name,
    const std::string& archive,
    const std::string& base
) {
  std::error_code failed;  // a link is followed; what is not there is said by its name
  const auto real = std::filesystem::canonical(archive, failed);
  const std::string path =
      failed ? std::filesystem::absolute(archive).lexically_normal().string() : real.string();
  const auto image = add_image(client, name, path, base);
  if (!image) return complain(image.error());
  std::printf("%s %s\n", printable(image->name).c_str(), printable(image->digest).c_str());
  return 0;
}

int save_image(const Client& client, const SaveImageOptions& options) {
  const std::string& name = options.name;
  const std::filesystem::path target = std::filesystem::absolute(options.path).lexically_normal();
  const Replace replace = options.is_forced ? Replace::kFile : Replace::kNothing;
  io::RealFileSystem fs;
  // Before the archive comes over the network.
  const Status may = target.has_filename()
                         ? check_may_write(fs, target.string(), replace)
                         : fail(ErrorCode::kInvalid, options.path + " is a folder", "name a file");
  if (!may) return complain(may.error());
  if (!fs.stat(target.parent_path().string()))
    return complain(Error{
        ErrorCode::kNotFound,
        "there is no folder " + target.parent_path().string(),
        "make it, or name another file"});
  const auto list = client.get_as<api::ImageList>("/v1/images");
  if (!list) return complain(list.error());
  const auto found =
      std::find_if(list->images.begin(), list->images.end(), [&](const Image& image) {
        return image.name == name || image.digest == name;
      });
  if (found == list->images.end()) {
    return complain(Error{
        ErrorCode::kNotFound, "no image '" + name + "'", "`reclaim image ls` lists them"});
  }
  ListedFile file;
  file.path = target.filename().string();
  file.mode = 0644;
  file.bytes = found->bytes;
  file.blobs = found->blobs;
  const Status saved = fetch_file(client, file, target.parent_path().string(), replace);
  return saved ? 0 : complain(saved.error());
}

int list_images(const Client& client, bool is_json) {
  return show<api::ImageList>(client, "/v1/images", is_json, [](const api::ImageList& list) {
    std::vector<std::vector<std::string>> rows;
    const std::int64_t now = wall_now_ms();
    for (const Image& image : list.images) {
      rows.push_back(
          {image.name,
           human_bytes(image.bytes),
           relative_time(image.added_wall_ms, now),
           image.added_by.str(),
           image.digest}
      );
    }
    std::fputs(table({"NAME", "SIZE", "ADDED", "BY", "DIGEST"}, rows).c_str(), stdout);
  });
}

int remove_image(const Client& client, const std::string& name) {
  const auto gone = client.send("DELETE", "/v1/images/" + io::percent_encode(name), {});
  return gone ? 0 : complain(gone.error());
}

int create_token(const Client& client, const api::TokenRequest& request, bool is_json) {
  const auto made = client.send_as<api::TokenAnswer>("POST", "/v1/tokens", to_json(request));
  if (!made) return complain(made.error());
  if (is_json) {
    print_json(to_json(*made));
    return 0;
  }
  std::printf("%s\n", printable(made->token).c_str());
  const std::string expires =
      made->info.expires_wall_ms == 0
          ? "never expires"
          : "expires " + relative_time(made->info.expires_wall_ms, wall_now_ms());
  if (request.kind == "join") {
    std::fprintf(
        stderr,
        "one use, %s\n  on the node: reclaim-agent join %s --token TOKEN\n",
        expires.c_str(),
        client.login().url.c_str()
    );
  } else {
    std::fprintf(
        stderr,
        "shown once, %s\n  the user: reclaim login %s --token TOKEN\n",
        expires.c_str(),
        client.login().url.c_str()
    );
  }
  return 0;
}

int list_tokens(const Client& client, bool is_json) {
  return show<api::TokenList>(client, "/v1/tokens", is_json, [](const api::TokenList& list) {
    std::vector<std::vector<std::string>> rows;
    const std::int64_t now = wall_now_ms();
    for (const api::TokenInfo& token : list.tokens) {
      std::string state = "valid";
      if (token.is_revoked) {
        state = "revoked";
      } else if (token.used_wall_ms != 0) {
        state = "used by " + token.used_by;
      } else if (token.expires_wall_ms != 0 && token.expires_wall_ms < now) {
        state = "expired";
      }
      rows.push_back(
          {token.id,
           token.kind,
           dash(token.user),
           dash(token.lab),
           token.role,
           token.expires_wall_ms == 0 ? "never" : relative_time(token.expires_wall_ms, now),
           state}
      );
    }
    std::fputs(
        table({"TOKEN", "KIND", "USER", "LAB", "ROLE", "EXPIRES", "STATE"}, rows).c_str(), stdout
    );
  });
}

int revoke_token(const Client& client, const std::string& id) {
  const auto gone = client.send("DELETE", "/v1/tokens/" + io::percent_encode(id), {});
  return gone ? 0 : complain(gone.error());
}

}  // namespace rn::cli
