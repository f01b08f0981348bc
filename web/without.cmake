# SPDX-License-Identifier: Apache-2.0
# rn_write_without(FILE.cc): the dashboard's place in a coordinator that has none, a page that says so.
set(RN_WITHOUT_PAGE ${CMAKE_CURRENT_LIST_DIR}/without.html)

function(rn_write_without file)
  file(READ ${RN_WITHOUT_PAGE} page)
  file(CONFIGURE OUTPUT ${file} @ONLY CONTENT "// Made by web/without.cmake.
#include \"dashboard_files.h\"

#include <array>

namespace rn::coordinator {

std::span<const DashboardFile> dashboard_files() {
  static constexpr std::array<DashboardFile, 1> kFiles = {
      DashboardFile{\"index.html\", \"text/html; charset=utf-8\", \"without\", R\"rn(${page})rn\", {}, false}};
  return kFiles;
}

}  // namespace rn::coordinator
")
endfunction()
