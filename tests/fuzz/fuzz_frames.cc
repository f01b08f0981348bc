// SPDX-License-Identifier: Apache-2.0
// Frames taken from a stream do not depend on how the stream was cut into pieces, and are what was
// sent. The same bytes as a URL, a path and a query never do harm; what percent_decode takes apart
// can be put together again.

#include <algorithm>
#include <vector>

#include "base/assert.h"
#include "io/framed.h"
#include "io/http.h"
#include "io/http_error.h"
#include "io/url.h"

namespace {

constexpr std::size_t kMaxFrame = 4096;

/// Frames encoded again, one after the other, up to the first error.
rn::Blob taken(rn::BlobView stream, std::size_t piece) {
  rn::io::FrameDecoder decoder(kMaxFrame);
  rn::Blob again;
  while (!stream.empty()) {
    rn::BlobView in = stream.first(std::min(piece, stream.size()));
    stream = stream.subspan(in.size());
    while (!in.empty()) {
      const auto frame = decoder.take(in);
      if (!frame) return again;
      if (!*frame) continue;
      const auto& body = (*frame)->body;
      const auto header =
          rn::io::encode_frame_header((*frame)->type, static_cast<std::uint32_t>(body.size()));
      again.insert(again.end(), header.begin(), header.end());
      again.insert(again.end(), body.begin(), body.end());
    }
  }
  return again;
}

void check_text(const std::string& text) {
  (void)rn::io::parse_url(text);
  (void)rn::io::parse_query(text);
  (void)rn::io::error_from_http(400, text);
  const auto decoded = rn::io::percent_decode(text);
  if (!decoded) return;
  const auto again = rn::io::percent_decode(rn::io::percent_encode(*decoded));
  RN_ASSERT(again && *again == *decoded, "a decoded text survives encoding");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const rn::BlobView stream(data, size);
  const rn::Blob whole = taken(stream, std::max<std::size_t>(size, 1));
  RN_ASSERT(whole.size() <= size, "no byte comes from nowhere");
  RN_ASSERT(std::equal(whole.begin(), whole.end(), stream.begin()), "frames are what was sent");
  RN_ASSERT(taken(stream, 1) == whole, "single bytes give the same frames");
  RN_ASSERT(taken(stream, 7) == whole, "odd pieces give the same frames");
  check_text(std::string(rn::as_text(stream)));
  return 0;
}
