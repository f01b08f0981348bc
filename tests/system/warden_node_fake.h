// SPDX-License-Identifier: Apache-2.0
#pragma once

// A real warden with a real private engine on a folder of its own, and a client for it. Everything
// lies in the calling process's network namespace, which the test makes first.

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <unistd.h>

#include "base/assert.h"
#include "io/framed_unix.h"
#include "io/read_text.h"
#include "io/subprocess.h"
#include "model/warden.h"

namespace rn::warden {

constexpr uid_t kAgentUid = 64990;

inline bool run_shell(const std::string& command) {
  return std::system(command.c_str()) == 0;
}

inline std::string text_of(const std::string& path) {
  return io::read_text(path);
}

/// Looks every 20 ms until `is_so` or a minute has passed: an engine may start slowly.
inline bool eventually(const std::function<bool()>& is_so, int seconds = 60) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (std::chrono::steady_clock::now() < end) {
    if (is_so()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // between two looks
  }
  return is_so();
}

/// Where the runs of scripts/labs.sh lie, so that its sweep finds what a killed suite has left.
inline std::string folder_of_runs() {
  const char* root = std::getenv("RN_LABS_ROOT");
  return root == nullptr ? "/tmp" : root;
}

/// "PID STARTED" of this process, the second in the kernel's ticks since boot.
inline std::string this_process() {
  const std::string stat = text_of("/proc/self/stat");
  std::istringstream fields(stat.substr(stat.rfind(") ") + 2));
  std::string field;
  for (int i = 0; i < 20; ++i) fields >> field;
  return std::to_string(getpid()) + " " + field + "\n";
}

class WardenNode {
 public:
  explicit WardenNode(const std::string& name)
      : lab(name + std::to_string(getpid())), folder(folder_of_runs() + "/rn-" + lab) {
    std::filesystem::create_directories(folder + "/state/agent/images");
    std::filesystem::permissions(folder, std::filesystem::perms(0755));
    if (std::getenv("RN_KEEP") == nullptr) register_for_the_sweep();
  }

  WardenNode(const WardenNode&) = delete;
  WardenNode& operator=(const WardenNode&) = delete;

  ~WardenNode() {
    client_.reset();
    if (daemon_) {
      if (const Status told = daemon_->signal(SIGCONT); told) (void)daemon_->signal(SIGTERM);
      (void)daemon_->wait(seconds(5));
      daemon_.reset();
    }
    run_shell(command("leave") + " >/dev/null 2>&1");
    std::error_code ignored;
    if (std::getenv("RN_KEEP") == nullptr) std::filesystem::remove_all(folder, ignored);
  }

  std::string command(const std::string& verb) const {
    return std::string(RN_WARDEN) + " " + verb + " --state " + folder + "/state --run " + folder +
           "/run";
  }

  bool serve() {
    io::SpawnOptions options;
    options.argv = {
        RN_WARDEN,
        "serve",
        "--state",
        folder + "/state",
        "--run",
        folder + "/run",
        "--lab",
        lab,
        "--agent-uid",
        std::to_string(agent_uid),
        "--reserve-mib",
        "64",
        "--init",
        RN_INIT};
    options.argv.insert(options.argv.end(), flags.begin(), flags.end());
    options.environment.emplace();  // the tag of labs.sh, by which it finds a run's processes
    for (char** at = environ; *at != nullptr; ++at)
      if (!std::string_view(*at).starts_with("RN_RUN=")) options.environment->emplace_back(*at);
    options.environment->push_back("RN_RUN=" + lab);
    const std::string log = folder + "/log";
    log_.reset(std::fopen(log.c_str(), "ae"));
    options.fds = {{fileno(log_.get()), 2}};
    auto spawned = io::Subprocess::spawn(options);
    if (!spawned) return false;
    daemon_.emplace(std::move(*spawned));
    return eventually([&] { return connect() && is_ready(); });
  }

  /// SIGKILL, then wait: nothing of its own clean-up runs.
  void kill_daemon() {
    client_.reset();
    (void)daemon_->signal(SIGKILL);
    (void)daemon_->wait(seconds(5));
    daemon_.reset();
  }

  io::Subprocess& daemon() { return *daemon_; }

  bool connect() {
    client_.reset();
    // The warden is told who connects by the user of that moment.
    const bool is_agent = ::seteuid(agent_uid) == 0;
    auto made = io::FramedUnixClient::connect(folder + "/run/warden.sock");
    RN_ASSERT(is_agent && ::seteuid(0) == 0, "root may become the agent's user and root again");
    if (made) client_ = std::move(*made);
    return client_ != nullptr;
  }

  /// What only the owner may say goes by root, the rest by the agent's user.
  warden_wire::Answer ask(warden_wire::Request request, milliseconds limit = seconds(60)) {
    if (!warden_wire::is_owner_only(request))
      return ask_by(client_.get(), std::move(request), limit);
    const auto owner = io::FramedUnixClient::connect(folder + "/run/warden.sock");
    return ask_by(owner ? owner->get() : nullptr, std::move(request), limit);
  }

