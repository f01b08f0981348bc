// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <set>

#include "agent/hands.h"
#include "agent/local_work.h"
#include "agent/stoppable_folder.h"
#include "base/log.h"
#include "base/printable.h"
#include "checkpoint/glob.h"
#include "checkpoint/scan.h"
#include "model/api.h"
#include "model/codec.h"

// What a guest made goes home, into the coordinator's blobs, over one connection that is paced
// (core_outputs.cc says how fast).
namespace rn::agent {

namespace {

constexpr std::uint64_t kPieceBytes = 4u << 20;          // the coordinator's bound of a blob
constexpr std::uint64_t kOutputBytesMax = 256ull << 30;  // its pieces' names fill half a listing
constexpr std::size_t kAskedAtOnce = 8192;               // names of pieces, in a query of 1 MiB
/// Of one piece: it waits for what is more urgent on a line, as long as something of it goes.
constexpr milliseconds kPieceLimit = std::chrono::minutes(10);
constexpr milliseconds kPieceStall = seconds(60);

/// Outputs that do not come home. The rest is worth as much without them.
class LeftOut {
 public:
  void add(const std::string& path, const Error& error) {
    const char* const why = error.code == ErrorCode::kDenied ? "nobody but its owner may read it"
                            : error.code == ErrorCode::kUnsupported
                                ? "a socket, pipe or device and no file"
                                : "it cannot be read from the disk";
    add(path, why);
  }

  void add(const std::string& path, const char* why) {
    if (count_ < kLoggedMax)
      log::warning("output.left_out", {{"path", printable(path)}, {"why", why}});
    if (++count_ > kNamedMax) return;
    words_ += (words_.empty() ? "" : ", ") + shortened(printable(path)) + " (" + why + ")";
  }

  std::string words() const {
    if (count_ == 0) return "";
    const std::string more =
        count_ > kNamedMax ? ", and " + std::to_string(count_ - kNamedMax) + " more" : "";
    return words_ + more +
           "; next: write outputs as files that everybody may read (chmod a+r), with names in "
           "UTF-8, at most 128 folders deep; pack many or deep ones into an archive (tar), and "
           "split "
           "what is larger than 256 GiB";
  }

 private:
  static constexpr std::size_t kNamedMax = 8;
  static constexpr std::size_t kLoggedMax = 100;
  static constexpr std::size_t kPathMax = 120;

  static std::string shortened(std::string path) {
    if (path.size() <= kPathMax) return path;
    std::size_t end = kPathMax;
    while (end > 0 && (static_cast<unsigned char>(path[end]) & 0xC0) == 0x80) --end;
    return path.substr(0, end) + "...";
  }

