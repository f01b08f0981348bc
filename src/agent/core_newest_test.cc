// SPDX-License-Identifier: Apache-2.0
#include "agent/core_uplink_fixture.h"

namespace rn::agent {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// A guest that has to leave, whose saves of 100 MB take eight seconds each on the uplink.
class CoreNewest : public CoreUplink {
 protected:
  /// Its owner is known, so that what it saves waits. It saves every `gap`, and the last of these
  /// is not copied when the notice comes.
  void is_noticed_with_a_save_that_waits(seconds gap, seconds deadline) {
    run();
    expect_owner(500);
    advance(minutes(5));
    safe(1);
    durable(1);
    for (std::uint32_t number : {2U, 3U}) {
      advance(gap);
      safe(number);
    }
    ASSERT_THAT(copying(), IsEmpty());
    declare(deadline);
  }

  void declare(seconds deadline) {
    warden.reclaims = {a_reclaim(ReclaimKind::kNotice, deadline)};
    push_state();
    if (has_asked<warden_wire::WriteNotice>()) answer<warden_wire::WriteNotice>();
  }

  void has_left_to_send(std::uint64_t bytes) {
    for (const Work& one : works) {
      if (!std::holds_alternative<CopyGeneration>(one.body)) continue;
      TransferProgress progress;
      progress.id = one.id;
      progress.bytes_left = bytes;
      progress.bytes_sent = kSaveBytes - bytes;
      feed(TransfersMeasured{{progress}, 0, {}});
    }
  }
};

TEST_F(CoreNewest, a_newer_save_goes_in_place_of_one_that_is_on_its_way) {
  run();
  safe(1);
  ASSERT_THAT(copying(), ElementsAre("j-1/1"));
  declare(seconds(60));
  safe(2);
  EXPECT_THAT(copying(), ElementsAre("j-1/2"));
}

TEST_F(CoreNewest, a_newer_save_that_would_be_late_does_not) {
  run();
  safe(1);
  declare(seconds(12));
  has_left_to_send(50'000'000);
  safe(2);
  EXPECT_THAT(copying(), ElementsAre("j-1/1")) << "four seconds more, and eight for the newer one";
}

TEST_F(CoreNewest, what_is_nearly_there_goes_to_its_end) {
  run();
  safe(1);
  declare(seconds(60));
  has_left_to_send(10'000'000);
  safe(2);
  EXPECT_THAT(copying(), ElementsAre("j-1/1"));
  durable(1);
  EXPECT_THAT(copying(), ElementsAre("j-1/2"));
}

TEST_F(CoreNewest, what_is_nearly_there_and_hardly_moves_does_not_hold_up_the_last_save) {
  run();
  safe(1);
  declare(seconds(60));
  for (int look = 0; look < 20; ++look) {
    advance(milliseconds(100));
    has_left_to_send(10'000'000 - 1'000 * static_cast<std::uint64_t>(look));
  }
  safe(2);
  EXPECT_THAT(copying(), ElementsAre("j-1/2"));
}

TEST_F(CoreNewest, a_guest_that_computes_on_has_what_it_saved_first_copied) {
  run();
  safe(1);
  safe(2);
  EXPECT_THAT(copying(), ElementsAre("j-1/1"));
}

TEST_F(CoreNewest, a_guest_that_is_about_to_save_again_is_waited_for) {
  is_noticed_with_a_save_that_waits(seconds(10), seconds(120));
  EXPECT_THAT(copying(), IsEmpty()) << "generation 4 rewrites all of it";
  advance(seconds(9));
  safe(4);
  EXPECT_THAT(copying(), ElementsAre("j-1/4"));
}

TEST_F(CoreNewest, a_guest_that_does_not_save_as_it_used_to_is_not_waited_for_much_longer) {
  is_noticed_with_a_save_that_waits(seconds(10), seconds(120));
  advance(seconds(14));
  EXPECT_THAT(copying(), IsEmpty());
  advance(seconds(3));
  EXPECT_THAT(copying(), ElementsAre("j-1/3"));
}

TEST_F(CoreNewest, where_time_is_short_what_there_is_goes_at_once) {
  is_noticed_with_a_save_that_waits(seconds(10), seconds(25));
  EXPECT_THAT(copying(), ElementsAre("j-1/3"));
}

TEST_F(CoreNewest, of_a_guest_that_saves_seldom_what_there_is_goes_at_once) {
  is_noticed_with_a_save_that_waits(seconds(100), seconds(60));
  EXPECT_THAT(copying(), ElementsAre("j-1/3"));
}

}  // namespace
}  // namespace rn::agent
