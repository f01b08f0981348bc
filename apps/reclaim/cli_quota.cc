// SPDX-License-Identifier: Apache-2.0
#include "cli_quota.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "cli_job_file.h"
#include "cli_print.h"

#include "base/printable.h"
#include "io/http.h"
#include "model/codec.h"

namespace rn::cli {

namespace {

constexpr const char* kQuotas = "/v1/quotas";
constexpr const char* kHoursExample = "for example 200/7d; without a time it is of the last 7 days";

std::string quota_path(const std::string& subject) {
  return std::string(kQuotas) + "/" + io::percent_encode(subject);
}

std::string hours_text(double hours) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.*f", hours == std::floor(hours) ? 0 : 1, hours);
  return text;
}

std::string of_limit(std::uint32_t used, const std::optional<std::uint32_t>& limit) {
  return std::to_string(used) + (limit ? " of " + std::to_string(*limit) : "");
}

std::string of_hours(const api::QuotaUse& use) {
  return hours_text(use.gpu_hours_used) +
         (use.gpu_hours ? " of " + hours_text(*use.gpu_hours) : "") + " in " +
         duration_words(use.window_s);
}

/// Digits, and at most one point between them.
Result<double> hours_number(const std::string& text) {
  const bool is_plain = !text.empty() && text.size() <= 12 &&
                        text.find_first_not_of("0123456789.") == std::string::npos;
  char* end = nullptr;
  const double value = is_plain ? std::strtod(text.c_str(), &end) : -1;
  if (is_plain && end == text.c_str() + text.size() && std::isfinite(value)) return value;
  return fail(
      ErrorCode::kInvalid,
      "--gpu-hours: '" + printable(text) + "' is no number of hours",
      kHoursExample
  );
}

}  // namespace

Result<api::QuotaRequest> quota_request(const QuotaOptions& options) {
  api::QuotaRequest request;
  request.gpu_model = options.model;
  request.gpus = options.gpus;
  request.running = options.running;
  request.jobs = options.jobs;
  if (!options.idle_stop.empty()) {
    const auto after_s = parse_duration_s(options.idle_stop);
    if (!after_s) return fail(after_s.error().with("--idle-stop"));
    request.idle_stop_s = *after_s;
  }
  if (options.gpu_hours.empty()) return request;
  const auto slash = options.gpu_hours.find('/');
  RN_TRY(request.gpu_hours, hours_number(options.gpu_hours.substr(0, slash)));
  if (slash == std::string::npos) return request;
  const auto window = parse_duration_s(options.gpu_hours.substr(slash + 1));
  if (!window)
    return fail(ErrorCode::kInvalid, "--gpu-hours: " + window.error().message, kHoursExample);
  request.window_s = *window;
  return request;
}

std::string table_of_quotas(const api::QuotaList& list) {
  std::vector<std::vector<std::string>> rows;
  for (const api::QuotaUse& use : list.uses)
    rows.push_back(
        {use.subject,
         dash(use.gpu_model),
         of_limit(use.gpus_used, use.gpus),
         use.gpu_model.empty() ? of_limit(use.running_used, use.running) : "-",
         use.gpu_model.empty() ? of_limit(use.jobs_used, use.jobs) : "-",
         of_hours(use),
         dash(use.rule == use.subject ? "" : use.rule)}
    );
  return table({"WHO", "MODEL", "GPUS", "RUNNING", "JOBS", "GPU-HOURS", "AS"}, rows);
}

int show_quotas(const Client& client, bool is_json) {
  const auto text = client.get(kQuotas);
  if (!text) return complain(text.error());
  if (is_json) {
    print_json(*text);
    return 0;
  }
  const auto list = from_json<api::QuotaList>(*text, Unknown::kLenient);
  if (!list) return complain(list.error());
  std::fputs(table_of_quotas(*list).c_str(), stdout);
  for (const Quota& quota : list->quotas) {
    if (quota.idle_stop_s)
      std::printf(
          "%s: jobs that use nothing are stopped after %s, unless they have an idle_stop of their "
          "own\n",
          printable(quota.subject).c_str(),
          duration_words(*quota.idle_stop_s).c_str()
      );
    const bool is_of_all = quota.subject.ends_with(":*");
    if (is_of_all)
      std::fprintf(
          stderr, "%s is of each that has none of its own\n", printable(quota.subject).c_str()
      );
  }
  if (list->quotas.empty()) std::fprintf(stderr, "no quota is set: nothing bounds what is used\n");
  return 0;
}

int set_quota(const Client& client, const QuotaOptions& options) {
  const auto request = quota_request(options);
  if (!request) return complain(request.error());
  const auto set = client.send_as<Quota>("PUT", quota_path(options.subject), to_json(*request));
  if (!set) return complain(set.error());
  if (options.is_json) {
    print_json(to_json(*set));
    return 0;
  }
  std::printf("%s is set\n", printable(set->subject).c_str());
  return 0;
}

int remove_quota(const Client& client, const QuotaOptions& options) {
  const std::string query =
      options.model.empty() ? "" : "?model=" + io::percent_encode(options.model);
  const auto removed = client.send("DELETE", quota_path(options.subject) + query, std::string());
  if (!removed) return complain(removed.error());
  std::printf("%s is removed\n", printable(options.subject).c_str());
  return 0;
}

}  // namespace rn::cli