  /// Reads what the warden pushes until `is_so` says yes to a state, or a minute has passed
  /// without.
  bool hears(const std::function<bool(const warden_wire::WardenState&)>& is_so) {
    while (client_ != nullptr) {
      auto frame = client_->receive(seconds(60));
      if (!frame) return false;
      const auto reply = warden_wire::decode_reply(frame->body);
      const auto* news = reply ? std::get_if<warden_wire::StateChanged>(&*reply) : nullptr;
      if (news != nullptr && is_so(news->state)) return true;
    }
    return false;
  }

  warden_wire::WardenState state() { return ask(warden_wire::Query{}).state; }

  bool is_ready() {
    // Loading no image at all says whether the warden has recovered.
    const auto answer = ask(warden_wire::LoadImage{"sha256:none", "/none"});
    return answer.code != "unavailable" && answer.code != "lost" && state().is_engine_up;
  }

  warden_wire::GuestReport guest(const warden_wire::GuestName& name) {
    for (auto& report : state().guests) {
      if (report.guest == name) return report;
    }
    return {};
  }

  /// Makes the busybox image and loads it. Empty on success.
  std::string load_image() {
    const std::string root = folder + "/root";
    const std::string tar = folder + "/state/agent/images/base.tar";
    run_shell(
        "mkdir -p " + root + "/bin " + root + "/tmp " + root + "/proc " + root + "/sys " + root +
        "/dev " + root + "/etc && cp /bin/busybox " + root + "/bin/ && for a in sh cat echo id " +
        "sleep dd ls kill nc ping wget mount yes head ip true; do ln -sf busybox " + root +
        "/bin/$a; done && tar -C " + root + " -cf " + tar + " . && sha256sum " + tar +
        " | cut -c1-64 > " + folder + "/digest"
    );
    digest = "sha256:" + text_of(folder + "/digest").substr(0, 64);
    return ask(warden_wire::LoadImage{digest, tar}).message;
  }

  /// Disk, adoption, start. The last answer.
  warden_wire::Answer run(
      const warden_wire::GuestName& name,
      const std::string& script,
      const std::function<void(warden_wire::StartGuest&)>& change = {}
  ) {
    auto answer = ask(warden_wire::PrepareDisk{name, 32});
    if (!answer.code.empty()) return answer;
    answer = ask(warden_wire::AdoptDisk{name});
    if (!answer.code.empty()) return answer;
    warden_wire::StartGuest start;
    start.guest = name;
    start.image_digest = digest;
    start.command = {"sh", "-c", script};
    start.memory_mib = 64;
    start.max_pids = 64;
    start.log_limit_bytes = 64 << 10;
    if (change) change(start);
    return ask(start);
  }

  /// Kill, remove, release. True when all three were done.
  bool finish(const warden_wire::GuestName& name) {
    return ask(warden_wire::KillGuest{name}).code.empty() &&
           ask(warden_wire::RemoveGuest{name}).code.empty() &&
           ask(warden_wire::ReleaseDisk{name}).code.empty();
  }

  pid_t engine_pid() const {
    return static_cast<pid_t>(std::atoi(text_of(folder + "/run/engine/docker.pid").c_str()));
  }

  const std::string lab;
  const std::string folder;
  std::string digest;
  std::uint32_t agent_uid = kAgentUid;
  std::vector<std::string> flags;  ///< more of them, of the next serve()

 private:
  warden_wire::Answer ask_by(
      io::FramedUnixClient* client, warden_wire::Request request, milliseconds limit
  ) {
    warden_wire::Answer lost;
    lost.code = "lost";
    if (client == nullptr) return lost;
    const std::uint64_t number = ++number_;
    const Blob bytes =
        warden_wire::encode(warden_wire::NumberedRequest{number, std::move(request)});
    if (!client->send(1, bytes)) return lost;
    for (;;) {
      auto frame = client->receive(limit);
      if (!frame) return lost;
      const auto reply = warden_wire::decode_reply(frame->body);
      if (!reply) return lost;
      const auto* answer = std::get_if<warden_wire::Answer>(&*reply);
      if (answer != nullptr && answer->request == number) return *answer;
    }
  }

  /// As `labs.sh up --guard` does, with this process in both places: whoever sweeps takes down what
  /// is left when it has ended, and nothing before.
  void register_for_the_sweep() const {
    std::string world = text_of("/proc/sys/kernel/random/boot_id");
    world.erase(world.find_last_not_of('\n') + 1);
    world += " " + std::filesystem::read_symlink("/proc/self/ns/pid").string() + "\n";
    std::ofstream(folder + "/guard") << world + this_process() + this_process();
  }

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  std::unique_ptr<std::FILE, Close> log_;
  std::optional<io::Subprocess> daemon_;
  std::unique_ptr<io::FramedUnixClient> client_;
  std::uint64_t number_ = 0;
};

}  // namespace rn::warden
