// SPDX-License-Identifier: Apache-2.0
#include "cli_complete.h"

#include <csignal>
#include <cstdio>
#include <set>

#include "cli_client.h"
#include "cli_config.h"
#include "cli_print.h"
#include "command_line.h"
#include <sys/time.h>
#include <unistd.h>

#include "base/printable.h"
#include "io/http_client.h"
#include "model/codec.h"

namespace rn::cli {

namespace {

/// Bash expands words that it is offered.
bool may_complete(const std::string& word, const std::string& prefix) {
  return !word.empty() && word.starts_with(prefix) && name_word(word).empty();
}

std::vector<Completion> completed_names(
    const std::set<std::string>& names, const std::string& prefix, const std::string& what
) {
  std::vector<Completion> words;
  for (const std::string& name : names) {
    if (may_complete(name, prefix)) words.push_back({name, what});
  }
  return words;
}

extern "C" void end_silently(int /*signal*/) {
  ::_exit(0);
}

/// Name resolution, a file system that hangs, a coordinator that does: none of them is waited for.
void end_at_deadline() {
  struct sigaction action = {};
  action.sa_handler = end_silently;
  (void)::sigaction(SIGALRM, &action, nullptr);
  itimerval timer = {};
  timer.it_value.tv_usec = kCompletionDeadlineMs * 1000;
  (void)::setitimer(ITIMER_REAL, &timer, nullptr);
}

template <class T>
Result<T> ask_quickly(const Client& client, const std::string& path) {
  io::HttpCall call = client.call("GET", path);
  call.timeout = call.connect_timeout = milliseconds(kCompletionDeadlineMs);
  RN_TRY(const io::HttpReply reply, io::succeed(io::perform_blocking(call)));
  return from_json<T>(reply.body, Unknown::kLenient);
}

Result<std::vector<Completion>> completions(const std::string& kind, const std::string& prefix) {
  RN_TRY(const Login login, load_login());
  const Client client(login);
  if (kind == "job" || kind == "job-path" || kind == "unfinished-job") {
    const bool only_unfinished = kind == "unfinished-job";
    const std::string path = only_unfinished ? "/v1/jobs?limit=200" : "/v1/jobs?limit=200&all=1";
    RN_TRY(const auto list, ask_quickly<api::JobList>(client, path));
    auto words = completed_jobs(list, prefix, only_unfinished);
    if (kind == "job-path") {
      for (Completion& one : words) one.word += ":";
    }
    return words;
  }
  if (kind == "image") {
    RN_TRY(const auto list, ask_quickly<api::ImageList>(client, "/v1/images"));
    return completed_images(list, prefix);
  }
  RN_TRY(const auto list, ask_quickly<api::NodeList>(client, "/v1/nodes"));
  if (kind == "lab") return completed_labs(list, prefix);
  if (kind == "data") return completed_data(list, prefix);
  return completed_nodes(list, prefix, kind == "node");
}

}  // namespace

std::vector<Completion> completed_jobs(
    const api::JobList& list, const std::string& prefix, bool only_unfinished
) {
  const bool is_number =
      !prefix.empty() && prefix.find_first_not_of("0123456789") == std::string::npos;
  std::vector<Completion> words;
  for (const Job& job : list.jobs) {
    const std::string word = is_number ? std::to_string(job.number) : job.id.str();
    if ((only_unfinished && is_terminal(job.state)) || !may_complete(word, prefix)) continue;
    const std::string name = job.spec.name.empty() ? "" : " " + shorten(job.spec.name, 30);
    words.push_back(
        {word, std::to_string(job.number) + " " + std::string(to_string(job.state)) + name}
    );
  }
  return words;
}

std::vector<Completion> completed_nodes(
    const api::NodeList& list, const std::string& prefix, bool with_hosts
) {
  std::vector<Completion> words;
  for (const api::NodeInfo& node : list.nodes) {
    if (node.is_revoked) continue;
    const std::string& host = node.facts.hostname;
    if (may_complete(node.id.str(), prefix))
      words.push_back({node.id.str(), node.lab.str() + "/" + shorten(host, 30)});
    if (with_hosts && may_complete(host, prefix)) words.push_back({host, node.id.str()});
  }
  return words;
}

std::vector<Completion> completed_labs(const api::NodeList& list, const std::string& prefix) {
  std::set<std::string> labs;
  for (const api::NodeInfo& node : list.nodes) labs.insert(node.lab.str());
  return completed_names(labs, prefix, "lab");
}

std::vector<Completion> completed_data(const api::NodeList& list, const std::string& prefix) {
  std::set<std::string> sets;
  for (const api::NodeInfo& node : list.nodes)
    sets.insert(node.facts.data_sets.begin(), node.facts.data_sets.end());
  return completed_names(sets, prefix, "data set");
}

std::vector<Completion> completed_images(const api::ImageList& list, const std::string& prefix) {
  std::set<std::string> names;
  for (const Image& image : list.images) names.insert(image.name);
  return completed_names(names, prefix, "image");
}

int complete_live(const std::string& kind, const std::string& prefix) {
  end_at_deadline();
  const auto words = completions(kind, prefix);
  if (!words) return 0;
  std::string text;
  for (const Completion& one : *words) text += one.word + "\t" + printable(one.what) + "\n";
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace rn::cli
