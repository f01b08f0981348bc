// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

// How values of an HTCondor submit file are written. Pure; errors are kInvalid without the line.
namespace rn::cli {

/// Stands for $(Cluster) within what was filled in: the number is known only when the job runs. No
/// submit file that was read has this character.
inline constexpr char kCondorCluster = '\x01';

inline constexpr std::size_t kCondorValueBytes = 64 << 10;

/// Fills in macros: $(NAME), $(NAME:DEFAULT), $(DOLLAR), $ENV(NAME), $F[pnx](NAME).
class CondorMacros {
 public:
  using Variable = std::function<std::optional<std::string>(const std::string& name)>;

  explicit CondorMacros(Variable variable) : variable_(std::move(variable)) {}

  /// A line of the file. What it says of itself, `A = $(A) more`, is filled in now.
  Status set(const std::string& name, const std::string& value);

  /// What counts before lines of the same name: $(Process), variables of a queue.
  void set_own(const std::string& name, const std::string& value) { own_[name] = value; }

  void clear_own() { own_.clear(); }

  /// At most kCondorValueBytes.
  Result<std::string> fill(std::string_view text);

  bool is_used(const std::string& name) const { return used_.contains(name); }

  /// Names that were asked for and say nothing, once each.
  std::set<std::string> take_undefined() { return std::exchange(undefined_, {}); }

 private:
  const std::string* find(const std::string& name) const;
  Status fill_into(std::string_view text, int depth, std::string& out);
  Status fill_one(std::string_view function, std::string_view body, int depth, std::string& out);
  Status fill_name(std::string_view body, int depth, std::string& out);
  Status fill_variable(std::string_view body, std::string& out) const;
  Status fill_file_part(std::string_view parts, std::string_view body, int depth, std::string& out);

  Variable variable_;
  std::map<std::string, std::string> lines_;
  std::map<std::string, std::string> own_;
  std::set<std::string> used_;
  std::set<std::string> undefined_;
  std::size_t steps_ = 0;
};

/// Of `arguments`: in the new way, all in double quotes, single quotes keep blanks together and a
/// doubled quote is one; in the old way blanks separate and \" is a double quote.
Result<std::vector<std::string>> condor_arguments(const std::string& text);

/// Of `environment`: the new way as above, or the old one: "A=1;B=2".
Result<std::vector<std::pair<std::string, std::string>>> condor_environment(const std::string& text
);

/// Items between commas, or also blanks; without those that are empty.
std::vector<std::string> condor_list(const std::string& text, bool blanks_separate = false);

/// Without one pair of double quotes around it.
std::string condor_unquoted(const std::string& text);

/// For a shell: $(Cluster) becomes what `cluster` is to it, all else stays as it is.
std::string condor_shell_word(const std::string& text, const std::string& cluster);

/// "true", "yes", "t", "1" and their opposites; nothing = neither.
std::optional<bool> condor_flag(const std::string& text);

}  // namespace rn::cli
