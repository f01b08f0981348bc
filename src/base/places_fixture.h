// SPDX-License-Identifier: Apache-2.0
// Where what the tests read lies in this checkout and this build. Defined in a file of its own,
// which CMake writes, so that no test's object depends on the checkout's path and the compiler's
// cache serves all of them.
#pragma once

namespace rn::places {

extern const char* const kDocs;            ///< docs/
extern const char* const kGolden;          ///< tests/golden/
extern const char* const kAgentFakeNvml;   ///< a libnvidia-ml that replays a recording of a machine
extern const char* const kWardenFakeNvml;  ///< one that answers what a test says

}  // namespace rn::places
