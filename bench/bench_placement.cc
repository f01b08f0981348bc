// SPDX-License-Identifier: Apache-2.0
// Placement over the wire: the real reclaim-coordinator with many light agents (TLS WebSockets, one
// process), jobs submitted one after the other over HTTPS. Prints the time from the submit's first
// byte to the commit's arrival at the node, to the submit's answer, and the coordinator's CPU while
// nothing but heartbeats comes.
//   bench_placement COORDINATOR [agents, default 1000] [jobs, default 500] [idle seconds, default
//   20]

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "bench_report.h"
#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <unistd.h>

#include "base/assert.h"
#include "coordinator/daemon_light_agent.h"
#include "coordinator/store_fixture.h"
#include "io/real_clock.h"
#include "io/subprocess.h"

namespace rn::coordinator {
namespace {

using nlohmann::json;

constexpr std::size_t kJoiners = 4;

struct Options {
  std::string program;
  std::size_t agents = 1000;
  std::size_t jobs = 500;
  std::size_t idle_s = 20;
};

double ms_between(Instant from, Instant to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

/// User and system time of a process, in seconds.
double cpu_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  std::istringstream fields(text.substr(text.rfind(')') + 2));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  double user = 0;
  double system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

double resident_mib(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/statm");
  double total = 0;
  double resident = 0;
  file >> total >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

/// The coordinator under test, in its own process.
class Coordinator {
 public:
  explicit Coordinator(const std::string& program) : process_(spawn(program)) {
    for (int i = 0; i < 1000 && token_.empty(); ++i) {
      std::this_thread::sleep_for(milliseconds(20));
      std::ifstream(folder_.path() + "/state/admin.token") >> token_;
    }
    RN_ASSERT(!token_.empty(), "the coordinator started");
    while (json::parse(call("GET", "/readyz").body)["is_adopting"] == true)
      std::this_thread::sleep_for(milliseconds(100));
  }

  ~Coordinator() {
    (void)process_.signal(SIGTERM);
    (void)process_.wait(seconds(20));
  }

  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  io::HttpCall prepare(const std::string& method, const std::string& path, std::string body) const {
    io::HttpCall one;
    one.method = method;
    one.url = url() + path;
    one.body = std::move(body);
    one.headers = {{"Authorization", "Bearer " + token_}};
    one.tls = io::TlsConfig{};
    one.tls->ca_fingerprint = token_.substr(token_.rfind('.') + 1);
    one.tls->expected_peer = "spiffe://reclaimnet/coordinator";
    return one;
  }

  io::HttpReply call(const std::string& method, const std::string& path, std::string body = {})
      const {
    const auto reply = io::succeed(io::perform_blocking(prepare(method, path, std::move(body))));
    if (!reply)
      std::fprintf(
          stderr, "%s %s: %s\n", method.c_str(), path.c_str(), reply.error().describe().c_str()
      );
    RN_ASSERT(reply.has_value(), "the coordinator answers");
    return *reply;
  }

  static std::string url() { return "https://127.0.0.1:" + std::to_string(kPort); }

  pid_t pid() const { return process_.pid(); }

 private:
  static constexpr int kPort = 17'543;

  io::Subprocess spawn(const std::string& program) const {
    io::SpawnOptions options;
    options.argv = {
        program,
        "serve",
        "--state",
        folder_.path() + "/state",
        "--listen",
        "127.0.0.1:" + std::to_string(kPort)};
    options.dies_with_parent = true;
    auto process = io::Subprocess::spawn(options);
    RN_ASSERT(process.has_value(), "the coordinator's program runs");
    return *std::move(process);
  }

  ScratchFolder folder_;
  io::Subprocess process_;
  std::string token_;
};

std::vector<LightIdentity> join_all(const Coordinator& coordinator, std::size_t count) {
  std::vector<LightIdentity> all;
  std::mutex mutex;  // guards `all` and `next`
  std::size_t next = 0;
  std::vector<std::thread> threads;
  const auto work = [&] {
    while (true) {
      std::size_t number = 0;
      {
        const std::lock_guard lock(mutex);
        if (next == count) return;
        number = next++;
      }
      const auto made =
          coordinator.call("POST", "/v1/tokens", R"({"kind": "join", "lab": "lab-a"})");
      const std::string token = json::parse(made.body)["token"];
      auto identity = join_light_agent(Coordinator::url(), token, "m" + std::to_string(number));
      while (!identity && is_retryable(identity.error().code)) {
        std::this_thread::sleep_for(milliseconds(200));
        identity = join_light_agent(Coordinator::url(), token, "m" + std::to_string(number));
      }
      if (!identity) std::fprintf(stderr, "join: %s\n", identity.error().describe().c_str());
      RN_ASSERT(identity.has_value(), "a node joins");
      const std::lock_guard lock(mutex);
      all.push_back(*std::move(identity));
    }
  };
  for (std::size_t i = 0; i < kJoiners; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  return all;
}

std::string add_image(const Coordinator& coordinator) {
  const std::string archive = "\x1f\x8b, an archive";
  const std::string name = to_hex(crypto::sha256(as_bytes(archive)));
  coordinator.call("PUT", "/v1/blobs/" + name, archive);
  const json body = {
      {"name", "base"}, {"digest", "sha256:" + name}, {"bytes", archive.size()}, {"blobs", {name}}};
  coordinator.call("POST", "/v1/images", body.dump());
  return "sha256:" + name;
}

/// All agents and the submitter on one loop.
class Bench {
 public:
  Bench(const Coordinator& coordinator, const Options& options)
      : coordinator_(coordinator), options_(options), client_(loop_, 4) {}

  void run(std::vector<LightIdentity> identities, const std::string& image) {
    image_ = image;
    waiting_ = std::move(identities);
    for (int i = 0; i < 16; ++i) connect_next();
    loop_.run();
    agents_.clear();
    loop_.poll();
  }

  std::vector<double> to_commit_ms;
  std::vector<double> to_answer_ms;
  double idle_cpu_percent = 0;
  double resident = 0;

 private:
  void connect_next() {
    if (waiting_.empty()) return;
    LightAgent::Behaviour behaviour;
    behaviour.image_digest = image_;
    behaviour.finishes = true;
    behaviour.on_welcome = [this] { welcomed(); };
    behaviour.on_commit = [this](const wire::Commit&) { committed(); };
    behaviour.tell_troubles();
    agents_.push_back(
        std::make_unique<LightAgent>(loop_, std::move(waiting_.back()), std::move(behaviour))
    );
    waiting_.pop_back();
    agents_.back()->connect("wss" + Coordinator::url().substr(5) + "/v1/agent");
  }

  void welcomed() {
    connect_next();
    if (++connected_ < options_.agents) return;
    std::fprintf(stderr, "%zu agents connected\n", connected_);
    // A heartbeat period to settle, then the idle measurement.
    loop_.run_after(seconds(6), [this] { measure_idle(); });
  }

  void measure_idle() {
    const double before = cpu_of(coordinator_.pid());
    const Instant begin = loop_.now().boot;
    loop_.run_after(seconds(static_cast<long>(options_.idle_s)), [this, before, begin] {
      const double elapsed_s = ms_between(begin, loop_.now().boot) / 1000;
      idle_cpu_percent = (cpu_of(coordinator_.pid()) - before) / elapsed_s * 100;
      resident = resident_mib(coordinator_.pid());
      submit_next();
    });
  }

  void submit_next() {
    if (to_commit_ms.size() == options_.jobs) return loop_.stop();
    submitted_at_ = loop_.now().boot;
    is_waiting_ = true;
    io::HttpCall call = coordinator_.prepare("POST", "/v1/jobs", R"({"command": ["true"]})");
    client_.perform(std::move(call), [this](Result<io::HttpReply> reply) {
      const auto good = io::succeed(std::move(reply));
      if (!good) std::fprintf(stderr, "submit: %s\n", good.error().describe().c_str());
      RN_ASSERT(good.has_value(), "a submit is accepted");
      to_answer_ms.push_back(ms_between(submitted_at_, loop_.now().boot));
    });
  }

  void committed() {
    if (!is_waiting_) return;
    is_waiting_ = false;
    to_commit_ms.push_back(ms_between(submitted_at_, loop_.now().boot));
    loop_.run_after(milliseconds(20), [this] { submit_next(); });
  }

  const Coordinator& coordinator_;
  const Options options_;
  io::Loop loop_;
  io::HttpClient client_;
  std::string image_;
  std::vector<LightIdentity> waiting_;
  std::vector<std::unique_ptr<LightAgent>> agents_;
  std::size_t connected_ = 0;
  Instant submitted_at_;
  bool is_waiting_ = false;
};

void print(const char* what, const std::vector<double>& samples) {
  std::printf(
      "%-28s n %zu  median %.2f ms  p99 %.2f ms  max %.2f ms\n",
      what,
      samples.size(),
      bench::quantile(samples, 0.5),
      bench::quantile(samples, 0.99),
      bench::quantile(samples, 1)
  );
}

int measure(const Options& options) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  const Coordinator coordinator(options.program);
  const std::string image = add_image(coordinator);
  auto identities = join_all(coordinator, options.agents);
  std::fprintf(stderr, "%zu nodes joined\n", identities.size());
  Bench bench(coordinator, options);
  bench.run(std::move(identities), image);
  bench::print_machine("placement over the wire");
  double load = 0;
  std::ifstream("/proc/loadavg") >> load;
  std::printf("agents: %zu, heartbeat 5 s, load average at the end %.1f\n", options.agents, load);
  print("submit to commit at node", bench.to_commit_ms);
  print("submit to answer", bench.to_answer_ms);
  std::printf(
      "coordinator with heartbeats only: %.2f %% of a core over %zu s, %.0f MiB resident\n",
      bench.idle_cpu_percent,
      options.idle_s,
      bench.resident
  );
  return 0;
}

}  // namespace
}  // namespace rn::coordinator

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "bench_placement COORDINATOR [agents] [jobs] [idle seconds]\n");
    return 2;
  }
  rn::coordinator::Options options;
  options.program = argv[1];
  if (argc > 2) options.agents = std::strtoul(argv[2], nullptr, 10);
  if (argc > 3) options.jobs = std::strtoul(argv[3], nullptr, 10);
  if (argc > 4) options.idle_s = std::strtoul(argv[4], nullptr, 10);
  return rn::coordinator::measure(options);
}
