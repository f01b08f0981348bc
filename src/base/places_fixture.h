// SPDX-License-Identifier: Apache-2.0
// Where what the tests read lies in this checkout and this build. Defined in a file of its own,
// which CMake writes, so that no test's object depends on the checkout's path and the compiler's
// cache serves all of them.
#pragma once

namespace rn::places {

extern const char* const kDocs;            ///< docs/
extern const char* const kGolden;          ///< tests/golden/
extern const char* const kAgentFakeNvml;   ///< a libnvidia-ml that answers from a test's file
extern const char* const kWardenFakeNvml;  ///< one that answers what a test says
extern const char* const kReplayNvml;      ///< one that answers what a real card did
extern const char* const kGpuRecordings;   ///< tests/gpu/recorded/, what real cards answered

}  // namespace rn::places
