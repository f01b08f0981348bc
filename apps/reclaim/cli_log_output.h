// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/bytes.h"
#include "base/error.h"
#include "base/printable.h"

namespace rn::cli {

/// A job's log on standard output: its bytes as they are, or what a person can safely be shown if
/// that is a terminal, which obeys what a guest prints.
class LogOutput {
 public:
  LogOutput();

  explicit LogOutput(bool is_terminal) : is_terminal_(is_terminal) {}

  /// Written before it returns. kUnavailable: nobody reads it any more; other errors by what is
  /// wrong with standard output. The first error stays.
  Status write(BlobView bytes);
  /// The end of one attempt's log.
  Status finish();

  const Status& status() const { return status_; }

 private:
  Status put(std::string_view text);

  bool is_terminal_;
  PrintableStream printable_;
  Status status_;
};

}  // namespace rn::cli
