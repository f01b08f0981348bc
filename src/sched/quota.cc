// SPDX-License-Identifier: Apache-2.0
#include "sched/quota.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>

#include "base/counted.h"

namespace rn::sched {

namespace {

/// Use is counted by the second, and not exactly: a minute of one GPU is nobody's reason to wait.
constexpr double kHoursSlack = 1.0 / 60;

char small_letter(char c) {
  return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}

std::string number_words(double value) {
  char text[48];
  std::snprintf(text, sizeof text, "%.*f", value == std::floor(value) ? 0 : 1, value);
  return text;
}

std::string gpu_word(const Quota& quota) {
  return quota.gpu_model.empty() ? "GPU" : quota.gpu_model + " GPU";
}

std::string hours_word(const Quota& quota) {
  return quota.gpu_model.empty() ? "GPU-hours" : "GPU-hours on " + quota.gpu_model;
}

std::string window_words(std::uint32_t window_s) {
  if (window_s % 86'400 == 0) return std::to_string(window_s / 86'400) + " d";
  if (window_s % 3600 == 0) return std::to_string(window_s / 3600) + " h";
  return std::to_string(window_s / 60) + " min";
}

std::string gpus_not_now(
    const Quota& quota, const std::string& who, const QuotaCount& count, const QuotaNeed& need
) {
  const std::uint64_t wanted = std::uint64_t{count.gpus} + need.gpus;
  if (!quota.gpus || wanted <= *quota.gpus) return {};
  std::string text = who + " runs " + std::to_string(count.gpus) + " of " +
                     counted(*quota.gpus, gpu_word(quota).c_str());
  if (count.gpus < *quota.gpus) text += ", and this job needs " + std::to_string(need.gpus);
  return text;
}

std::string hours_not_now(
    const Quota& quota, const std::string& who, const QuotaCount& count, const QuotaNeed& need
) {
  if (!quota.gpu_hours) return {};
  const double all = *quota.gpu_hours;
  const bool is_used_up = count.gpu_hours >= all;
  const double wanted = count.gpu_hours + count.promised_gpu_hours + need.gpu_hours;
  if (!is_used_up && (need.gpu_hours <= 0 || wanted <= all + kHoursSlack)) return {};
  std::string text = who + " has used " + number_words(count.gpu_hours) + " of " +
                     number_words(all) + " " + hours_word(quota) + " of the last " +
                     window_words(quota.window_s);
  if (is_used_up) return text;
  if (count.promised_gpu_hours > 0)
    text += ", what runs may use " + number_words(count.promised_gpu_hours) + " more";
  return text + ", and this job may use " + number_words(need.gpu_hours);
}

}  // namespace

bool is_gpu_model(std::string_view pattern, std::string_view model) {
  const auto found =
      std::search(model.begin(), model.end(), pattern.begin(), pattern.end(), [](char a, char b) {
        return small_letter(a) == small_letter(b);
      });
  return pattern.empty() || found != model.end();
}

std::string never_words(const Quota& quota, std::string_view who, const QuotaNeed& need) {
  if (!quota.gpu_model.empty()) return {};
  const std::string name(who);
  if (quota.running && *quota.running == 0) return name + " may run no job";
  if (need.gpus == 0) return {};
  if (quota.gpus && need.gpus > *quota.gpus)
    return name + " may have " + counted(*quota.gpus, "GPU") + " at once, and this job asks for " +
           std::to_string(need.gpus);
  if (!quota.gpu_hours) return {};
  const std::string all = name + " may use " + number_words(*quota.gpu_hours) + " GPU-hours in " +
                          window_words(quota.window_s);
  if (*quota.gpu_hours <= 0) return all + ", and this job asks for GPUs";
  if (need.gpu_hours > *quota.gpu_hours + kHoursSlack)
    return all + ", and this job may use " + number_words(need.gpu_hours);
  return {};
}

std::string not_now_words(
    const Quota& quota, std::string_view who, const QuotaCount& count, const QuotaNeed& need
) {
  const std::string name(who);
  if (quota.running && count.running >= *quota.running)
    return name + " runs " + std::to_string(count.running) + " of " +
           counted(*quota.running, "job");
  if (need.gpus == 0) return {};
  if (std::string words = gpus_not_now(quota, name, count, need); !words.empty()) return words;
  return hours_not_now(quota, name, count, need);
}

std::string too_many_words(
    const Quota& quota, std::string_view who, const QuotaCount& count, std::uint64_t more
) {
  if (!quota.jobs || count.jobs + more <= *quota.jobs) return {};
  std::string text = std::string(who) + " has " + std::to_string(count.jobs) + " of " +
                     counted(*quota.jobs, "job") + " that may wait and run";
  if (more > 1) text += ", and asks for " + std::to_string(more) + " more";
  return text;
}

std::string quota_subject_words(std::string_view subject) {
  constexpr std::string_view kUser = "user:";
  constexpr std::string_view kLab = "lab:";
  if (subject.starts_with(kUser)) return std::string(subject.substr(kUser.size()));
  if (subject.starts_with(kLab)) return "lab " + std::string(subject.substr(kLab.size()));
  return std::string(subject);
}

}  // namespace rn::sched
