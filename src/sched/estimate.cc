// SPDX-License-Identifier: Apache-2.0
#include "sched/estimate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/assert.h"

namespace rn::sched {

namespace {

constexpr double kWiderCountsAs = 3;       ///< jobs, of a kind's wider kind
constexpr std::size_t kShapeBytes = 1024;  ///< of a word
constexpr double kRounding = 1e-9;         ///< of shares in ranks
constexpr std::size_t kKinds = std::size(EnumWords<Likeness>::kWords);

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_number(std::string_view text) {
  const std::string whole(text);
  char* end = nullptr;
  (void)std::strtod(whole.c_str(), &end);
  return !whole.empty() && end == whole.c_str() + whole.size();
}

/// A path's last name, with '#' for numbers.
std::string shape_of_value(std::string_view text) {
  while (text.size() > 1 && text.back() == '/') text.remove_suffix(1);
  if (const auto slash = text.rfind('/'); slash != std::string_view::npos)
    text.remove_prefix(slash + 1);
  if (is_number(text)) return "#";
  std::string shape;
  for (const char c : text) {
    if (!is_digit(c)) {
      shape += c;
    } else if (shape.empty() || shape.back() != '#') {
      shape += '#';
    }
  }
  return shape;
}

/// Also of --name=value.
std::string shape_of_word(std::string_view word) {
  const auto equals = word.find('=');
  if (equals == std::string_view::npos) return shape_of_value(word);
  return shape_of_value(word.substr(0, equals)) + "=" + shape_of_value(word.substr(equals + 1));
}

/// In logarithms.
struct Sum {
  double total = 0;
  double count = 0;
};

/// One sum for each kind that a job belongs to, the narrowest first.
using Places = std::array<std::size_t, kKinds>;

/// A job of the past: what it used, and its kinds.
struct Known {
  double used = 0;
  Places at{};
};

class History {
 public:
  History(const JobKind& wanted, const std::vector<PastUse>& past) : wanted_(places_of(wanted)) {
    for (const PastUse& one : past) {
      RN_ASSERT(one.used > 0, "a job that used nothing says nothing");
      known_.push_back({std::log(one.used), places_of(one.kind)});
      for (const std::size_t at : known_.back().at) {
        sums_[at].total += known_.back().used;
        ++sums_[at].count;
      }
    }
  }

  std::size_t count(Likeness likeness) const {
    return static_cast<std::size_t>(sums_[wanted_[place(likeness)]].count);
  }

  /// What the wanted job would use if it were as far off its centre as each of these jobs, sorted.
  std::vector<double> seen_by(Likeness likeness) const {
    std::vector<double> seen;
    for (const Known& one : known_) {
      if (one.at[place(likeness)] == wanted_[place(likeness)])
        seen.push_back(centre(wanted_, one) + one.used - centre(one.at, one));
    }
    std::sort(seen.begin(), seen.end());
    return seen;
  }

 private:
  static constexpr std::size_t place(Likeness likeness) {
    return static_cast<std::size_t>(likeness);
  }

  std::size_t place_of(std::array<std::string, 3> key) {
    const auto [found, is_new] = index_.try_emplace(std::move(key), sums_.size());
    if (is_new) sums_.emplace_back();
    return found->second;
  }

  /// What a wider kind does not say is empty, and nothing that is said is.
  Places places_of(const JobKind& kind) {
    const std::string& user = kind.user.str();
    return {
        place_of({"u" + user, "i" + kind.image, "c" + kind.command}),
        place_of({"u" + user, "i" + kind.image, ""}),
        place_of({"", "i" + kind.image, ""}),
        place_of({"", "", ""})};
  }

  /// Of jobs with these kinds, as the others tell it.
  double centre(const Places& at, const Known& without) const {
    double mean = 0;
    double weight = 0;  // of the wider kind: none beyond the widest
    for (std::size_t kind = kKinds; kind-- > 0;) {
      Sum sum = sums_[at[kind]];
      if (without.at[kind] == at[kind]) {
        sum.total -= without.used;
        --sum.count;
      }
      if (sum.count + weight > 0) mean = (sum.total + weight * mean) / (sum.count + weight);
      weight = kWiderCountsAs;
    }
    return mean;
  }

  std::map<std::array<std::string, 3>, std::size_t> index_;
  std::vector<Sum> sums_;
  Places wanted_{};
  std::vector<Known> known_;
};

}  // namespace

std::string command_shape(const std::vector<std::string>& command) {
  std::string shape;
  for (const std::string& words : command) {
    std::string_view rest(words);
    if (rest.size() > kShapeBytes) rest.remove_prefix(rest.size() - kShapeBytes);
    while (!rest.empty()) {
      const auto end =
          static_cast<std::size_t>(std::find_if(rest.begin(), rest.end(), is_blank) - rest.begin());
      if (end > 0) shape += (shape.empty() ? "" : " ") + shape_of_word(rest.substr(0, end));
      rest.remove_prefix(std::min(rest.size(), end + 1));
    }
  }
  return shape;
}

std::uint32_t jobs_needed(double share) {
  RN_ASSERT(share > 0 && share < 1, "a share of all jobs");
  return static_cast<std::uint32_t>(std::ceil(2 / (1 - share) - 1 - kRounding));
}

Estimate estimate(const JobKind& wanted, const std::vector<PastUse>& past, double share) {
  const History history(wanted, past);
  Estimate out;
  const std::uint32_t needed = jobs_needed(share);
  for (const Likeness likeness :
       {Likeness::kCommand, Likeness::kUserAndImage, Likeness::kImage, Likeness::kSite}) {
    out.likeness = likeness;
    out.jobs = static_cast<std::uint32_t>(history.count(likeness));
    if (out.jobs < needed) continue;
    const std::vector<double> seen = history.seen_by(likeness);
    const double beyond = (1 - share) / 2 * static_cast<double>(seen.size() + 1);
    const auto below = static_cast<std::size_t>(beyond + kRounding);  // at least 1
    out.is_known = true;
    out.low = std::exp(seen[below - 1]);
    out.typical = std::exp(seen[seen.size() / 2]);
    out.high = std::exp(seen[seen.size() - below]);
    return out;
  }
  return out;
}

}  // namespace rn::sched
