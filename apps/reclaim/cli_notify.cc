// SPDX-License-Identifier: Apache-2.0
#include "cli_notify.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <thread>

#include "cli_print.h"

#include "base/printable.h"
#include "io/http.h"
#include "model/codec.h"

namespace rn::cli {

namespace {

constexpr const char* kRules = "/v1/notifications";
constexpr std::chrono::seconds kTestPatience{60};
constexpr std::chrono::milliseconds kTestLook{300};
constexpr std::size_t kErrorColumns = 60;

std::string rule_path(const std::string& rule, const char* rest = "") {
  return std::string(kRules) + "/" + io::percent_encode(rule) + rest;
}

std::string words_of_rule(const std::vector<NotifyWord>& words) {
  std::vector<std::string> texts;
  for (const NotifyWord word : words) texts.emplace_back(to_string(word));
  return listed(texts);
}

const std::string& receiver_of(const api::NotifyRule& rule) {
  return rule.mail.empty() ? rule.webhook : rule.mail;
}

std::string state_of(const api::NotifyRule& rule) {
  if (!rule.is_confirmed) return "not confirmed";
  std::string text = rule.last_error.empty() ? "ok" : rule.last_error;
  if (rule.waiting > 0) text = std::to_string(rule.waiting) + " waiting, " + text;
  if (rule.held_back > 0) text = std::to_string(rule.held_back) + " held back, " + text;
  return shorten(text, kErrorColumns);
}

Result<std::vector<NotifyWord>> read_words(const std::vector<std::string>& texts) {
  std::vector<NotifyWord> words;
  const auto& all = EnumWords<NotifyWord>::kWords;
  for (const std::string& text : texts) {
    const auto found = std::find(std::begin(all), std::end(all), text);
    if (found == std::end(all)) {
      std::string known;
      for (const auto word : all) known += (known.empty() ? "" : ", ") + std::string(word);
      return fail(
          ErrorCode::kInvalid,
          "--on: '" + printable(text) + "' is none of " + known,
          "name some of these"
      );
    }
    words.push_back(static_cast<NotifyWord>(found - std::begin(all)));
  }
  return words;
}

Result<api::NotifyAnswer> post(const Client& client, const api::NotifyRequest& request) {
  return client.send_as<api::NotifyAnswer>("POST", kRules, to_json(request));
}

void say_next(const api::NotifyRule& rule) {
  if (rule.is_confirmed) return;
  std::fprintf(
      stderr,
      "a code was sent to %s; nothing else is before it is given:\n  next: reclaim notify confirm "
      "%s CODE\n",
      printable(rule.mail).c_str(),
      printable(rule.id).c_str()
  );
}

Result<api::NotifyRule> find_rule(const Client& client, const std::string& id) {
  RN_TRY(const auto list, client.get_as<api::NotifyList>(kRules));
  for (const api::NotifyRule& rule : list.rules)
    if (rule.id == id) return rule;
  return fail(ErrorCode::kNotFound, "no rule " + id, "'reclaim notify list' shows yours");
}

}  // namespace

std::string table_of_rules(const api::NotifyList& list, std::int64_t now_wall_ms) {
  std::vector<std::vector<std::string>> rows;
  for (const api::NotifyRule& rule : list.rules) {
    rows.push_back(
        {rule.id,
         rule.user.str(),
         receiver_of(rule),
         words_of_rule(rule.on),
         rule.job_number == 0 ? "all" : std::to_string(rule.job_number),
         std::to_string(rule.sent),
         relative_time(rule.last_sent_wall_ms, now_wall_ms),
         state_of(rule)}
    );
  }
  return table({"RULE", "USER", "TO", "ON", "JOB", "SENT", "LAST", "STATE"}, rows);
}

Result<api::NotifyRequest> notify_request(const std::string& receiver) {
  api::NotifyRequest request;
  if (receiver.find("://") != std::string::npos) {
    request.webhook = receiver;
  } else if (receiver.find('@') != std::string::npos) {
    request.mail = receiver;
  } else {
    return fail(
        ErrorCode::kInvalid,
        "'" + printable(receiver) + "' is neither an address of mail nor the URL of a webhook",
        "for example ann@example.org"
    );
  }
  return request;
}

void notify_of_job(
    const Client& client, const JobId& job, const std::vector<std::string>& receivers
) {
  for (const std::string& receiver : receivers) {
    auto request = notify_request(receiver);
    if (request) request->job = job.str();
    const auto made =
        request ? post(client, *request) : Result<api::NotifyAnswer>(fail(request.error()));
    if (made) {
      say_next(made->rule);
      continue;
    }
    std::fprintf(
        stderr,
        "warning: the job is submitted, and nobody is told of it: %s\n  next: %s\n",
        printable_lines(made.error().message).c_str(),
        printable_lines(made.error().hint).c_str()
    );
  }
}

int add_notification(const Client& client, const NotifyOptions& options) {
  api::NotifyRequest request;
  request.mail = options.mail;
  request.webhook = options.webhook;
  request.job = options.job;
  auto words = read_words(options.on);
  if (!words) return complain(words.error());
  request.on = *std::move(words);
  const auto made = post(client, request);
  if (!made) return complain(made.error());
  if (options.is_json) {
    print_json(to_json(*made));
    return 0;
  }
  std::printf("%s\n", printable(made->rule.id).c_str());
  if (!made->secret.empty())
    std::fprintf(
        stderr,
        "what it is sent is signed by this secret, shown once (docs/notifications.md): %s\n",
        printable(made->secret).c_str()
    );
  say_next(made->rule);
  if (made->rule.is_confirmed)
    std::fprintf(
        stderr, "  reclaim notify test %s   sends a test\n", printable(made->rule.id).c_str()
    );
  return 0;
}

int list_notifications(const Client& client, const NotifyOptions& options) {
  const auto text = client.get(std::string(kRules) + (options.all ? "?all=1" : ""));
  if (!text) return complain(text.error());
  if (options.is_json) {
    print_json(*text);
    return 0;
  }
  const auto list = from_json<api::NotifyList>(*text, Unknown::kLenient);
  if (!list) return complain(list.error());
  std::fputs(table_of_rules(*list, wall_now_ms()).c_str(), stdout);
  if (list->rules.empty())
    std::fprintf(stderr, "nobody is told of anything; 'reclaim notify add --help' says how\n");
  return 0;
}

int confirm_notification(const Client& client, const NotifyOptions& options) {
  api::NotifyConfirm body;
  body.code = options.code;
  const auto rule =
      client.send_as<api::NotifyRule>("POST", rule_path(options.rule, "/confirm"), to_json(body));
  if (!rule) return complain(rule.error());
  std::printf("%s is confirmed\n", printable(rule->mail).c_str());
  return 0;
}

int test_notification(const Client& client, const NotifyOptions& options) {
  const auto before = find_rule(client, options.rule);
  if (!before) return complain(before.error());
  const auto sent = client.send("POST", rule_path(options.rule, "/test"), std::string());
  if (!sent) return complain(sent.error());
  const auto until = std::chrono::steady_clock::now() + kTestPatience;
  while (std::chrono::steady_clock::now() < until) {
    const auto rule = find_rule(client, options.rule);
    if (!rule) return complain(rule.error());
    if (rule->sent > before->sent) {
      std::printf("%s has taken it\n", printable(receiver_of(*rule)).c_str());
      return 0;
    }
    if (rule->last_error_wall_ms > before->last_error_wall_ms)
      return complain(Error{
          ErrorCode::kUnavailable,
          receiver_of(*rule) + " has not taken it: " + rule->last_error,
          rule->waiting > 0 ? "it is tried again: 'reclaim notify list'"
                            : "correct the receiver: remove the rule and add another one"});
    std::this_thread::sleep_for(kTestLook);
  }
  return complain(Error{
      ErrorCode::kTimeout, "it is not sent yet", "'reclaim notify list' shows what becomes of it"});
}

int remove_notification(const Client& client, const NotifyOptions& options) {
  const auto removed = client.send("DELETE", rule_path(options.rule), std::string());
  if (!removed) return complain(removed.error());
  std::printf("%s is removed\n", printable(options.rule).c_str());
  return 0;
}

}  // namespace rn::cli
