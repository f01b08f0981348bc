// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace rn::coordinator {

/// One file of the dashboard (web/), built into the program. All views live as long as the program.
struct DashboardFile {
  std::string_view name;  ///< "index.html", "app-1a2b3c4d.js"
  std::string_view type;  ///< "text/html; charset=utf-8"
  std::string_view hash;  ///< of `plain`, in hexadecimal
  std::string_view plain;
  std::string_view gzip;  ///< the same, compressed; empty: it would be longer
  /// The name changes with the content: browsers need not ask again.
  bool has_hashed_name = false;
};

}  // namespace rn::coordinator
