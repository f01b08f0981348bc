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
  explicit Folder(const Tree& tree) {
    char name[] = "/tmp/rn_fixture_XXXXXX";
    if (mkdtemp(name) == nullptr) throw std::runtime_error("mkdtemp");
    path_ = name;
    make(path_, tree);
  }

  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  ~Folder() { std::filesystem::remove_all(path_); }

  const std::string& path() const { return path_; }

  std::string read(const std::string& name) const {
    std::ifstream file(path_ + "/" + name);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ + "/" + name) << text;
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

  std::string path_;
};

}  // namespace rn::warden::test
