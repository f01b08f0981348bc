// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rows.h"

#include <gtest/gtest.h>

#include "coordinator/core.h"
#include "model/codec.h"

namespace rn::coordinator {
namespace {

TEST(Rows, a_row_reads_back_what_it_wrote) {
  JobRow row;
  row.job.id = JobId("j-1");
  row.job.epoch = {3, 7};
  row.wrapped_key = {1, 2, 0xff};
  row.stop_end = AttemptEnd::kCancelled;

  EXPECT_EQ(from_json<JobRow>(to_json(row)).value(), row);
}

TEST(Rows, roles_grow) {
  EXPECT_LT(Role::kViewer, Role::kUser);
  EXPECT_LT(Role::kOwner, Role::kAdmin);
  EXPECT_EQ(to_string(Role::kOwner), "owner");
}

}  // namespace
}  // namespace rn::coordinator
