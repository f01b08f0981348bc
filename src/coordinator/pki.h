// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/ids.h"
#include "base/rng.h"
#include "base/time.h"
#include "coordinator/core_types.h"
#include "io/pki.h"

namespace rn::coordinator {

/// Identity in the coordinator's own certificate; agents expect it whatever name they dialled.
inline constexpr const char* kCoordinatorIdentity = "spiffe://reclaimnet/coordinator";

std::string node_identity(const NodeId& node);  ///< "spiffe://reclaimnet/node/n-…"
/// nullopt for anything that is not a node's identity.
std::optional<NodeId> node_of_identity(const std::string& uri);

/// SHA-256 of the SubjectPublicKeyInfo (DER) inside a PEM "PUBLIC KEY". kInvalid.
Result<Digest> public_key_digest(const std::string& public_key_pem);

/// The site's own keys, in FOLDER: ca.pem, ca.key, ticket.key, site.key. Made at the first start;
/// losing them means joining every node again. Blocking.
class SitePki {
 public:
  /// kCorrupt if a file is there and cannot be used, or if only some are there.
  static Result<SitePki> open_or_create(
      FileSystem& fs, const std::string& folder, Rng& rng, WallTime now
  );

  /// A fresh certificate for the coordinator: kCoordinatorIdentity, `names` (DNS names or IP
  /// addresses), localhost. With the CA's certificate behind it.
  Result<io::TlsConfig> issue_server(const std::vector<std::string>& names, WallTime now) const;
  /// Certificate for a node's signing request. kDenied if the request's own signature is wrong.
  Result<std::string> issue_node(const std::string& csr_pem, const NodeId& node, WallTime now)
      const;
  /// What a signing request asks a certificate for: public_key_digest of its key.
  Result<Digest> key_of_request(const std::string& csr_pem, WallTime now) const;

  /// How long certificates live that are issued from now on (default: io::kCertificateValidity).
  void set_certificate_lifetime(milliseconds lifetime) { certificate_lifetime_ = lifetime; }

  const SiteKeys& keys() const { return keys_; }

  const std::string& ca_pem() const { return authority_.certificate_pem(); }

  const std::string& ca_fingerprint() const { return authority_.fingerprint(); }

 private:
  SitePki(io::CertificateAuthority authority, SiteKeys keys, std::string server_key);
  io::CertificateAuthority authority_;
  SiteKeys keys_;
  std::string server_key_;
  milliseconds certificate_lifetime_ = io::kCertificateValidity;
};

}  // namespace rn::coordinator
