// SPDX-License-Identifier: Apache-2.0
#include "agent/identity.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "io/http_client.h"
#include "model/api.h"
#include "model/codec_detail.h"

namespace rn::agent {

namespace {

constexpr const char* kNodePrefix = "spiffe://reclaimnet/node/";
constexpr std::uint64_t kFileBytesMax = 1u << 20;
constexpr const char* kLeftFile = "left";

struct IdentityFile {
  std::string node_id;
  std::string lab;
  std::string machine_id;
  std::string coordinator_url;
  std::string agent_url;
  std::string shown_as;

  RN_FIELDS(IdentityFile, node_id, lab, machine_id, coordinator_url, agent_url, shown_as)
};

Status write(FileSystem& fs, const std::string& folder, const char* name, const std::string& text) {
  return write_durably(fs, join_path(folder, name), as_bytes(text), 0600);
}

Result<std::string> read(FileSystem& fs, const std::string& folder, const char* name) {
  const std::string path = join_path(folder, name);
  auto bytes = read_all(fs, path, kFileBytesMax);
  if (!bytes)
    return fail(
        bytes.error()
            .with("the identity")
            .hinting(
                "join again: reclaim-agent leave --purge, then reclaim-agent join URL --token T"
            )
    );
  return std::string(as_text(*bytes));
}

Result<crypto::Key256> read_key(FileSystem& fs, const std::string& folder, const char* name) {
  RN_TRY(const std::string hex, read(fs, folder, name));
  const auto digest = digest_from_hex(hex);
  if (!digest) return fail(ErrorCode::kCorrupt, std::string(name) + " is not a key");
  crypto::Key256 key{};
  std::copy(digest->begin(), digest->end(), key.begin());
  return key;
}

bool is_hex(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  });
}

Result<api::JoinAnswer> redeem(
    const JoinOptions& options, const std::string& fingerprint, const api::JoinRequest& request
) {
  io::HttpCall call;
  call.method = "POST";
  call.url = options.url + "/v1/join";
  call.headers = {{"Content-Type", "application/json"}};
  call.body = to_json(request);
  io::TlsConfig tls;
  tls.ca_fingerprint = fingerprint;
  tls.expected_peer = kCoordinatorIdentity;
  call.tls = std::move(tls);
  auto reply = io::succeed(io::perform_blocking(call));
  if (!reply) {
    const ErrorCode code = reply.error().code;
    const char* hint = code == ErrorCode::kDenied
                           ? "ask the lab's owner for a fresh token: reclaim token create --lab LAB"
                           : "check the URL and that the coordinator runs, then try again";
    return fail(reply.error().with("joining " + options.url).hinting(hint));
  }
  return from_json<api::JoinAnswer>(reply->body, Unknown::kLenient);
}

}  // namespace

std::string identity_of(const NodeId& node) {
  return kNodePrefix + node.str();
}

NodeId node_of(const std::string& identity) {
  if (!identity.starts_with(kNodePrefix)) return {};
  return NodeId(identity.substr(std::string_view(kNodePrefix).size()));
}

Result<std::string> machine_id(FileSystem& fs, const std::string& file) {
  const auto bytes = read_all(fs, file, 4096);
  if (!bytes)
    return fail(
        bytes.error()
            .with("the machine's identifier")
            .hinting("run systemd-machine-id-setup, or name another file with --machine-id-file")
    );
  Blob message(bytes->begin(), bytes->end());
  const BlobView salt = as_bytes("reclaimnet machine id v1");
  message.insert(message.end(), salt.begin(), salt.end());
  return to_hex(crypto::sha256(message));
}

Result<JoinToken> parse_join_token(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == '.') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  const char* hint =
      "copy the whole token as the coordinator printed it: rn1.ID.SECRET.FINGERPRINT";
  if (parts.front() == api::kUserTokenPrefix)
    return fail(
        ErrorCode::kInvalid,
        "this is a user's token, not a join token",
        "make one: reclaim token create --lab LAB"
    );
  if (parts.size() != 4 || parts.front() != api::kJoinTokenPrefix)
    return fail(ErrorCode::kInvalid, "this is no join token", hint);
  JoinToken token{parts[1], parts[2], parts[3]};
  if (token.id.empty() || token.secret.empty())
    return fail(ErrorCode::kInvalid, "the token is cut short", hint);
  if (token.ca_fingerprint.size() != 64 || !is_hex(token.ca_fingerprint))
    return fail(ErrorCode::kInvalid, "the token's CA fingerprint is not 64 hex digits", hint);
  return token;
}

