// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/crypto.h"
#include "base/error.h"
#include "base/ids.h"
#include "base/rng.h"
#include "base/time.h"
#include "coordinator/daemon_shell.h"
#include "coordinator/notebook_http.h"
#include "coordinator/proxied_request.h"
#include "coordinator/tunnels.h"
#include "io/http_server.h"
#include "io/loop.h"

namespace rn::coordinator {

/// The job's variable that says on which port of its guest a server for browsers listens.
inline constexpr const char* kNotebookPort = "NOTEBOOK_PORT";

/// The notebooks' origin (ADR 0023): "/notebooks/JOB/…" of a server of its own goes by a tunnel to
/// a server in the job's guest, wherever that is, for the browser of the job's user and nobody
/// else's. Loop thread.
class Notebooks {
 public:
  /// Keys that were not used; the oldest makes room.
  static constexpr std::size_t kKeys = 1024;

  struct Deps {
    io::Loop& loop;
    Shell& shell;
    Tunnels& tunnels;
    Rng& rng;
  };

  /// `secret`: of the site, and the same after a restart: sessions live on. `port`: where its
  /// origin is.
  Notebooks(const Deps& deps, const crypto::Key256& secret, std::uint16_t port);
  ~Notebooks();
  Notebooks(const Notebooks&) = delete;
  Notebooks& operator=(const Notebooks&) = delete;

  /// Has the server serve it; it does not outlive this.
  void serve(io::HttpServer& server);
  /// Answers what does not go to a guest.
  void handle(const io::HttpRequest& request, const io::Responder& responder);

  /// A key for one browser, once, for ten minutes: the path and query that begin a session.
  /// kDenied: the job is another one's; kUnsupported: it serves no browsers; kConflict: it is over.
  Result<std::string> invite(const UserId& user, const std::string& token, const Job& job);

  std::uint16_t port() const { return port_; }

  /// Where the job's server listens in its guest. kUnsupported: it says nothing of one.
  static Result<std::uint16_t> port_in_guest(const Job& job);

 private:
  struct Key {
    JobId job;
    std::string token;
    Instant until;
    std::uint64_t number = 0;  ///< the oldest has the smallest
  };

  /// A request of somebody who may.
  struct Visit {
    JobId job;
    Tunnels::Wish wish;
    notebook::Path path;
  };

  Result<Visit> visit_of(const io::HttpRequest& request) const;
  bool goes_to_guest(const io::HttpRequest& request) const;
  void take(const io::HttpRequest& request, std::shared_ptr<io::TakenConnection> connection);
  std::optional<io::HttpResponse> redeem(
      const io::HttpRequest& request, const notebook::Path& path
  );
  io::HttpResponse state_of(const Job& job) const;
  io::HttpResponse absence_of(const io::HttpRequest& request, const Error& why) const;

  Deps deps_;
  crypto::Key256 secret_;
  std::uint16_t port_;
  std::map<Digest, Key> keys_;  ///< by the hash of what is in the address
  std::uint64_t next_key_ = 1;
  std::map<std::uint64_t, std::shared_ptr<ProxiedRequest>> requests_;  ///< those on their way
  std::uint64_t next_request_ = 1;
};

}  // namespace rn::coordinator
