// SPDX-License-Identifier: Apache-2.0
// Manifests and snapshot caches. What passes validation is encoded again to the same, and restoring
// it writes nowhere but below its folder, whatever it says.

#include "base/assert.h"
#include "base/fs_crash.h"
#include "checkpoint/manifest.h"
#include "checkpoint/restore.h"
#include "checkpoint/snapshot_cache.h"
#include "model/codec.h"

namespace {

void restore_below_a_folder(const rn::Manifest& manifest) {
  rn::ManualClock clock;
  rn::CrashFs fs(clock, 1);
  RN_ASSERT(fs.make_folder("/owner", 0700) && fs.make_folder("/guest", 0700), "an empty disk");
  RN_ASSERT(fs.make_symlink("/owner", "/guest/link"), "an empty disk");
  fs.overwrite("/owner/file", rn::as_bytes("mine"));
  (void)rn::checkpoint::restore_generation(fs, "/guest", manifest, {}, [](const rn::Digest&) {
    return rn::Result<rn::Blob>(rn::Blob(100, 0));
  });
  RN_ASSERT(
      fs.list("/")->size() == 2 && fs.list("/owner")->size() == 1,
      "nothing outside was made or removed"
  );
  RN_ASSERT(
      rn::as_text(*rn::read_all(fs, "/owner/file", 100)) == "mine", "nothing outside was written"
  );
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const rn::BlobView input(data, size);
  (void)rn::checkpoint::SnapshotCache::from_bytes(input);
  const auto sealed = rn::from_cbor<rn::SignedManifest>(input);
  if (sealed) (void)rn::checkpoint::verify_manifest(*sealed, {});
  const auto manifest = rn::checkpoint::parse_manifest(sealed ? rn::BlobView(sealed->body) : input);
  if (!manifest) return 0;
  RN_ASSERT(
      rn::checkpoint::parse_manifest(rn::to_cbor(*manifest)) == *manifest,
      "a manifest survives encoding"
  );
  restore_below_a_folder(*manifest);
  return 0;
}
