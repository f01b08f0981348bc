// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace rn::init {

/// By which AWS's own libraries are told where their instance's metadata are.
inline constexpr const char* kMetadataVariable = "AWS_EC2_METADATA_SERVICE_ENDPOINT";

/// By which they are told not to ask; "true": nobody answers at 169.254.169.254, and the guest may
/// have the port itself.
inline constexpr const char* kNoMetadataVariable = "AWS_EC2_METADATA_DISABLED";

/// The port of "http://127.0.0.1:PORT", with a slash behind it or none; 0 for all other texts, and
/// for ports below 1024, which a guest cannot have.
int metadata_port(const char* url);

/// What code for spot instances asks, answered by the guest's notice (/reclaim/notice):
///
///   PUT /latest/api/token                                          a word, of no meaning here
///   GET /latest/meta-data/spot/instance-action                     action and time as JSON
///   GET /latest/meta-data/spot/termination-time                    the time alone
///   GET /latest/meta-data/events/recommendations/rebalance         when the notice came, as JSON
///
/// Without a notice, and for all other paths, 404, as there.
struct MetadataAnswer {
  int status = 404;
  bool is_json = false;
  bool tells_to_leave = false;
  char body[128] = "";
};

MetadataAnswer answer_metadata(const char* method, const char* path);

}  // namespace rn::init
