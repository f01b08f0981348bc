// SPDX-License-Identifier: Apache-2.0
#include "coordinator/pki.h"

#include <algorithm>
#include <utility>

#include "base/crypto.h"

namespace rn::coordinator {

namespace {

constexpr std::string_view kNodePrefix = "spiffe://reclaimnet/node/";
constexpr std::uint64_t kMaxPemBytes = 64 << 10;
/// A node's clock may be so far behind the coordinator's: it is told its offset, not shut out.
/// Agents reckon with it (agent/renewal.h).
constexpr milliseconds kBackdating = std::chrono::hours(24);

bool is_ip_address(const std::string& name) {
  return name.find(':') != std::string::npos ||
         name.find_first_not_of("0123456789.") == std::string::npos;
}

Result<std::string> read_text(FileSystem& fs, const std::string& path) {
  RN_TRY(const Blob bytes, read_all(fs, path, kMaxPemBytes));
  return std::string(as_text(bytes));
}

Status write_text(FileSystem& fs, const std::string& path, std::string_view text, unsigned mode) {
  return write_durably(fs, path, as_bytes(text), mode);
}

Result<crypto::Key256> read_key(FileSystem& fs, const std::string& path) {
  RN_TRY(std::string text, read_text(fs, path));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const auto key = digest_from_hex(text);
  if (!key) return fail(ErrorCode::kCorrupt, path + " is not a key", "restore it from a backup");
  return *key;
}

/// ca.pem is written last, so its presence says that the folder is complete.
Status create_files(FileSystem& fs, const std::string& folder, Rng& rng, WallTime now) {
  RN_TRY(const auto authority, io::CertificateAuthority::create("ReclaimNet site CA", now));
  const auto put_key = [&](const std::string& name, const crypto::Key256& key) {
    return write_text(fs, join_path(folder, name), to_hex(key) + "\n", 0600);
  };
  RN_CHECK(put_key("site.key", crypto::random_key(rng)));
  RN_CHECK(put_key("ticket.key", crypto::make_signing_key(rng).seed));
  RN_CHECK(write_text(fs, join_path(folder, "ca.key"), authority.private_key_pem(), 0600));
  return write_text(fs, join_path(folder, "ca.pem"), authority.certificate_pem(), 0644);
}

}  // namespace

std::string node_identity(const NodeId& node) {
  return std::string(kNodePrefix) + node.str();
}

std::optional<NodeId> node_of_identity(const std::string& uri) {
  if (!uri.starts_with(kNodePrefix) || uri.size() == kNodePrefix.size()) return std::nullopt;
  std::string id = uri.substr(kNodePrefix.size());
  if (id.find('/') != std::string::npos) return std::nullopt;
  return NodeId(std::move(id));
}

Result<Digest> public_key_digest(const std::string& public_key_pem) {
  const auto begin = public_key_pem.find('\n');
  const auto end = public_key_pem.find("-----END PUBLIC KEY-----");
  if (begin == std::string::npos || end == std::string::npos || begin > end)
    return fail(ErrorCode::kInvalid, "not a public key in PEM form");
  std::string body = public_key_pem.substr(begin, end - begin);
  std::erase(body, '\n');
  RN_TRY(const Blob der, from_base64(body));
  return crypto::sha256(der);
}

SitePki::SitePki(io::CertificateAuthority authority, SiteKeys keys, std::string server_key)
    : authority_(std::move(authority)), keys_(keys), server_key_(std::move(server_key)) {}

Result<SitePki> SitePki::open_or_create(
    FileSystem& fs, const std::string& folder, Rng& rng, WallTime now
) {
  RN_CHECK(make_folders(fs, folder, 0700));
  if (!fs.stat(join_path(folder, "ca.pem"))) RN_CHECK(create_files(fs, folder, rng, now));
  const auto opened = [&]() -> Result<SitePki> {
    RN_TRY(const std::string certificate, read_text(fs, join_path(folder, "ca.pem")));
    RN_TRY(const std::string key, read_text(fs, join_path(folder, "ca.key")));
    RN_TRY(auto authority, io::CertificateAuthority::load(certificate, key));
    SiteKeys keys;
    RN_TRY(keys.wrapping_key, read_key(fs, join_path(folder, "site.key")));
    RN_TRY(const auto seed, read_key(fs, join_path(folder, "ticket.key")));
    keys.ticket_key = crypto::signing_key_from_seed(seed);
    RN_TRY(std::string server_key, io::make_private_key(io::KeyKind::kP256));
    return SitePki(std::move(authority), keys, std::move(server_key));
  }();
  if (!opened) {
    return fail(
        ErrorCode::kCorrupt,
        "the site's keys in " + folder + " cannot be used: " + opened.error().message,
        "restore the folder from a backup; new keys would make every node join again"
    );
  }
  return opened;
}

Result<io::TlsConfig> SitePki::issue_server(const std::vector<std::string>& names, WallTime now)
    const {
  io::CertificateSpec spec;
  spec.common_name = "reclaim-coordinator";
  spec.uris = {kCoordinatorIdentity};
  spec.validity = certificate_lifetime_;
  spec.backdating = kBackdating;
  spec.dns_names = {"localhost"};
  spec.ip_addresses = {"127.0.0.1", "::1"};
  for (const std::string& name : names) {
    auto& list = is_ip_address(name) ? spec.ip_addresses : spec.dns_names;
    if (std::find(list.begin(), list.end(), name) == list.end()) list.push_back(name);
  }
  io::TlsConfig tls;
  RN_TRY(const std::string public_key, io::public_key_of(server_key_));
  RN_TRY(tls.cert_pem, authority_.issue(public_key, spec, now));
  tls.key_pem = server_key_;
  tls.ca_pem = ca_pem();
  tls.require_peer_certificate = false;
  return tls;
}

Result<std::string> SitePki::issue_node(
    const std::string& csr_pem, const NodeId& node, WallTime now
) const {
  io::CertificateSpec spec;
  spec.common_name = node.str().substr(0, 64);
  spec.uris = {node_identity(node)};
  spec.validity = certificate_lifetime_;
  spec.backdating = kBackdating;
  return authority_.issue_for_request(csr_pem, spec, now);
}

Result<Digest> SitePki::key_of_request(const std::string& csr_pem, WallTime now) const {
  // NOTE: the certificate is thrown away; it is the way to read a request's key after its signature
  // was checked.
  io::CertificateSpec spec;
  spec.common_name = "request";
  spec.uris = {"spiffe://reclaimnet/request"};
  RN_TRY(const std::string certificate, authority_.issue_for_request(csr_pem, spec, now));
  RN_TRY(const auto info, io::read_certificate(certificate));
  return public_key_digest(info.public_key_pem);
}

}  // namespace rn::coordinator