  std::size_t count_ = 0;
  std::string words_;
};

/// A guest may shut its own folder: it has ended well all the same, and brings nothing home.
Result<checkpoint::Scan> scan_outputs(
    Folder& folder, const checkpoint::ScanLimits& limits, LeftOut& left_out
) {
  auto scan = checkpoint::scan_folder(folder, limits);
  if (scan || scan.error().code != ErrorCode::kDenied) return scan;
  left_out.add("./", scan.error());
  return checkpoint::Scan{};
}

Result<ListedFile> list_output(Folder& folder, const std::string& path, const FileStat& stat) {
  ListedFile file;
  file.path = path;
  file.mode = stat.mode;
  if (stat.kind == FileStat::Kind::kSymlink) {
    file.kind = FileKind::kSymlink;
    RN_TRY(file.target, folder.read_symlink(path));
    return file;
  }
  file.bytes = stat.size;
  RN_TRY(const auto open, folder.open(path));
  for (std::uint64_t at = 0; at < stat.size; at += kPieceBytes) {
    RN_TRY(const Blob bytes, open->read(at, kPieceBytes));
    file.blobs.push_back(crypto::sha256(bytes));
  }
  return file;
}

/// Why it cannot come home, whoever may read it; none if it can.
const char* why_unfit(const FileStat& stat) {
  if (stat.kind == FileStat::Kind::kOther) return "a socket, pipe or device and no file";
  if (stat.kind == FileStat::Kind::kRegular && stat.size > kOutputBytesMax)
    return "larger than 256 GiB, holes included";
  return nullptr;
}

/// None if it is left out, for good and with why.
Result<std::optional<ListedFile>> list_or_leave_out(
    Folder& folder, const std::string& path, const FileStat& stat, LeftOut& left_out
) {
  if (const char* const why = why_unfit(stat); why != nullptr) {
    left_out.add(path, why);
    return std::nullopt;
  }
  auto listed = list_output(folder, path, stat);
  if (listed) return std::optional(*std::move(listed));
  if (is_retryable(listed.error().code)) return fail(listed.error());
  left_out.add(path, listed.error());
  return std::nullopt;
}

bool is_same_content(const ListedFile& a, const ListedFile& b) {
  return a.blobs == b.blobs && a.target == b.target && a.kind == b.kind;
}

std::uint64_t bytes_to_send(const FileStat& stat) {
  return stat.kind == FileStat::Kind::kRegular && why_unfit(stat) == nullptr ? stat.size : 0;
}

}  // namespace

/// The connection by which they go, and what is still to go.
class Hands::WayHome {
 public:
  /// `left`: at most so many bytes. All outlive it.
  WayHome(TransferGauge& gauge, const Cancelled& is_cancelled, std::uint64_t left)
      : gauge_(gauge), is_cancelled_(is_cancelled), left_(left) {
    gauge_.attach(*sockets_);
    gauge_.set_left(left_);
  }

  ~WayHome() { gauge_.detach(); }

  WayHome(const WayHome&) = delete;
  WayHome& operator=(const WayHome&) = delete;

  Result<io::HttpReply> perform(io::HttpCall call) {
    call.timeout = kPieceLimit;
    call.stall_timeout = kPieceStall;
    call.should_stop = [this] { return is_cancelled_.load(); };
    return io::succeed(session_.perform(call));
  }

  std::uint64_t left() const { return left_; }

  /// So much is not to go any more, or has gone.
  void set_left(std::uint64_t bytes) {
    left_ = std::min(left_, bytes);
    gauge_.set_left(left_);
  }

