// SPDX-License-Identifier: Apache-2.0
#include "io/metrics_page.h"

#include <gtest/gtest.h>

namespace rn::io {
namespace {

TEST(MetricsPage, each_metric_has_its_help_and_type_before_its_samples) {
  MetricsPage page;
  page.gauge("rn_guests", "Guests.", 2);
  page.head("rn_reads_total", "counter", "Reads, by kind.");
  page.value("rn_reads_total", metric_label("kind", "first"), 1);
  page.value("rn_reads_total", metric_label("kind", "again"), 0.5);

  EXPECT_EQ(
      page.take(),
      "# HELP rn_guests Guests.\n"
      "# TYPE rn_guests gauge\n"
      "rn_guests 2\n"
      "# HELP rn_reads_total Reads, by kind.\n"
      "# TYPE rn_reads_total counter\n"
      "rn_reads_total{kind=\"first\"} 1\n"
      "rn_reads_total{kind=\"again\"} 0.5\n"
  );
}

TEST(MetricsPage, what_people_typed_cannot_leave_its_quotes) {
  EXPECT_EQ(metric_label("lab", "a\"b\\c\nd"), "lab=\"a\\\"b\\\\c d\"");
}

TEST(MetricsPage, bytes_are_counted_to_the_last_one) {
  EXPECT_EQ(metric_number(1099511627777.0), "1099511627777");
}

}  // namespace
}  // namespace rn::io
