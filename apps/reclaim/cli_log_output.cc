// SPDX-License-Identifier: Apache-2.0
#include "cli_log_output.h"

#include <cstdio>

#include <unistd.h>

#include "io/standard_output.h"

namespace rn::cli {

LogOutput::LogOutput() : LogOutput(::isatty(STDOUT_FILENO) == 1) {}

Status LogOutput::write(BlobView bytes) {
  return is_terminal_ ? put(printable_.take(as_text(bytes))) : put(as_text(bytes));
}

Status LogOutput::finish() {
  return put(printable_.finish());
}

Status LogOutput::put(std::string_view text) {
  if (!status_ || text.empty()) return status_;
  (void)std::fwrite(text.data(), 1, text.size(), stdout);  // flush_output() tells of its errors
  status_ = io::flush_output();
  return status_;
}

}  // namespace rn::cli
