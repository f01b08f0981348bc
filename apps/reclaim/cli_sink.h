// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/error.h"
#include "base/printable.h"

namespace rn::cli {

/// Standard output or error of a command that must go on hearing while nobody reads there. Keeps
/// what one frame brought, and takes no more until it is written.
class OutputSink {
 public:
  /// `is_shown`: a terminal that must not obey what a guest says.
  OutputSink(int fd, bool is_shown) : fd_(fd) {
    if (is_shown) shown_.emplace();
  }

  /// False: what came before is not written yet.
  bool take(BlobView bytes);
  /// Writes what can be written without waiting. True: nothing is left, or it is lost.
  bool flush();
  /// What was kept back in the middle of a character.
  void finish();

  /// An error: nobody reads it any more (kUnavailable), or it cannot be written.
  const Status& status() const { return status_; }

 private:
  int fd_;
  std::optional<PrintableStream> shown_;
  std::string waiting_;
  Status status_;
};

}  // namespace rn::cli
