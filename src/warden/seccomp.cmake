# SPDX-License-Identifier: Apache-2.0
# Puts seccomp.json into the program, as warden/seccomp_profile.h: the warden needs no file for it at run time.
file(READ ${CMAKE_CURRENT_SOURCE_DIR}/seccomp.json RN_SECCOMP_PROFILE)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/seccomp.json)
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/warden/seccomp_profile.h @ONLY CONTENT [==[
// Made from src/warden/seccomp.json.
#pragma once

namespace rn::warden {

inline constexpr const char* kSeccompProfile = R"json(@RN_SECCOMP_PROFILE@)json";

}  // namespace rn::warden
]==])
