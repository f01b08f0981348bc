// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "agent/core_types.h"
#include "agent/guest_book.h"
#include "agent/identity.h"
#include "agent/transfer_gauge.h"
#include "base/fs.h"
#include "base/rng.h"
#include "base/time.h"
#include "checkpoint/chunk_feed.h"
#include "checkpoint/chunk_store.h"
#include "checkpoint/transfer.h"
#include "io/http_client.h"

namespace rn::agent {

struct HandsDeps {
  FileSystem& fs;
  const Clock& clock;
  Rng& rng;
  const CurrentIdentity& identity;
  checkpoint::ChunkStore& store;   ///< generations: own and others'
  checkpoint::ChunkStore& images;  ///< pieces of images
  GuestBook& guests;
  std::string images_folder;  ///< archives, put together for the warden
  /// Archives that are kept for the next load; more of them go, least recently used first.
  std::uint64_t image_archives_bytes = 20ull << 30;
  /// Told of a guest whose checkpoint was not, or did not stay, as the watch had seen it; on the
  /// thread of the work. Empty: nobody is.
  std::function<void(const GuestName&)> on_unstable;
};

/// Nothing, if `disk` is one that the warden has made and mounted: an absolute folder with its
/// `reclaim` beside the guest's `work`. kUnavailable for anything else, which is the owner's and
/// may be neither emptied nor read.
Status check_guest_disk(FileSystem& fs, const std::string& disk);
/// Where to read what a guest writes on `disk`: the warden's view beside it, in which files of mode
/// 0600 are readable too, or the disk itself where there is none.
std::string guest_view(FileSystem& fs, const std::string& disk);
/// The folder in which a guest that was here worked, for the agent to read. kUnavailable while it
/// cannot be trusted: no disk of the warden's, or one beside which its view is not mounted yet,
/// where the guest's own files would seem to be forbidden.
Result<std::string> readable_work(FileSystem& fs, const std::string& disk);

/// Bytes of images that came here since the start, by whom they were asked of. Any thread reads.
struct ImageTraffic {
  std::atomic<std::uint64_t> from_peers = 0;
  std::atomic<std::uint64_t> from_coordinator = 0;
};

/// Does the core's works. Blocking; thread-safe (two works of one guest wait for each other). A
/// work that is cancelled answers kTimeout soon.
class Hands {
 public:
  explicit Hands(HandsDeps deps) : deps_(std::move(deps)) {}

  /// `tap`: of a copy that is ahead, where the shell says when its generation is whole. `gauge`: of
  /// any copy and of outputs, how fast it may go and how far it is.
  WorkResult run(
      const Work& work,
      const std::atomic<bool>& is_cancelled,
      const std::shared_ptr<checkpoint::ChunkTap>& tap = nullptr,
      const std::shared_ptr<TransferGauge>& gauge = nullptr
  );

  const ImageTraffic& image_traffic() const { return image_traffic_; }

 private:
  class WayHome;

  using Cancelled = std::atomic<bool>;

  Status remember_pieces(const FetchImage& w);
  Result<WorkResult> fetch_image(const FetchImage& w, const Cancelled& is_cancelled);
  Result<bool> is_archive_of(
      const std::string& path, const Digest& wanted, const Cancelled& is_cancelled
  ) const;
  Status use_archive(const std::string& path);
  Status fetch_pieces(const FetchImage& w, const Cancelled& is_cancelled);
  Status fetch_from_coordinator(
      const FetchImage& w, const std::vector<Digest>& names, const Cancelled& is_cancelled
  );
  static void tell_pieces(
      const FetchImage& w,
      const std::string& source,
      const checkpoint::TransferStats& stats,
      std::atomic<std::uint64_t>& bytes_of_all
  );
  Result<WorkResult> prepare(const GuestName& guest, const PrepareWork& w, const Cancelled& c);

  struct AskedHolders {
    std::vector<NodeId> silent;  ///< that gave no word, where that is why it failed; else none
    std::map<NodeId, std::string> lying;  ///< what was wrong with what they served
  };

  Result<WorkPrepared> lay_out(
      GuestEntry& entry,
      const GuestName& guest,
      const PrepareWork& w,
      const GenerationRef& from,
      AskedHolders& asked,
      const Cancelled& c
  );
  Status fetch_generation(
      const GenerationRef& ref,
      const std::vector<PeerGrant>& peers,
      AskedHolders& asked,
      const Cancelled& c
  );
  /// With `only_missing`: of its checkpoint's files those that are not there yet, which it names
  /// then; all that is there stays.
  Result<Manifest> restore(
      const GuestName& guest,
      const PrepareWork& w,
      const GenerationRef& from,
      const std::vector<PeerGrant>& peers,
      std::set<std::string>* only_missing,
      AskedHolders& asked,
      const Cancelled& c
  );
  Status add_shared(
      GuestEntry& entry,
      const GuestName& guest,
      const PrepareWork& w,
      AskedHolders& asked,
      const Cancelled& c
  );
  Status load_base(
      GuestEntry& entry, const GuestName& guest, const Digest& workspace, const Cancelled& c
  );
  Result<WorkResult> snapshot(const GuestName& guest, const TakeSnapshot& w, const Cancelled& c);
  Result<WorkResult> copy(
      const GuestName& guest,
      const CopyGeneration& w,
      const Cancelled& is_cancelled,
      const std::shared_ptr<checkpoint::ChunkTap>& tap,
      const std::shared_ptr<TransferGauge>& gauge
  );
  Result<WorkResult> upload(
      const GuestName& guest,
      const UploadOutputs& w,
      const Cancelled& is_cancelled,
      const std::shared_ptr<TransferGauge>& gauge
  );
  Result<WorkResult> read_log(const GuestName& guest, const ReadLog& w);
  Result<WorkResult> collect(const CollectGarbage& w);
  Result<WorkResult> forget(const GuestName& guest);

  Result<Blob> get_blob(io::HttpSession& session, const Digest& name, const Cancelled& c) const;
  Status put_blob(WayHome& home, const Digest& name, BlobView bytes) const;
  Status put_missing(
      WayHome& home, const std::vector<Digest>& names, Folder& folder, const std::string& path
  );
  std::string spool(const GuestName& guest) const;

  HandsDeps deps_;
  ImageTraffic image_traffic_;
  std::timed_mutex fetching_image_;  ///< two guests of one image: the second finds it fetched
};

}  // namespace rn::agent
