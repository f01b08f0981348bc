// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/error.h"
#include "coordinator/blobs.h"
#include "model/job.h"

namespace rn::coordinator {

/// Reads a listing from the blob store and checks it: paths are safe, sorted and unique, sizes
/// agree with the blobs, and every blob is there (so it is durable). kNotFound, kInvalid or
/// kCorrupt, with the path in the message. Blocking.
Result<Listing> read_listing(const BlobStore& blobs, const Digest& name);

/// The checks on the listing alone.
Status check_listing(const Listing& listing);

}  // namespace rn::coordinator
