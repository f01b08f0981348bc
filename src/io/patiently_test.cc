// SPDX-License-Identifier: Apache-2.0
#include "io/patiently.h"

#include <gtest/gtest.h>

namespace rn::io {
namespace {

TEST(Patiently, a_step_that_fails_for_a_moment_is_tried_again) {
  int tries = 0;
  const auto third_time = [&]() -> Status {
    if (++tries < 3) return fail(ErrorCode::kConflict, "in use");
    return {};
  };

  EXPECT_TRUE(patiently(seconds(60), third_time, milliseconds(1)));
  EXPECT_EQ(tries, 3);
}

TEST(Patiently, the_last_error_is_answered_when_the_time_is_over) {
  int tries = 0;
  const Status done = patiently(milliseconds(0), [&]() -> Status {
    return fail(ErrorCode::kConflict, "try " + std::to_string(++tries));
  });

  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().message, "try 1");
}

}  // namespace
}  // namespace rn::io