 private:
  TransferGauge& gauge_;
  const Cancelled& is_cancelled_;
  std::uint64_t left_;
  std::shared_ptr<io::SessionSockets> sockets_ = std::make_shared<io::SessionSockets>();
  io::HttpSession session_{sockets_};
};

Status Hands::put_blob(WayHome& home, const Digest& name, BlobView bytes) const {
  const auto self = deps_.identity.get();
  io::HttpCall put;
  put.method = "PUT";
  put.url = self->coordinator_url + "/v1/blobs/" + to_hex(name);
  put.tls = tls_to_coordinator(*self);
  put.body.assign(bytes.begin(), bytes.end());
  RN_CHECK(home.perform(std::move(put)));
  return {};
}

Status Hands::put_missing(
    WayHome& home, const std::vector<Digest>& names, Folder& folder, const std::string& path
) {
  const auto self = deps_.identity.get();
  for (std::size_t first = 0; first < names.size(); first += kAskedAtOnce) {
    const std::size_t end = std::min(names.size(), first + kAskedAtOnce);
    io::HttpCall query;
    query.method = "POST";
    query.url = self->coordinator_url + "/v1/blobs/missing";
    query.tls = tls_to_coordinator(*self);
    query.headers = {{"Content-Type", "application/json"}};
    query.body = to_json(api::BlobQuery{{names.data() + first, names.data() + end}});
    RN_TRY(const io::HttpReply reply, home.perform(std::move(query)));
    RN_TRY(const auto answer, from_json<api::BlobMissing>(reply.body, Unknown::kLenient));
    if (answer.missing.empty()) continue;
    std::set<Digest> missing(answer.missing.begin(), answer.missing.end());
    RN_TRY(const auto file, folder.open(path));
    for (std::size_t i = first; i < end; ++i) {
      if (missing.erase(names[i]) == 0) continue;  // once is enough: pieces of holes are all alike
      RN_TRY(const Blob bytes, file->read(i * kPieceBytes, kPieceBytes));
      if (crypto::sha256(bytes) != names[i])
        return fail(ErrorCode::kUnavailable, path + " changed while it was uploaded");
      RN_CHECK(put_blob(home, names[i], bytes));
      home.set_left(home.left() - std::min<std::uint64_t>(home.left(), bytes.size()));
    }
  }
  return {};
}

Result<WorkResult> Hands::upload(
    const GuestName& guest,
    const UploadOutputs& w,
    const Cancelled& is_cancelled,
    const std::shared_ptr<TransferGauge>& gauge
) {
  const auto entry = deps_.guests.entry(guest);
  const std::lock_guard lock(entry->work);
  RN_CHECK(load_base(*entry, guest, w.workspace, is_cancelled));
  RN_TRY(const std::string work, readable_work(deps_.fs, w.disk));
  RN_TRY(const auto disk, deps_.fs.open_folder(work));
  StoppableFolder folder(*disk, is_cancelled);
  LeftOut left_out;
  const std::vector<std::string> temporary = temporary_globs(w.spec);
  const auto is_wanted = [&](const std::string& path) {
    return !checkpoint::matches_any(temporary, path) &&
           (w.spec.outputs.empty() || checkpoint::matches_any(w.spec.outputs, path));
  };
  checkpoint::ScanLimits limits;
  limits.left_out = [&](const std::string& path, const char* why) {
    if (is_wanted(path)) left_out.add(path, why);
  };
  RN_TRY(const checkpoint::Scan scan, scan_outputs(folder, limits, left_out));
  std::map<std::string, const ListedFile*> base;
  for (const ListedFile& file : entry->base.files) base[file.path] = &file;
  std::uint64_t to_look_at = 0;
  for (const auto& [path, stat] : scan)
    if (is_wanted(path)) to_look_at += bytes_to_send(stat);
  WayHome home(*gauge, is_cancelled, to_look_at);
  Listing listing;
  std::size_t listing_bytes = 0;
  for (const auto& [path, stat] : scan) {
    if (is_cancelled) return fail(ErrorCode::kTimeout, "cancelled");
    if (checkpoint::matches_any(temporary, path)) continue;
    if (stat.kind == FileStat::Kind::kDirectory) {
      // What lies in it is not in the scan; nobody knows whether it was wanted.
      if (const auto inside = folder.list(path); !inside && !is_retryable(inside.error().code))
        left_out.add(path + "/", inside.error());
      continue;
    }
    if (!w.spec.outputs.empty() && !checkpoint::matches_any(w.spec.outputs, path)) continue;
    to_look_at -= bytes_to_send(stat);
    RN_TRY(auto listed, list_or_leave_out(folder, path, stat, left_out));
    if (!listed) continue;
    const ListedFile& file = *listed;
    const auto known = base.find(path);
    const bool is_unchanged = known != base.end() && is_same_content(*known->second, file);
    if (is_unchanged && w.spec.outputs.empty()) {
      home.set_left(to_look_at);
      continue;
    }
    const std::size_t room = to_cbor(Listing{{file}}).size();
    if (listing_bytes + room > kPieceBytes) {
      left_out.add(path, "the list of outputs is full");
      continue;
    }
    listing_bytes += room;
    if (!file.blobs.empty()) RN_CHECK(put_missing(home, file.blobs, folder, path));
    home.set_left(to_look_at);
    listing.files.push_back(*std::move(listed));
  }
  if (listing.files.empty()) return WorkResult(OutputsUploaded{{}, left_out.words()});
  const Blob bytes = to_cbor(listing);
  const Digest name = crypto::sha256(bytes);
  RN_CHECK(put_blob(home, name, bytes));
  return WorkResult(OutputsUploaded{name, left_out.words()});
}

}  // namespace rn::agent
