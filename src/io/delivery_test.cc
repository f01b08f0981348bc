// SPDX-License-Identifier: Apache-2.0
#include "io/delivery.h"

#include <gtest/gtest.h>

namespace rn::io {
namespace {

TEST(InnerAddress, is_one_of_this_machine_its_link_nobody_or_many) {
  for (const char* inner :
       {"127.0.0.1",
        "127.9.8.7",
        "0.0.0.0",
        "0.1.2.3",
        "169.254.169.254",
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::127.0.0.1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.1.1",
        "64:ff9b::7f00:1",
        "fe80::1",
        "febf::1",
        "ff02::1",
        "localhost",
        ""})
    EXPECT_TRUE(is_inner_address(inner)) << inner;
  for (const char* outer :
       {"10.1.2.3",
        "192.168.0.1",
        "126.255.255.255",
        "128.0.0.1",
        "169.253.1.1",
        "2001:db8::1",
        "fd00::1",
        "::ffff:10.1.2.3",
        "fec0::1"})
    EXPECT_FALSE(is_inner_address(outer)) << outer;
}

TEST(PostHook, a_name_that_leads_to_this_machine_is_left_alone_unless_it_is_meant) {
  HookCall call;
  call.url = "http://localhost:9/";  // the discard port: nobody listens

  const Delivery outside = post_hook(call);
  call.reaches_inside = true;
  const Delivery inside = post_hook(call);

  EXPECT_EQ(outside.end, DeliveryEnd::kRefused);
  EXPECT_NE(outside.why.find("own machine"), std::string::npos) << outside.why;
  EXPECT_EQ(inside.end, DeliveryEnd::kDown) << inside.why;
}

TEST(PostHook, speaks_http_alone) {
  HookCall call;
  call.url = "file:///etc/passwd";
  call.reaches_inside = true;

  EXPECT_EQ(post_hook(call).end, DeliveryEnd::kDown);
}

TEST(PostHook, a_line_break_in_a_header_is_refused) {
  HookCall call;
  call.url = "http://127.0.0.1:9/";
  call.headers = {{"X-One", "a\r\nX-Two: b"}};

  EXPECT_EQ(post_hook(call).end, DeliveryEnd::kRefused);
}

TEST(SendMail, a_line_break_in_an_address_is_refused) {
  MailCall call;
  call.url = "smtp://127.0.0.1:9";
  call.from = "site@example.org";
  call.to = "ann@example.org>\r\nRCPT TO:<eve@example.org";

  EXPECT_EQ(send_mail(call).end, DeliveryEnd::kRefused);
}

TEST(SendMail, a_server_that_is_not_there_is_down) {
  MailCall call;
  call.url = "smtp://127.0.0.1:9";
  call.from = "site@example.org";
  call.to = "ann@example.org";

  const Delivery sent = send_mail(call);

  EXPECT_EQ(sent.end, DeliveryEnd::kDown);
  EXPECT_FALSE(sent.why.empty());
}

}  // namespace
}  // namespace rn::io
