// SPDX-License-Identifier: Apache-2.0
#include "model/warden.h"

#include <algorithm>
#include <array>

#include "model/codec_detail.h"

namespace rn::warden_wire {

namespace {

/// In the order of Request's alternatives.
constexpr std::array<std::string_view, std::variant_size_v<Request>> kRequests = {
    "prepare_disk",
    "adopt_disk",
    "release_disk",
    "start_guest",
    "signal_guest",
    "kill_guest",
    "write_notice",
    "remove_guest",
    "load_image",
    "query",
    "evacuation_done",
    "declare_reclaim",
    "release",
    "pause",
    "resume",
    "announce",
    "set_transfers",
    "tell_guest",
    "announce_gpu"};
/// Mounting over one of these, or below one, would replace what the image or the kernel provides.
constexpr std::array<std::string_view, 19> kSystemFolders = {
    "bin",
    "boot",
    "dev",
    "etc",
    "lib",
    "lib32",
    "lib64",
    "libx32",
    "proc",
    "reclaim",
    "reclaim-init",
    "reclaim-slurm",
    "run",
    "sbin",
    "sys",
    "tmp",
    "usr",
    "var",
    "lost+found"};
constexpr std::array<std::string_view, std::variant_size_v<Reply>> kReplies = {
    "answer", "state_changed"};

}  // namespace

bool steers_runtime(std::string_view variable) {
  return variable.starts_with("NVIDIA_") || variable.starts_with("LD_") ||
         variable.starts_with("DOCKER") || variable == "GLIBC_TUNABLES";
}

std::string_view why_no_work_folder(std::string_view folder) {
  if (folder.size() < 2 || folder.size() > 255 || folder.front() != '/')
    return "is not an absolute path below /";
  for (const char c : folder) {
    if (static_cast<unsigned char>(c) < 0x21 || c == 0x7f || c == ',' || c == ':')
      return "has a blank, comma, colon or control character";
  }
  std::string_view rest = folder.substr(1);
  const std::string_view first = rest.substr(0, rest.find('/'));
  if (std::find(kSystemFolders.begin(), kSystemFolders.end(), first) != kSystemFolders.end())
    return "lies over a system folder";
  while (!rest.empty()) {
    const auto slash = rest.find('/');
    const std::string_view part = rest.substr(0, slash);
    if (part.empty() || part == "." || part == "..") return "is not a plain path";
    if (slash == std::string_view::npos) break;
    rest.remove_prefix(slash + 1);
    if (rest.empty()) return "ends with a slash";
  }
  return {};
}

bool is_owner_only(const Request& request) {
  return std::holds_alternative<Release>(request) || std::holds_alternative<Pause>(request) ||
         std::holds_alternative<Resume>(request);
}

Blob encode(const NumberedRequest& request) {
  nlohmann::json envelope = detail::write_variant(request.request, kRequests);
  envelope["number"] = request.number;
  return detail::to_binary(envelope);
}

Result<NumberedRequest> decode_request(BlobView bytes) {
  if (bytes.size() > kMaxFrameBytes)
    return fail(ErrorCode::kExhausted, "request is larger than 1 MiB");
  RN_TRY(const nlohmann::json envelope, parse_cbor(bytes));
  NumberedRequest out;
  RN_TRY(out.request, detail::read_variant<Request>(envelope, kRequests));
  const auto number = envelope.find("number");
  if (number == envelope.end()) return fail(ErrorCode::kInvalid, "request has no number");
  RN_CHECK(detail::read(*number, out.number, "number", Unknown::kLenient));
  return out;
}

Blob encode(const Reply& reply) {
  return detail::to_binary(detail::write_variant(reply, kReplies));
}

Result<Reply> decode_reply(BlobView bytes) {
  if (bytes.size() > kMaxFrameBytes)
    return fail(ErrorCode::kExhausted, "reply is larger than 1 MiB");
  RN_TRY(const nlohmann::json envelope, parse_cbor(bytes));
  return detail::read_variant<Reply>(envelope, kReplies);
}

std::uint64_t mask_of(const std::vector<std::uint32_t>& gpus) {
  std::uint64_t mask = 0;
  for (const std::uint32_t gpu : gpus) {
    if (gpu < kMaxGpus) mask |= std::uint64_t{1} << gpu;
  }
  return mask;
}

Status check_gpus(const std::vector<std::uint32_t>& gpus) {
  for (const std::uint32_t gpu : gpus) {
    if (gpu < kMaxGpus) continue;
    return fail(
        ErrorCode::kInvalid,
        "there is no GPU " + std::to_string(gpu) + ": a node's GPUs are 0 to 63",
        "reclaim-agent status lists them"
    );
  }
  return {};
}

}  // namespace rn::warden_wire
