// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/scratch_folder.h"

/// Folders of the kernel as nested literals: Tree{{"cgroup.procs", "7\n"}, {"guest", Tree{...}}}.
namespace rn::warden::test {

struct Node;
using Tree = std::vector<std::pair<std::string, Node>>;

struct Node {
  Node(const char* text) : content(std::string(text)) {}  // NOLINT(google-explicit-constructor)

  Node(Tree tree) : content(std::move(tree)) {}  // NOLINT(google-explicit-constructor)

  std::variant<std::string, Tree> content;
};

/// The tree as real files in a folder of /tmp, removed with the object.
class Folder {
 public:
  /// Below `parent`.
  explicit Folder(
      const Tree& tree, const std::filesystem::path& parent = std::filesystem::temp_directory_path()
  )
      : scratch_(parent) {
    make(path(), tree);
  }

  const std::string& path() const { return scratch_.path(); }

  std::string read(const std::string& name) const {
    std::ifstream file(path() + "/" + name);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path() + "/" + name) << text;
  }

 private:
  static void make(const std::string& folder, const Tree& tree) {
    for (const auto& [name, node] : tree) {
      const std::string path = folder + "/" + name;
      if (const auto* below = std::get_if<Tree>(&node.content)) {
        std::filesystem::create_directory(path);
        make(path, *below);
      } else {
        std::ofstream(path) << std::get<std::string>(node.content);
      }
    }
  }

  ScratchFolder scratch_;
};

}  // namespace rn::warden::test
