// SPDX-License-Identifier: Apache-2.0
#include "model/codec.h"

#include <algorithm>

#include "model/checkpoint.h"
#include "model/codec_detail.h"
#include "model/job.h"
#include "model/node.h"
#include "model/reclaim.h"
#include "model/what_is.h"

namespace rn {

namespace detail {

namespace {

std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0U : 1U)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

/// Builds the document like nlohmann's own handler, and stops at kMaxNesting before the recursive
/// parser goes deeper.
class BoundedSax : public nlohmann::detail::json_sax_dom_parser<json> {
  using Base = nlohmann::detail::json_sax_dom_parser<json>;

 public:
  explicit BoundedSax(json& out) : Base(out, false) {}

  bool start_object(std::size_t count) {
    return count_down(count) && Base::start_object(std::size_t(-1));
  }

  bool end_object() { return --depth_, Base::end_object(); }

  bool start_array(std::size_t count) {
    return count_down(count) && Base::start_array(std::size_t(-1));
  }

  bool end_array() { return --depth_, Base::end_array(); }

  template <class Exception>
  bool parse_error(std::size_t position, const std::string& token, const Exception& error) {
    // Without the library's own "[json.exception.parse_error.101] ".
    const std::string_view what = error.what();
    const std::size_t mark = what.starts_with('[') ? what.find("] ") : std::string_view::npos;
    message_ = what.substr(mark == std::string_view::npos ? 0 : mark + 2);
    return Base::parse_error(position, token, error);
  }

  bool is_too_deep() const { return is_too_deep_; }

  const std::string& message() const { return message_; }

 private:
  // NOTE: a container's announced length is the sender's word; it is never used to reserve memory.
  bool count_down(std::size_t) {
    is_too_deep_ = ++depth_ > kMaxNesting;
    return !is_too_deep_;
  }

