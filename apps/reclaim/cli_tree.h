// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "io/fd.h"
#include "model/copy_stream.h"

struct stat;

namespace rn::cli {

/// What was not copied, and why: the first of it, and how much more there was.
struct LeftOut {
  static constexpr std::size_t kNamed = 20;

  std::vector<std::string> named;  ///< "NAME: WHY"
  std::size_t more = 0;

  void add(const std::string& name, const std::string& why);

  bool is_empty() const { return named.empty(); }
};

/// Writes a copy stream that a guest has sent (model/copy_stream.h), which may be hostile: it is
/// led nowhere but into the place that was asked for. No link is followed below it; a file is
/// written beside its place and renamed into it; what is no file and no folder is not replaced.
/// Nothing is written to .git, whoever has sent it. Blocks on the disk.
class TreeWriter {
 public:
  /// `to`: a folder that is there, or that ends with "/", is copied into; all else is the new name.
  /// `name`: the last step of what was asked for; empty: what is in that folder, and not itself.
  TreeWriter(std::string to, std::string name);
  ~TreeWriter();  ///< removes a file that is not whole
  TreeWriter(const TreeWriter&) = delete;
  TreeWriter& operator=(const TreeWriter&) = delete;

  /// The next bytes. kCorrupt: it is no such stream; other errors by what cannot be written.
  Status take(BlobView bytes);
  /// kCorrupt: it is not over.
  Status finish() const;

  const LeftOut& left_out() const { return left_out_; }

  std::uint64_t bytes() const { return bytes_; }

 private:
  Status obey(copy_stream::Reader::Event event);
  Status find_root();
  Result<int> place_of_next();
  Status begin_file();
  Status write_file();
  Status end_file();
  Status enter_folder();
  void leave_folder();
  void drop_file();
  bool is_skipped();

  const std::string to_;
  std::string name_;
  copy_stream::Reader reader_;
  io::Fd root_;                  ///< the folder in which the first thing is made
  std::vector<io::Fd> folders_;  ///< that were entered
  io::Fd file_;
  std::string file_name_;
  std::string temporary_;
  std::uint64_t files_ = 0;
  std::uint64_t bytes_ = 0;
  int skipped_folders_ = 0;  ///< that were entered within one that is left out
  bool is_skipping_file_ = false;
  LeftOut left_out_;
};

/// Reads a file or a folder here as a copy stream. Links, devices, pipes and sockets below a folder
/// are left out; the path itself may be a link. Blocks on the disk.
class TreeReader {
 public:
  /// kNotFound, kDenied; kInvalid: it is neither a file nor a folder.
  static Result<TreeReader> open(const std::string& path);

  /// The next bytes, at most so many; empty: it is over. A file that cannot be read to its end is
  /// said to be broken, and left out.
  Blob next(std::size_t most);

  const LeftOut& left_out() const { return left_out_; }

 private:
  struct Folder {
    io::Fd fd;
    std::vector<std::string> names;
    std::size_t at = 0;
    std::string path;  ///< for people
  };

  void produce();
  void begin(io::Fd fd, const struct stat& about, const std::string& name, std::string path);
  void read_file();
  void next_of_folder();
  void put(copy_stream::Kind kind);

  std::vector<Folder> folders_;
  io::Fd file_;
  std::string file_path_;
  Blob ready_;
  std::size_t used_ = 0;  ///< of ready_
  bool is_over_ = false;
  LeftOut left_out_;
};

}  // namespace rn::cli
