// SPDX-License-Identifier: Apache-2.0
#include "warden/engine.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/crypto.h"
#include "io/http.h"
#include "io/http_client.h"
#include "model/codec.h"

namespace rn::warden {

namespace {

using nlohmann::json;

constexpr const char* kRoot = "http://engine/v1.41";  // 20.10, the oldest engine we take
constexpr const char* kRepository = "reclaimnet/image";
constexpr std::size_t kHexLength = 64;  ///< with "-" and a lab's 63 it is the longest tag
constexpr milliseconds kAskLimit = seconds(5);
constexpr milliseconds kMakeLimit = seconds(20);
constexpr milliseconds kStartLimit = seconds(30);
constexpr milliseconds kImportLimit = seconds(1800);

/// Versions with known ways out of a container below them. Distributions backport the repairs
/// without raising the number, so by default this only warns.
constexpr const char* kEngineFloor = "20.10.24";
constexpr const char* kRuncFloor = "1.2.8";  // CVE-2025-31133, -52565, -52881

const json& at(const json& document, const char* key) {
  static const json kNothing;
  if (!document.is_object()) return kNothing;
  const auto found = document.find(key);
  return found == document.end() ? kNothing : *found;
}

std::string text(const json& value) {
  return value.is_string() ? value.get<std::string>() : std::string();
}

/// 0 for what does not fit: a pid cut down to 32 bits would be another process's.
std::int32_t number(const json& value) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (!value.is_number_integer()) return 0;
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t{kMost}) return 0;
  const auto wide = value.get<std::int64_t>();
  return wide >= -kMost ? static_cast<std::int32_t>(wide) : 0;
}

bool flag(const json& value) {
  return value.is_boolean() && value.get<bool>();
}

}  // namespace

Error engine_error(int status, const std::string& body) {
  std::string words;
  if (const auto document = parse_json(body)) words = text(at(*document, "message"));
  if (words.empty()) words = "the container engine answered status " + std::to_string(status);
  ErrorCode code = ErrorCode::kInternal;
  if (status == 400) code = ErrorCode::kInvalid;
  if (status == 404) code = ErrorCode::kNotFound;
  if (status == 409 || status == 304) code = ErrorCode::kConflict;
  // The second: dockerd lives, its containerd is being started again.
  if (status == 503 || words.ends_with(": unavailable")) code = ErrorCode::kUnavailable;
  return Error{code, "engine: " + words, {}};
}

namespace {

EngineContainer container_of(const json& document) {
  EngineContainer container;
  container.id = text(at(document, "Id"));
  const json& labels = at(at(document, "Config"), "Labels");
  if (labels.is_object()) {
    for (const auto& [key, value] : labels.items()) container.labels[key] = text(value);
  }
  const json& state = at(document, "State");
  container.is_running = flag(at(state, "Running"));
  container.pid = number(at(state, "Pid"));
  container.exit_code = number(at(state, "ExitCode"));
  container.is_oom_killed = flag(at(state, "OOMKilled"));
  return container;
}

Result<std::string> digest_hex(const std::string& digest) {
  const std::string prefix = "sha256:";
  if (!digest.starts_with(prefix) || !digest_from_hex(digest.substr(prefix.size())))
    return fail(ErrorCode::kInvalid, "\"" + digest + "\" is no digest", "write sha256:HEX");
  return digest.substr(prefix.size());
}

/// The last of what the engine's stream of JSON lines says under `key`, or its "error".
Result<std::string> last_of(const std::string& body, const char* key) {
  std::string last;
  for (std::size_t from = 0; from < body.size();) {
    const std::size_t end = std::min(body.find('\n', from), body.size());
    if (const auto line = parse_json(std::string_view(body).substr(from, end - from))) {
      if (const std::string error = text(at(*line, "error")); !error.empty())
        return fail(ErrorCode::kInvalid, "engine: " + error);
      if (const std::string said = text(at(*line, key)); !said.empty()) last = said;
    }
    from = end + 1;
  }
  return last;
}

/// What the engine says of an image that it has loaded, against what the archive was listed with.
Status check_loaded(const json& image, const std::vector<Digest>& layers) {
  std::vector<std::string> expected;
  for (const Digest& layer : layers) expected.push_back("sha256:" + to_hex(layer));
  std::vector<std::string> actual;
  const json& found = at(at(image, "RootFS"), "Layers");
  for (const json& layer : found.is_array() ? found : json::array()) actual.push_back(text(layer));
  if (actual != expected) {
    return fail(
        ErrorCode::kCorrupt,
        "the image has other layers than it was listed with",
        "list it again: reclaim image add"
    );
  }
  const json& volumes = at(at(image, "Config"), "Volumes");
  if (!volumes.is_object() || volumes.empty()) return {};
  return fail(
      ErrorCode::kInvalid,
      "the image declares a volume, which would lie outside the guest's disk",
      "build it without VOLUME"
  );
}

std::vector<std::string> old_names_in(const json& images) {
  const std::string prefix = std::string(kRepository) + ":";
  std::vector<std::string> names;
  for (const json& image : images.is_array() ? images : json::array()) {
    const json& tags = at(image, "RepoTags");
    for (const json& tag : tags.is_array() ? tags : json::array()) {
      const std::string name = text(tag);
      const bool is_old =
          name.starts_with(prefix) && digest_from_hex(std::string_view(name).substr(prefix.size()));
      if (is_old) names.push_back(name);
    }
  }
  return names;
}

Error wrong_digest(const std::string& digest, const Status& discarded) {
  return Error{
      ErrorCode::kCorrupt,
      "the image archive is not " + digest + (discarded ? "" : "; " + discarded.error().message),
      "fetch it again"};
}

}  // namespace