  std::size_t depth_ = 0;
  bool is_too_deep_ = false;
  std::string message_;
};

template <class Input>
Result<json> parse_bounded(const Input& input, json::input_format_t format) {
  json document;
  BoundedSax sax(document);
  // NOTE: invalid sizes inside binary values still throw out_of_range in this library version.
  try {
    if (json::sax_parse(input.begin(), input.end(), &sax, format)) return document;
  } catch (const json::exception& error) {
    return fail(ErrorCode::kInvalid, error.what());
  }
  if (sax.is_too_deep())
    return fail(
        ErrorCode::kExhausted, "nested deeper than " + std::to_string(kMaxNesting) + " levels"
    );
  return fail(ErrorCode::kInvalid, sax.message().empty() ? "malformed document" : sax.message());
}

}  // namespace

std::string nearest_word(const std::string& word, const std::vector<std::string>& known) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

Error at_field(const std::string& path, const std::string& what) {
  return Error{
      ErrorCode::kInvalid, (path.empty() ? std::string("document") : path) + ": " + what, ""};
}

json write_bytes(BlobView bytes, Format format, bool as_hex) {
  if (format == Format::kBinary) return json::binary(Blob(bytes.begin(), bytes.end()));
  return as_hex ? to_hex(bytes) : to_base64(bytes);
}

json write_text(std::string_view text) {
  return text;
}

json write_texts(const std::map<std::string, std::string>& texts) {
  return texts;
}

void put_field(json& document, std::string_view name, json&& value) {
  document[std::string(name)] = std::move(value);
}

std::string to_text(const json& document) {
  return document.dump(-1, ' ', false, json::error_handler_t::replace);
}

Blob to_binary(const json& document) {
  return json::to_cbor(document);
}

Result<Blob> blob_from(const json& document, const std::string& path) {
  if (document.is_binary()) return Blob(document.get_binary());
  if (!document.is_string()) return fail(at_field(path, "expected base64"));
  auto raw = from_base64(document.get_ref<const std::string&>());
  if (!raw) return fail(at_field(path, raw.error().message));
  return raw;
}

namespace {

template <class T>
Error out_of_bounds(const std::string& path, T min, T max) {
  return at_field(
      path, "expected a whole number from " + std::to_string(min) + " to " + std::to_string(max)
  );
}

}  // namespace

Result<std::uint64_t> read_unsigned(
    const json& document, std::uint64_t max, const std::string& path
) {
  // NOTE: a positive number that was built, not parsed, is a signed one.
  if (document.is_number_unsigned()) {
    const auto raw = document.get<std::uint64_t>();
    if (raw <= max) return raw;
  } else if (document.is_number_integer()) {
    const auto raw = document.get<std::int64_t>();
    if (raw >= 0 && static_cast<std::uint64_t>(raw) <= max) return static_cast<std::uint64_t>(raw);
  }
  return fail(out_of_bounds<std::uint64_t>(path, 0, max));
}

Result<std::int64_t> read_signed(
    const json& document, std::int64_t min, std::int64_t max, const std::string& path
) {
  if (document.is_number_unsigned()) {
    const auto raw = document.get<std::uint64_t>();
    if (raw <= static_cast<std::uint64_t>(max)) return static_cast<std::int64_t>(raw);
  } else if (document.is_number_integer()) {
    const auto raw = document.get<std::int64_t>();
    if (raw >= min && raw <= max) return raw;
  }
  return fail(out_of_bounds(path, min, max));
}

Result<std::size_t> read_word(
    const json& document, std::span<const std::string_view> words, const std::string& path
) {
  if (document.is_string()) {
    const auto found =
        std::find(words.begin(), words.end(), document.get_ref<const std::string&>());
    if (found != words.end()) return static_cast<std::size_t>(found - words.begin());
  }
  std::string known;
  for (const auto word : words) known += (known.empty() ? "" : ", ") + std::string(word);
  return fail(at_field(path, "expected one of " + known));
}

Status read_bool(const json& document, bool& out, const std::string& path) {
  if (!document.is_boolean())
    return fail(at_field(path, "expected true or false, found " + what_is(document)));
  out = document.get<bool>();
  return {};
}

Status read_string(const json& document, std::string& out, const std::string& path) {
  if (!document.is_string())
    return fail(at_field(path, "expected a string, found " + what_is(document)));
  out = document.get_ref<const std::string&>();
  return {};
}

Status read_epoch(const json& document, LeaseEpoch& out, const std::string& path) {
  if (!document.is_string()) return fail(at_field(path, "expected an epoch such as \"3.7\""));
  const auto& text = document.get_ref<const std::string&>();
  out = parse_epoch(text);
  if (out.is_none() && text != "0.0")
    return fail(at_field(path, "expected an epoch such as \"3.7\""));
  return {};
}

Status read_digest(const json& document, Digest& out, const std::string& path) {
  RN_TRY(const Blob raw, [&]() -> Result<Blob> {
    if (document.is_binary()) return Blob(document.get_binary());
    if (document.is_string()) return from_hex(document.get_ref<const std::string&>());
    return Blob{};
  }());
  if (raw.size() != out.size()) return fail(at_field(path, "expected a SHA-256 of 64 hex digits"));
  std::copy(raw.begin(), raw.end(), out.begin());
  return {};
}

Status read_texts(
    const json& document, std::map<std::string, std::string>& out, const std::string& path
) {
  if (!document.is_object())
    return fail(at_field(path, "expected an object of strings, found " + what_is(document)));
  out.clear();
  for (const auto& [key, value] : document.items())
    RN_CHECK(read_string(value, out[key], path + "." + key));
  return {};
}

Status expect_list(const json& document, const std::string& path) {
  if (!document.is_array())
    return fail(at_field(path, "expected a list, found " + what_is(document)));
  return {};
}

Status expect_number(const json& document, const std::string& path) {
  if (!document.is_number())
    return fail(at_field(path, "expected a number, found " + what_is(document)));
  return {};
}

std::string at_index(const std::string& path, std::size_t index) {
  return path + "[" + std::to_string(index) + "]";
}

FieldReader::FieldReader(const json& document, const std::string& path, Unknown unknown)
    : document_(document), path_(path), unknown_(unknown) {
  if (!document.is_object())
    result_ = fail(at_field(path, "expected an object, found " + what_is(document)));
}

std::string FieldReader::path_of(std::string_view name) const {
  return path_.empty() ? std::string(name) : path_ + "." + std::string(name);
}

const json* FieldReader::find(std::string_view name) {
  if (!result_) return nullptr;
  known_.emplace_back(name);
  const auto found = document_.find(known_.back());
  if (found == document_.end()) return nullptr;
  field_path_ = path_of(name);
  return &*found;
}

void FieldReader::note(Status status) {
  if (result_) result_ = std::move(status);
}

Status FieldReader::finish() {
  if (!result_ || unknown_ == Unknown::kLenient) return result_;
  for (const auto& [key, value] : document_.items()) {
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    Error error = at_field(path_of(key), "no such field");
    const std::string near = nearest_word(key, known_);
    error.hint = near.empty() ? "remove it" : "did you mean '" + near + "'?";
    return fail(error);
  }
  return {};
}

json envelope_of(std::string_view word, json&& body) {
  json envelope;
  envelope["type"] = word;
  envelope["body"] = std::move(body);
  return envelope;
}

Result<Opened> open_envelope(const json& envelope, std::span<const std::string_view> names) {
  if (!envelope.is_object()) return fail(ErrorCode::kInvalid, "message is not an object");
  const auto type = envelope.find("type");
  const auto body = envelope.find("body");
  if (type == envelope.end() || !type->is_string() || body == envelope.end()) {
    return fail(ErrorCode::kInvalid, "message has no type or no body");
  }
  const auto& word = type->get_ref<const std::string&>();
  const auto found = std::find(names.begin(), names.end(), word);
  if (found == names.end())
    return fail(ErrorCode::kUnsupported, "unknown message type '" + word.substr(0, 40) + "'");
  return Opened{static_cast<std::size_t>(found - names.begin()), &*body};
}

}  // namespace detail

Result<nlohmann::json> parse_json(std::string_view text) {
  return detail::parse_bounded(text, nlohmann::json::input_format_t::json);
}

Result<nlohmann::json> parse_cbor(BlobView bytes) {
  return detail::parse_bounded(bytes, nlohmann::json::input_format_t::cbor);
}

RN_INSTANTIATE_CODEC(Gpu)
RN_INSTANTIATE_CODEC(NodeFacts)
RN_INSTANTIATE_CODEC(NodeTelemetry)
RN_INSTANTIATE_CODEC(Contract)
RN_INSTANTIATE_CODEC(ReclaimRecord)
RN_INSTANTIATE_CODEC(ChunkRef)
RN_INSTANTIATE_CODEC(Manifest)
RN_INSTANTIATE_CODEC(SignedManifest)
RN_INSTANTIATE_CODEC(GenerationRef)
RN_INSTANTIATE_CODEC(Receipt)
RN_INSTANTIATE_CODEC(Ticket)
RN_INSTANTIATE_CODEC(PeerGrant)
RN_INSTANTIATE_CODEC(CheckpointSpec)
RN_INSTANTIATE_CODEC(JobSpec)
RN_INSTANTIATE_CODEC(Job)
RN_INSTANTIATE_CODEC(Attempt)
RN_INSTANTIATE_CODEC(Listing)
RN_INSTANTIATE_CODEC(Image)

}  // namespace rn
