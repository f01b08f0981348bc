// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/step_name.h"

#include <algorithm>
#include <array>
#include <string>

namespace rn::checkpoint {

namespace {

constexpr std::size_t kStepDigitsMost = 18;  // more do not fit, and are hashes

/// What may stand before the number. A name that says "step" means that one, whatever else it
/// counts.
struct StepWord {
  std::string_view text;
  /// A second number behind the first one leaves open which of them counts steps, or it is a date.
  bool stands_alone = false;
};

constexpr std::array<StepWord, 6> kStepWords = {
    {{"step", false},
     {"steps", false},
     {"iteration", false},
     {"iter", false},
     {"checkpoint", true},
     {"ckpt", true}}};

bool is_small_letter(char c) {
  return c >= 'a' && c <= 'z';
}

bool is_decimal(char c) {
  return c >= '0' && c <= '9';
}

std::string with_small_letters(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

/// The number at the beginning of `rest`, behind one sign that joins it to its word. -1 for none.
std::int64_t number_of(std::string_view rest, bool stands_alone) {
  constexpr std::string_view kJoins = "=-_.";
  if (!rest.empty() && kJoins.find(rest.front()) != std::string_view::npos) rest.remove_prefix(1);
  std::size_t digits = 0;
  while (digits < rest.size() && is_decimal(rest[digits])) ++digits;
  if (digits == 0 || digits > kStepDigitsMost) return -1;
  const std::string_view after = rest.substr(digits);
  if (!after.empty() && is_small_letter(after.front())) return -1;  // "10k", "3of8"
  if (after.size() > 1 && is_decimal(after[1])) {
    if (after.front() == '.') return -1;  // "0.87"
    if (stands_alone && (after.front() == '-' || after.front() == '_')) return -1;
  }
  std::int64_t number = 0;
  for (const char c : rest.substr(0, digits)) number = 10 * number + (c - '0');
  return number;
}

std::int64_t step_in_name(std::string_view part) {
  const std::string name = with_small_letters(part);
  if (name.starts_with("hpc_ckpt")) return -1;  // Lightning numbers its saves there
  for (const StepWord& word : kStepWords) {
    auto at = name.rfind(word.text);
    while (at != std::string::npos) {
      const bool begins_here = at == 0 || !is_small_letter(name[at - 1]);
      const std::string_view rest = std::string_view(name).substr(at + word.text.size());
      const std::int64_t number = begins_here ? number_of(rest, word.stands_alone) : -1;
      if (number >= 0) return number;
      if (at == 0) break;
      at = name.rfind(word.text, at - 1);
    }
  }
  return -1;
}

}  // namespace

std::int64_t step_in_path(std::string_view path) {
  while (!path.empty()) {
    const auto slash = path.rfind('/');
    const std::size_t begin = slash == std::string_view::npos ? 0 : slash + 1;
    const std::int64_t step = step_in_name(path.substr(begin));
    if (step >= 0) return step;
    path = path.substr(0, begin == 0 ? 0 : begin - 1);
  }
  return -1;
}

std::int64_t step_of_save(const Unit& unit, const SeenFiles& seen) {
  std::int64_t step = step_in_path(unit.path);
  if (step >= 0) return step;
  for (const auto& [path, state] : seen) step = std::max(step, step_in_path(path));
  return step;
}

}  // namespace rn::checkpoint