bool is_below(const std::string& version, const std::string& floor) {
  const auto numbers = [](const std::string& words) {
    std::array<unsigned, 3> parts{};
    std::size_t part = 0;
    for (const char c : words) {
      if (c == '.' && part < 2) {
        ++part;
      } else if (c >= '0' && c <= '9' && parts[part] < 100'000) {
        parts[part] = parts[part] * 10 + static_cast<unsigned>(c - '0');
      } else {
        break;
      }
    }
    return parts;
  };
  return numbers(version) < numbers(floor);
}

Result<io::HttpReply> Engine::send(io::HttpCall call) const {
  call.unix_socket = socket_;
  RN_TRY(io::HttpReply reply, io::perform_blocking(call).map_error([&](const Error& error) {
    return error.with("the engine at " + socket_);
  }));
  if (!reply.is_success()) return fail(engine_error(reply.status, reply.body));
  return reply;
}

Result<io::HttpReply> Engine::request(
    const char* method, const std::string& path, milliseconds limit, std::string body
) const {
  io::HttpCall call;
  call.method = method;
  call.url = kRoot + path;
  call.timeout = limit;
  call.connect_timeout = limit;
  if (!body.empty()) call.headers.emplace_back("Content-Type", "application/json");
  call.body = std::move(body);
  return send(std::move(call));
}

Status Engine::ping(milliseconds limit) const {
  RN_TRY(const io::HttpReply reply, request("GET", "/_ping", limit));
  return {};
}

Result<EngineFacts> Engine::facts() const {
  RN_TRY(const io::HttpReply reply, request("GET", "/version", kAskLimit));
  RN_TRY(const json document, parse_json(reply.body));
  EngineFacts facts;
  const std::string version = text(at(document, "Version"));
  facts.name = "docker " + version;
  if (is_below(version, kEngineFloor))
    facts.warnings.push_back("engine " + version + " is below " + kEngineFloor);
  const json& components = at(document, "Components");
  for (const json& component : components.is_array() ? components : json::array()) {
    if (text(at(component, "Name")) != "runc") continue;
    const std::string runc = text(at(component, "Version"));
    facts.runtime = "runc " + runc;
    if (is_below(runc, kRuncFloor))
      facts.warnings.push_back("runc " + runc + " is below " + kRuncFloor);
  }
  return facts;
}

/// The engine's answer, in JSON lines.
Result<std::string> Engine::upload(const std::string& path, NextPiece next) const {
  io::HttpCall call;
  call.method = "POST";
  call.url = kRoot + path;
  call.headers = {{"Content-Type", "application/x-tar"}};
  call.timeout = kImportLimit;
  call.upload = std::move(next);
  RN_TRY(io::HttpReply reply, send(std::move(call)));
  return std::move(reply.body);
}