std::string expiry_of(const Identity& identity, WallTime now) {
  const auto certificate = io::read_certificate(identity.certificate_pem);
  if (!certificate) return "this machine's certificate cannot be read";
  if (certificate->not_after > now) return {};
  const auto days =
      std::chrono::duration_cast<std::chrono::hours>(now - certificate->not_after) / 24;
  return "this machine's certificate has expired" +
         (days.count() > 0 ? " " + std::to_string(days.count()) + " days ago" : std::string()) +
         ": it was off for longer than a certificate lives";
}

std::string rejoin_help(const Identity& identity) {
  return "check the machine's clock; if it is right, make a token at the coordinator (`reclaim "
         "token "
         "create --lab " +
         identity.lab.str() + "`), then here `reclaim-agent join " + identity.coordinator_url +
         " --token T` (it stays the same node, with its data) and restart reclaim-agent";
}

namespace {

/// Redeems the token for the identity's keys; fills in what the coordinator says.
Status enrol(Identity& identity, const JoinOptions& options, const std::string& fingerprint) {
  if (!options.shown_as.empty()) identity.shown_as = options.shown_as;
  api::JoinRequest request;
  request.token = options.token;
  request.hostname = identity.shown_as.empty() ? options.hostname : identity.shown_as;
  RN_TRY(
      request.csr_pem, io::make_signing_request(identity.key_pem, request.hostname.substr(0, 64))
  );
  request.machine_id = identity.machine_id = options.machine_id;
  request.lab = options.lab;
  request.verify_key = identity.signing.public_key;
  request.box_key = identity.box.public_key;
  RN_TRY(const api::JoinAnswer answer, redeem(options, fingerprint, request));
  RN_TRY(const std::string own_fingerprint, io::certificate_fingerprint(answer.ca_pem));
  if (own_fingerprint != fingerprint)
    return fail(
        ErrorCode::kDenied,
        "the coordinator answered with another CA than the token names",
        "somebody may be in between: ask the operator"
    );
  if (!identity.node.empty() && identity.node.str() != answer.node_id)
    return fail(
        ErrorCode::kConflict,
        "the coordinator calls this machine " + answer.node_id + ", it was " + identity.node.str(),
        "start anew: reclaim-agent leave --purge, then reclaim-agent join"
    );
  identity.node = NodeId(answer.node_id);
  identity.lab = LabId(answer.lab);
  identity.certificate_pem = answer.certificate_pem;
  identity.ca_pem = answer.ca_pem;
  identity.coordinator_url = answer.coordinator_url.empty() ? options.url : answer.coordinator_url;
  identity.agent_url = answer.agent_url;
  return {};
}

/// identity.json comes last: with it the machine has joined.
Status store_names(FileSystem& fs, const std::string& folder, const Identity& identity) {
  RN_CHECK(store_certificate(fs, folder, identity.certificate_pem, identity.ca_pem));
  const IdentityFile file{
      identity.node.str(),
      identity.lab.str(),
      identity.machine_id,
      identity.coordinator_url,
      identity.agent_url,
      identity.shown_as};
  return write(fs, folder, "identity.json", to_json(file));
}

Result<Identity> join_again(
    FileSystem& fs, const JoinOptions& options, const std::string& fingerprint
) {
  RN_TRY(Identity identity, load_identity(fs, options.folder, options.machine_id));
  if (has_left(fs, options.folder))
    return fail(
        ErrorCode::kConflict,
        "this machine has left its site for good (" + options.folder + "), and its files are here",
        "reclaim-agent leave --purge removes them; then join"
    );
  if (!options.is_again && expiry_of(identity, options.now).empty())
    return fail(
        ErrorCode::kConflict,
        "this machine has joined already (" + options.folder + ")",
        "reclaim-agent status shows where; --again gets it another certificate; reclaim-agent "
        "leave "
        "--purge forgets it"
    );
  RN_TRY(const std::string known, io::certificate_fingerprint(identity.ca_pem));
  if (known != fingerprint)
    return fail(
        ErrorCode::kConflict,
        "this machine belongs to another site than the token (" + identity.coordinator_url + ")",
        "ask that site for a token, or forget it first: reclaim-agent leave --purge"
    );
  RN_CHECK(enrol(identity, options, fingerprint));
  RN_CHECK(store_names(fs, options.folder, identity));
  return identity;
}

}  // namespace

Status note_left(FileSystem& fs, const std::string& folder) {
  return write(fs, folder, kLeftFile, "the coordinator knows\n");
}

