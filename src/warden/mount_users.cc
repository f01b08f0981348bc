// SPDX-License-Identifier: Apache-2.0
#include "warden/mount_users.h"

#include <filesystem>

#include <sys/stat.h>

#include "io/read_text.h"

namespace rn::warden {

namespace {

namespace files = std::filesystem;

bool is_on(const std::string& path, dev_t device) {
  struct stat about {};

  return stat(path.c_str(), &about) == 0 && about.st_dev == device;
}

bool uses(const std::string& process, dev_t device) {
  for (const char* link : {"/cwd", "/root", "/exe"}) {
    if (is_on(process + link, device)) return true;
  }
  std::error_code ended;
  for (files::directory_iterator it(process + "/fd", ended), end; !ended && it != end;
       it.increment(ended)) {
    if (is_on(it->path(), device)) return true;
  }
  return false;
}

}  // namespace

std::vector<std::string> users_of_mount(const std::string& folder, std::size_t max) {
  std::vector<std::string> users;

  struct stat mounted {};

  struct stat above {};

  if (stat(folder.c_str(), &mounted) != 0 || stat((folder + "/..").c_str(), &above) != 0 ||
      mounted.st_dev == above.st_dev)
    return users;
  for (const pid_t pid : io::all_pids()) {
    if (users.size() == max) break;
    const std::string process = "/proc/" + std::to_string(pid);
    if (!uses(process, mounted.st_dev)) continue;
    std::string name = io::read_text(process + "/comm");
    while (name.ends_with('\n')) name.pop_back();
    users.push_back(std::to_string(pid) + " (" + name + ")");
  }
  return users;
}

}  // namespace rn::warden