Status Engine::name(const std::string& id, const std::string& name) const {
  const std::size_t colon = name.rfind(':');
  const std::string words = "repo=" + io::percent_encode(name.substr(0, colon)) +
                            "&tag=" + io::percent_encode(name.substr(colon + 1));
  RN_CHECK(request("POST", "/images/" + id + "/tag?" + words, kAskLimit));
  return {};
}

/// Removes what was refused, unless another archive, another lab or the owner brought it before. By
/// a name of ours, never by its id: one that the owner gave it meanwhile keeps it.
Status Engine::discard(const std::string& id, const std::set<std::string>& known) const {
  if (known.contains(id)) return {};
  const std::string refused = std::string(kRepository) + ":refused-" + lab_;
  RN_CHECK(name(id, refused));
  return remove_name(refused);
}

Result<std::string> Engine::import_image(const std::string& digest, const ReadAt& read) const {
  RN_TRY(const std::string hex, digest_hex(digest));
  RN_TRY(const auto known, known_ids());
  crypto::Sha256 hash;
  std::uint64_t offset = 0;
  const auto next = [&](std::size_t max) -> Result<Blob> {
    RN_TRY(Blob piece, read(offset, max));
    offset += piece.size();
    hash.update(piece);
    return piece;
  };
  RN_TRY(const std::string answer, upload("/images/create?fromSrc=-", next));
  RN_TRY(const std::string id, last_of(answer, "status"));
  if (!id.starts_with("sha256:"))
    return fail(ErrorCode::kInternal, "engine: the import answered no image id");
  if (to_hex(hash.finish()) != hex) return fail(wrong_digest(digest, discard(id, known)));
  // Only the name makes an image findable for a guest, and it comes after the look at the hash.
  RN_CHECK(name(id, name_of(digest)));
  return id;
}

Result<std::string> Engine::load_image(
    const std::string& digest, const std::vector<Digest>& layers, const ReadAt& read
) const {
  RN_TRY(const std::string hex, digest_hex(digest));
  RN_TRY(SavedImage image, find_saved_image(read));
  RN_TRY(const auto known, known_ids());
  RepackedImage repacked(std::move(image), read);
  RN_TRY(const std::string answer, upload("/images/load?quiet=1", [&](std::size_t max) {
           return repacked.next(max);
         }));
  // "Loaded image ID: sha256:HEX", since it has no name.
  RN_TRY(std::string said, last_of(answer, "stream"));
  const std::size_t colon = said.find(": sha256:");
  if (!said.starts_with("Loaded image") || colon == std::string::npos)
    return fail(ErrorCode::kInternal, "engine: the archive holds no image");
  std::string id = said.substr(colon + 2);
  while (!id.empty() && std::isspace(static_cast<unsigned char>(id.back()))) id.pop_back();
  if (to_hex(repacked.source_digest()) != hex)
    return fail(wrong_digest(digest, discard(id, known)));
  RN_TRY(const io::HttpReply reply, request("GET", "/images/" + id + "/json", kAskLimit));
  RN_TRY(const json document, parse_json(reply.body));
  id = text(at(document, "Id"));
  if (const Status checked = check_loaded(document, layers); !checked) {
    (void)discard(id, known);
    return fail(checked.error());
  }
  RN_CHECK(name(id, name_of(digest)));
  return id;
}

Result<std::vector<EngineImage>> Engine::images() const {
  const json filters = {{"reference", json::array({kRepository})}};
  RN_TRY(
      const io::HttpReply reply,
      request("GET", "/images/json?filters=" + io::percent_encode(filters.dump()), kAskLimit)
  );
  RN_TRY(const json document, parse_json(reply.body));
  std::vector<EngineImage> images;
  for (const json& image : document.is_array() ? document : json::array()) {
    const json& tags = at(image, "RepoTags");
    for (const json& tag : tags.is_array() ? tags : json::array()) {
      const std::string name = text(tag);
      const std::string prefix = std::string(kRepository) + ":";
      if (!name.starts_with(prefix)) continue;
      const std::string digest = "sha256:" + name.substr(prefix.size(), kHexLength);
      if (name == name_of(digest) && digest_hex(digest))
        images.push_back({digest, text(at(image, "Id"))});
    }
  }
  return images;
}