bool has_left(FileSystem& fs, const std::string& folder) {
  return fs.stat(join_path(folder, kLeftFile)).has_value();
}

Result<Identity> join(FileSystem& fs, Rng& rng, const JoinOptions& options) {
  const bool has_identity = fs.stat(join_path(options.folder, "identity.json")).has_value();
  RN_TRY(const JoinToken token, parse_join_token(options.token));
  const std::string fingerprint =
      options.ca_fingerprint.empty() ? token.ca_fingerprint : options.ca_fingerprint;
  if (has_identity) return join_again(fs, options, fingerprint);
  RN_CHECK(make_folders(fs, options.folder, 0700));
  Identity identity;
  RN_TRY(identity.key_pem, io::make_private_key(io::KeyKind::kP256));
  identity.signing = crypto::make_signing_key(rng);
  identity.box = crypto::make_box_key(rng);
  RN_CHECK(enrol(identity, options, fingerprint));
  RN_CHECK(write(fs, options.folder, "node.key", identity.key_pem));
  RN_CHECK(write(fs, options.folder, "sign.key", to_hex(identity.signing.seed)));
  RN_CHECK(write(fs, options.folder, "box.key", to_hex(identity.box.secret)));
  RN_CHECK(store_names(fs, options.folder, identity));
  return identity;
}

Status store_certificate(
    FileSystem& fs,
    const std::string& folder,
    const std::string& certificate_pem,
    const std::string& ca_pem
) {
  RN_CHECK(write(fs, folder, "ca.pem", ca_pem));
  return write(fs, folder, "node.pem", certificate_pem);
}

Result<Identity> load_identity(
    FileSystem& fs, const std::string& folder, const std::string& machine_id
) {
  if (!fs.stat(join_path(folder, "identity.json")))
    return fail(
        ErrorCode::kNotFound,
        "this machine has not joined a coordinator yet",
        "reclaim-agent join URL --token T"
    );
  RN_TRY(const std::string text, read(fs, folder, "identity.json"));
  const auto file = from_json<IdentityFile>(text, Unknown::kLenient);
  if (!file) return fail(ErrorCode::kCorrupt, "identity.json: " + file.error().message);
  if (file->machine_id != machine_id)
    return fail(
        ErrorCode::kConflict,
        "the identity in " + folder + " belongs to another machine (a copied disk or folder?)",
        "join this machine on its own: reclaim-agent leave --purge, then reclaim-agent join"
    );
  Identity identity;
  identity.node = NodeId(file->node_id);
  identity.lab = LabId(file->lab);
  identity.machine_id = file->machine_id;
  identity.coordinator_url = file->coordinator_url;
  identity.agent_url = file->agent_url;
  identity.shown_as = file->shown_as;
  RN_TRY(identity.key_pem, read(fs, folder, "node.key"));
  RN_TRY(identity.certificate_pem, read(fs, folder, "node.pem"));
  RN_TRY(identity.ca_pem, read(fs, folder, "ca.pem"));
  RN_TRY(const crypto::Key256 seed, read_key(fs, folder, "sign.key"));
  RN_TRY(const crypto::Key256 secret, read_key(fs, folder, "box.key"));
  identity.signing = crypto::signing_key_from_seed(seed);
  identity.box = crypto::box_key_from_secret(secret);
  return identity;
}

std::shared_ptr<const Identity> CurrentIdentity::get() const {
  const std::lock_guard lock(mutex_);
  return identity_;
}

void CurrentIdentity::renew(std::string certificate_pem, std::string ca_pem) {
  const std::lock_guard lock(mutex_);
  Identity fresh = *identity_;
  fresh.certificate_pem = std::move(certificate_pem);
  fresh.ca_pem = std::move(ca_pem);
  identity_ = std::make_shared<const Identity>(std::move(fresh));
}

io::TlsConfig tls_to_coordinator(const Identity& identity) {
  io::TlsConfig tls = tls_server(identity);
  tls.expected_peer = kCoordinatorIdentity;
  return tls;
}

io::TlsConfig tls_to_peer(const Identity& identity, const NodeId& peer) {
  io::TlsConfig tls = tls_server(identity);
  tls.expected_peer = identity_of(peer);
  return tls;
}

io::TlsConfig tls_server(const Identity& identity) {
  io::TlsConfig tls;
  tls.ca_pem = identity.ca_pem;
  tls.cert_pem = identity.certificate_pem;
  tls.key_pem = identity.key_pem;
  return tls;
}

}  // namespace rn::agent
