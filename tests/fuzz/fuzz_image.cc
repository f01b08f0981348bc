// SPDX-License-Identifier: Apache-2.0
// Archives of images, in pieces of the size that the first byte says.

#include <algorithm>

#include "base/assert.h"
#include "coordinator/image_archive.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::size_t piece = 1 + std::size_t{data[0]} * 16;
  const rn::BlobView archive(data + 1, size - 1);
  std::size_t offset = 0;
  const auto layers = rn::coordinator::layers_of_archive([&]() -> rn::Result<rn::Blob> {
    const rn::BlobView part = archive.subspan(offset, std::min(piece, archive.size() - offset));
    offset += part.size();
    return rn::Blob(part.begin(), part.end());
  });
  if (!layers) {
    RN_ASSERT(!layers.error().message.empty(), "a refusal says why");
  } else {
    RN_ASSERT(layers->size() <= 127, "no image has more layers");
  }
  return 0;
}
