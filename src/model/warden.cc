// SPDX-License-Identifier: Apache-2.0
#include "model/warden.h"

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
    "announce"};
constexpr std::array<std::string_view, std::variant_size_v<Reply>> kReplies = {
    "answer", "state_changed"};

}  // namespace

bool steers_runtime(std::string_view variable) {
  return variable.starts_with("NVIDIA_") || variable.starts_with("LD_") ||
         variable.starts_with("DOCKER") || variable == "GLIBC_TUNABLES";
}

bool is_owner_only(const Request& request) {
  return std::holds_alternative<DeclareReclaim>(request) ||
         std::holds_alternative<Release>(request) || std::holds_alternative<Pause>(request) ||
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