/// Ours, other labs' and the owner's.
Result<std::set<std::string>> Engine::known_ids() const {
  RN_TRY(const io::HttpReply reply, request("GET", "/images/json?all=1", kAskLimit));
  RN_TRY(const json document, parse_json(reply.body));
  std::set<std::string> ids;
  for (const json& image : document.is_array() ? document : json::array())
    ids.insert(text(at(image, "Id")));
  return ids;
}

Result<LeaveReport> Engine::remove_old_names() const {
  RN_TRY(const io::HttpReply reply, request("GET", "/images/json", kAskLimit));
  RN_TRY(const json document, parse_json(reply.body));
  LeaveReport report;
  for (const std::string& name : old_names_in(document)) {
    if (const Status removed = remove_name(name)) {
      report.removed.push_back("image name " + name);
    } else {
      report.stays.push_back("image name " + name + ": " + removed.error().describe());
    }
  }
  return report;
}

std::string Engine::name_of(const std::string& digest) const {
  const std::string prefix = "sha256:";
  const std::string hex = digest.starts_with(prefix) ? digest.substr(prefix.size()) : digest;
  return std::string(kRepository) + ":" + hex + "-" + lab_;
}

Status Engine::remove_image(const std::string& digest) const {
  return remove_name(name_of(digest));
}

/// Parents without a name stay: they may be steps of what the owner builds.
Status Engine::remove_name(const std::string& name) const {
  const std::string path = "/images/" + io::percent_encode(name);
  const auto reply = request("DELETE", path + "?noprune=1", kMakeLimit);
  if (!reply && reply.error().code != ErrorCode::kNotFound) return fail(reply.error());
  return {};
}

Result<std::vector<EngineContainer>> Engine::list(const std::string& key, const std::string& value)
    const {
  const json filters = {{"label", json::array({key + "=" + value})}};
  RN_TRY(
      const io::HttpReply reply,
      request(
          "GET", "/containers/json?all=1&filters=" + io::percent_encode(filters.dump()), kAskLimit
      )
  );
  RN_TRY(const json document, parse_json(reply.body));
  std::vector<EngineContainer> containers;
  for (const json& entry : document.is_array() ? document : json::array()) {
    auto container = inspect(text(at(entry, "Id")));
    if (container) {
      containers.push_back(std::move(*container));
    } else if (container.error().code != ErrorCode::kNotFound) {
      return fail(container.error());
    }
  }
  return containers;
}

Result<EngineContainer> Engine::inspect(const std::string& id) const {
  RN_TRY(const io::HttpReply reply, request("GET", "/containers/" + id + "/json", kAskLimit));
  RN_TRY(const json document, parse_json(reply.body));
  return container_of(document);
}

Result<std::string> Engine::create(const std::string& name, const std::string& body) const {
  RN_TRY(
      const io::HttpReply reply,
      request("POST", "/containers/create?name=" + io::percent_encode(name), kMakeLimit, body)
  );
  RN_TRY(const json document, parse_json(reply.body));
  const std::string id = text(at(document, "Id"));
  if (id.empty()) return fail(ErrorCode::kInternal, "engine: a container without an id");
  return id;
}

Status Engine::start(const std::string& id) const {
  const auto reply = request("POST", "/containers/" + id + "/start", kStartLimit);
  if (!reply) return fail(reply.error());
  return {};
}

Status Engine::kill(const std::string& id) const {
  RN_CHECK(request("POST", "/containers/" + id + "/kill?signal=KILL", kAskLimit));
  return {};
}

Status Engine::remove(const std::string& id) const {
  const auto reply = request("DELETE", "/containers/" + id + "?force=1&v=1", kMakeLimit);
  if (!reply && reply.error().code != ErrorCode::kNotFound) return fail(reply.error());
  return {};
}

Result<std::int32_t> Engine::wait(const std::string& id, milliseconds limit) const {
  RN_TRY(
      const io::HttpReply reply,
      request("POST", "/containers/" + id + "/wait?condition=not-running", limit)
  );
  RN_TRY(const json document, parse_json(reply.body));
  return number(at(document, "StatusCode"));
}

bool has_vanished(bool has_own_code, const EngineContainer& container) {
  const std::int64_t code = container.exit_code;
  const bool is_made_up = code == 137 || code == 255 || code == 0;
  return !has_own_code && is_made_up && !container.is_oom_killed;
}

}  // namespace rn::warden
