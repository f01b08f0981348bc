// SPDX-License-Identifier: Apache-2.0
#include "warden/guest_ids.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <sstream>
#include <vector>

#include <fcntl.h>
#include <sys/file.h>

#include "base/whole_number.h"
#include "io/errno_error.h"
#include "io/fd.h"
#include "io/patiently.h"
#include "io/read_text.h"
#include "warden/verify.h"

namespace rn::warden {

namespace {

using io::read_text;

constexpr std::uint32_t kFirstRange = 1'048'576;
constexpr milliseconds kListPatience = seconds(10);

/// One line of the list: "FIRST LAB STATE".
struct ListedIds {
  std::uint32_t first = 0;
  std::string lab;
  std::string state;
};

bool is_range(std::uint32_t first) {
  return first >= kFirstRange && first % kIdsPerLab == 0 &&
         (first - kFirstRange) / kIdsPerLab < kIdRanges;
}

std::optional<std::uint32_t> range_from(const std::string& text) {
  const auto first = whole_number<std::uint32_t>(text);
  if (!first || !is_range(*first)) return std::nullopt;
  return *first;
}

/// What is no line is left out: each lab's own state says what it has.
std::vector<ListedIds> read_list(const std::string& path) {
  std::vector<ListedIds> list;
  std::istringstream lines(read_text(path));
  for (std::string line; std::getline(lines, line);) {
    const auto lab = std::min(line.find(' '), line.size());
    const auto state = line.find(' ', std::min(lab + 1, line.size()));
    const auto first = range_from(line.substr(0, lab));
    if (!first || state == std::string::npos || state + 1 == line.size()) continue;
    list.push_back({*first, line.substr(lab + 1, state - lab - 1), line.substr(state + 1)});
  }
  return list;
}

Status write_list(FileSystem& fs, const std::string& path, std::vector<ListedIds> list) {
  std::sort(list.begin(), list.end(), [](const ListedIds& a, const ListedIds& b) {
    return a.first != b.first ? a.first < b.first : a.state < b.state;
  });
  std::string text;
  for (const ListedIds& one : list)
    text += std::to_string(one.first) + " " + one.lab + " " + one.state + "\n";
  return write_durably(fs, path, as_bytes(text), 0644);
}

/// Of labs whose state still says the same, or that have a control group here: a state may lie on a
/// disk that is not there at the moment.
void drop_the_gone(std::vector<ListedIds>& list, const GuestIdPlaces& places) {
  const std::vector<std::string> here = labs_here(places.cgroups);
  std::erase_if(list, [&](const ListedIds& one) {
    return recorded_guest_ids(one.state) != one.first &&
           std::find(here.begin(), here.end(), one.lab) == here.end();
  });
}

/// Held as long as the answer lives. The folder is locked and not the list, which is replaced as a
/// whole.
Result<io::Fd> lock_list(const GuestIdPlaces& places) {
  const std::string folder = parent_folder(places.list);
  io::Fd fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return fail(io::error_from_errno(errno, folder));
  RN_CHECK(io::patiently(kListPatience, [&]() -> Status {
    if (flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return {};
    return fail(
        ErrorCode::kUnavailable,
        "somebody else is at " + places.list + ", the list of guests' user ids",
        "another lab's warden starts or leaves: try again; `lslocks` names who locks " + folder
    );
  }));
  return fd;
}

/// Ids that something else on the machine has.
struct UsedIds {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  std::string by;
};

/// Of lines "NAME:FIRST:COUNT", or with one id in field `at`.
void add_used(const std::string& path, std::size_t at, bool is_range, std::vector<UsedIds>& into) {
  std::istringstream lines(read_text(path));
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> fields;
    std::istringstream rest(line);
    for (std::string field; std::getline(rest, field, ':');) fields.push_back(field);
    if (fields.size() <= at + (is_range ? 1 : 0)) continue;
    const auto first = whole_number<std::uint64_t>(fields[at]);
    const auto count = is_range ? whole_number<std::uint64_t>(fields[at + 1]) : 1;
    if (first && count) into.push_back({*first, *count, path + " (" + fields.front() + ")"});
  }
}

void add_processes(const std::string& proc, std::vector<UsedIds>& into) {
  for (const pid_t pid : io::all_pids()) {
    const std::string name = std::to_string(pid);
    const std::string status = read_text(proc + "/" + name + "/status");
    const auto line = status.find("\nUid:\t");
    unsigned real = 0;
    unsigned effective = 0;
    if (line == std::string::npos ||
        std::sscanf(status.c_str() + line, "\nUid:\t%u\t%u", &real, &effective) != 2)
      continue;
    for (const unsigned id : {real, effective}) into.push_back({id, 1, "process " + name});
  }
}

std::vector<UsedIds> named_in_etc(const std::string& etc) {
  std::vector<UsedIds> used;
  add_used(etc + "/passwd", 2, false, used);
  add_used(etc + "/group", 2, false, used);
  add_used(etc + "/subuid", 1, true, used);
  add_used(etc + "/subgid", 1, true, used);
  return used;
}

/// Who of `used` has ids of the range; empty: nobody.
std::string user_of(std::uint32_t first, const std::vector<UsedIds>& used) {
  for (const UsedIds& one : used) {
    const std::uint64_t end = std::uint64_t{first} + kIdsPerLab;
    if (one.first < end && one.count > (one.first >= first ? 0 : first - one.first)) return one.by;
  }
  return {};
}

std::string lab_with(std::uint32_t first, const std::vector<ListedIds>& list) {
  for (const ListedIds& one : list) {
    if (one.first == first) return "lab " + one.lab + " (" + one.state + ")";
  }
  return {};
}

Result<std::uint32_t> choose(
    const GuestIdPlaces& places, const std::string& lab, const std::vector<ListedIds>& others
) {
  std::vector<UsedIds> used = named_in_etc(places.etc);
  add_processes(places.proc, used);
  const std::uint32_t begin = (uid_base_of(lab) - kFirstRange) / kIdsPerLab;
  for (std::uint32_t i = 0; i < kIdRanges; ++i) {
    const std::uint32_t first = kFirstRange + (begin + i) % kIdRanges * kIdsPerLab;
    if (lab_with(first, others).empty() && user_of(first, used).empty()) return first;
  }
  const std::string last = std::to_string(kFirstRange + kIdRanges * kIdsPerLab - 1);
  return fail(
      ErrorCode::kExhausted,
      "no 65,536 user ids for guests are free between " + std::to_string(kFirstRange) + " and " +
          last + ": " + user_of(uid_base_of(lab), used) + " and others have them",
      "take a range out of " + places.etc + "/subuid and " + places.etc + "/subgid"
  );
}

}  // namespace

std::uint32_t uid_base_of(const std::string& lab) {
  std::uint32_t hash = 2'166'136'261U;  // FNV-1a
  for (const char c : lab) hash = (hash ^ static_cast<unsigned char>(c)) * 16'777'619U;
  return kFirstRange + (hash % kIdRanges) * kIdsPerLab;
}

std::optional<std::uint32_t> recorded_guest_ids(const std::string& state) {
  std::string text = read_text(state + "/guest-ids");
  if (text.ends_with('\n')) text.pop_back();
  return range_from(text);
}

Result<GuestIds> claim_guest_ids(
    FileSystem& fs, const GuestIdPlaces& places, const GuestIdsOwner& owner
) {
  RN_TRY(const io::Fd lock, lock_list(places));
  std::vector<ListedIds> list = read_list(places.list);
  auto has = recorded_guest_ids(owner.state);
  for (const ListedIds& one : list) {
    if (!has && one.state == owner.state) has = one.first;  // it ended between the two writes
  }
  if (!has && fs.stat(owner.state + "/engine")) has = uid_base_of(owner.lab);
  std::erase_if(list, [&](const ListedIds& one) { return one.state == owner.state; });
  drop_the_gone(list, places);

  GuestIds ids;
  if (has && (owner.has_guests || lab_with(*has, list).empty())) {
    ids.first = *has;
    ids.shared_with = lab_with(*has, list);
    if (ids.shared_with.empty()) ids.shared_with = user_of(*has, named_in_etc(places.etc));
  } else {
    ids.is_new = true;
    RN_TRY(ids.first, choose(places, owner.lab, list));
  }
  list.push_back({ids.first, owner.lab, owner.state});
  const auto in_words = [](const Error& e) { return e.with("writing down the guests' user ids"); };
  RN_CHECK(write_list(fs, places.list, list).map_error(in_words));
  const std::string record = std::to_string(ids.first) + "\n";
  RN_CHECK(write_durably(fs, owner.state + "/guest-ids", as_bytes(record), 0644).map_error(in_words)
  );
  return ids;
}

Result<bool> release_guest_ids(
    FileSystem& fs, const GuestIdPlaces& places, const std::string& state
) {
  RN_TRY(const io::Fd lock, lock_list(places));
  std::vector<ListedIds> list = read_list(places.list);
  const auto is_own = [&](const ListedIds& one) { return one.state == state; };
  if (std::erase_if(list, is_own) == 0) return false;
  drop_the_gone(list, places);
  if (list.empty()) {
    RN_CHECK(fs.remove(places.list));
    return true;
  }
  RN_CHECK(write_list(fs, places.list, list));
  return true;
}

}  // namespace rn::warden
