// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace rn::cli {

/// A file or folder of the submitter's that goes into the job's folder under a name of its own.
struct InputFile {
  std::string from;         ///< absolute
  std::string as;           ///< relative to the job's folder; empty: what is in the folder `from`
  bool is_program = false;  ///< made executable

  friend bool operator==(const InputFile&, const InputFile&) = default;
};

}  // namespace rn::cli
