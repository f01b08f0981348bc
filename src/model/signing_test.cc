// SPDX-License-Identifier: Apache-2.0
#include "model/signing.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace rn {
namespace {

TEST(Signing, a_receipt_verifies_until_a_field_changes) {
  SeededRng rng(1);
  const auto key = crypto::make_signing_key(rng);
  const Receipt receipt = signed_receipt({.job = JobId("j-1"), .generation = 3}, key);

  EXPECT_TRUE(verify_receipt(receipt, key.public_key));
  Receipt other = receipt;
  other.generation = 4;
  EXPECT_FALSE(verify_receipt(other, key.public_key));
  EXPECT_FALSE(verify_receipt(receipt, crypto::make_signing_key(rng).public_key));
  other = receipt;
  other.signature.clear();
  EXPECT_FALSE(verify_receipt(other, key.public_key));
}

TEST(Signing, a_ticket_verifies_until_its_expiry_is_moved) {
  SeededRng rng(2);
  const auto key = crypto::make_signing_key(rng);
  Ticket ticket = signed_ticket({.job = JobId("j-1"), .expiry_wall_ms = 10}, key);

  EXPECT_TRUE(verify_ticket(ticket, key.public_key));
  ticket.expiry_wall_ms = 11;
  EXPECT_FALSE(verify_ticket(ticket, key.public_key));
}

}  // namespace
}  // namespace rn
