// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "base/crypto.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/ids.h"
#include "base/rng.h"
#include "base/time.h"
#include "io/pki.h"

namespace rn::agent {

/// Who this node is. Files in FOLDER (mode 0700): identity.json, node.key, node.pem, ca.pem,
/// sign.key, box.key.
struct Identity {
  NodeId node;
  LabId lab;
  std::string machine_id;  ///< bound to the machine; a copied folder is noticed
  std::string coordinator_url;
  std::string agent_url;
  std::string shown_as;  ///< the name that its owner chose for it; empty: the machine's own
  std::string key_pem;
  std::string certificate_pem;
  std::string ca_pem;
  crypto::SigningKey signing;  ///< manifests and receipts
  crypto::BoxKey box;          ///< sealed job keys
};

/// Identity of the coordinator in its certificate, and of a node.
inline constexpr const char* kCoordinatorIdentity = "spiffe://reclaimnet/coordinator";
std::string identity_of(const NodeId& node);
/// Empty for anything that is no node's identity.
NodeId node_of(const std::string& identity);

/// SHA-256 over the content of /etc/machine-id (or another file given) and our name: the machine's
/// own identifier is not told to anybody. kNotFound if there is none.
Result<std::string> machine_id(FileSystem& fs, const std::string& file);

/// "rn1.ID.SECRET.FINGERPRINT". kInvalid says what is wrong with it.
struct JoinToken {
  std::string id;
  std::string secret;
  std::string ca_fingerprint;
};

Result<JoinToken> parse_join_token(const std::string& text);

struct JoinOptions {
  std::string url;  ///< "https://host:port"
  std::string token;
  std::string ca_fingerprint;  ///< overrides the token's if not empty
  std::string lab;             ///< expected; empty = whatever the token says
  std::string hostname;        ///< the machine's own
  std::string shown_as;  ///< shown in its place and kept; empty: as before, or the machine's own
  std::string machine_id;
  std::string folder;
  WallTime now{};
  bool is_again = false;  ///< though the certificate is valid (the site does not know it any more)
};

/// Makes keys, redeems the token, stores the identity (last of all identity.json). A machine whose
/// certificate has expired, or with `is_again`, stays who it is: the same keys, and so the same
/// node, whose data is its own. kConflict if the folder has a valid identity, or one of another
/// site or machine; kDenied for a used, expired or wrong token. Blocking.
Result<Identity> join(FileSystem& fs, Rng& rng, const JoinOptions& options);

/// Why this identity's certificate opens nothing at `now`; empty if it does.
std::string expiry_of(const Identity& identity, WallTime now);
/// What its owner does then.
std::string rejoin_help(const Identity& identity);

/// kNotFound: not joined; kConflict: the identity belongs to another machine; kCorrupt. Blocking.
Result<Identity> load_identity(
    FileSystem& fs, const std::string& folder, const std::string& machine_id
);

/// Durably: the coordinator has said that this node has left for good. The identity is no node's
/// any more, and the machine joins anew after a purge alone. Blocking.
Status note_left(FileSystem& fs, const std::string& folder);
/// False, too, where nobody may look.
bool has_left(FileSystem& fs, const std::string& folder);

/// Writes a renewed certificate in place of the old one. Blocking.
Status store_certificate(
    FileSystem& fs,
    const std::string& folder,
    const std::string& certificate_pem,
    const std::string& ca_pem
);

/// The identity as it is now: a renewed certificate replaces the old one in it, all else stays for
/// the life of the process. Thread-safe.
class CurrentIdentity {
 public:
  explicit CurrentIdentity(Identity identity)
      : identity_(std::make_shared<const Identity>(std::move(identity))) {}

  /// Ask anew for each connection: the certificate in an answer that is kept expires.
  std::shared_ptr<const Identity> get() const;
  void renew(std::string certificate_pem, std::string ca_pem);

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const Identity> identity_;  ///< shared: a user keeps its own beyond a renewal
};

/// TLS towards the coordinator, towards a peer, and of the own servers.
io::TlsConfig tls_to_coordinator(const Identity& identity);
io::TlsConfig tls_to_peer(const Identity& identity, const NodeId& peer);
io::TlsConfig tls_server(const Identity& identity);

}  // namespace rn::agent
