// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <thread>

#include "commands.h"
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "agent/contract_file.h"
#include "agent/core_types.h"
#include "agent/kill_client.h"
#include "agent/leaving.h"
#include "agent/links.h"
#include "agent/machine_facts.h"
#include "agent/owner_words.h"
#include "arbiter/clocks.h"
#include "base/error_words.h"
#include "base/printable.h"
#include "base/whole_number.h"
#include "io/framed_unix.h"
#include "io/http_client.h"
#include "io/real_clock.h"
#include "io/real_fs.h"
#include "model/codec.h"

namespace rn::agent {

namespace {

constexpr milliseconds kWordTime = seconds(2);
constexpr std::uint32_t kDurationMaxS = 365 * 86'400;
constexpr milliseconds kClearingTime = seconds(20);  ///< for which `release` waits

/// One request to the warden, as the owner.
Result<warden_wire::Answer> ask_warden(
    const AgentConfig& config, warden_wire::Request request, milliseconds limit = seconds(20)
) {
  const std::string path = config.warden_path();
  const char* hint =
      "is reclaim-warden running? systemctl status reclaim-warden; in an emergency, as root: "
      "reclaim-kill";
  auto client = io::FramedUnixClient::connect(path, warden_wire::kMaxFrameBytes);
  if (!client) {
    Error error = client.error();
    if (error.code == ErrorCode::kNotFound) error.code = ErrorCode::kUnavailable;  // no socket yet
    return fail(error.with("the warden").hinting(hint));
  }
  if ((*client)->peer().uid != config.warden_uid)
    return fail(
        ErrorCode::kDenied,
        "the process behind " + path + " is not the warden",
        "look who listens there: ss -xlp"
    );
  // A warden hangs up on strangers, before or after they spoke.
  const auto hung_up = [&](const Error& error) {
    if (geteuid() == 0) return Error(error).with("the warden").hinting(hint);
    return Error{
        ErrorCode::kDenied,
        "the warden hung up: it listens to root and to the users of its --owner-uid alone",
        "run the command as root"};
  };
  const Status sent = (*client)->send(kWardenFrame, warden_wire::encode({1, std::move(request)}));
  if (!sent) return fail(hung_up(sent.error()));
  const io::RealClock clock{};
  const Instant end = clock.now().boot + limit;
  for (;;) {
    const auto left = std::chrono::duration_cast<milliseconds>(end - clock.now().boot);
    if (left.count() <= 0) break;
    auto frame = (*client)->receive(left);
    if (!frame && frame.error().code == ErrorCode::kTimeout)
      return fail(frame.error().with("the warden").hinting(hint));
    if (!frame) return fail(hung_up(frame.error()));
    RN_TRY(const warden_wire::Reply reply, warden_wire::decode_reply(frame->body));
    const auto* answer = std::get_if<warden_wire::Answer>(&reply);
    if (answer == nullptr || answer->request != 1) continue;
    if (answer->code.empty()) return *answer;
    Error error{ErrorCode::kInternal, answer->message, answer->hint};
    for (int code = 0; code <= static_cast<int>(ErrorCode::kInternal); ++code) {
      if (to_string(static_cast<ErrorCode>(code)) == answer->code)
        error.code = static_cast<ErrorCode>(code);
    }
    return fail(error.hinting("reclaim-agent status shows the state of the node"));
  }
  return fail(ErrorCode::kTimeout, "the warden has not answered", hint);
}

/// What the agent has to say about the machine, if it answers soon: no order waits for it.
std::optional<NodeView> ask_view(const AgentConfig& config) {
  const auto body = ask_agent(config, "GET", "/v1/node", "", kWordTime);
  if (!body) return std::nullopt;
  auto view = node_view_from_json(*body);
  return view ? std::optional(*std::move(view)) : std::nullopt;
}

struct Missing {
  std::vector<std::uint32_t> gpus;
  std::optional<Error> error;  ///< set if there are any
};

/// Those that are surely not there. What an order says is no evidence of them for the next order,
/// and is for its release.
Missing find_missing(
    const AgentConfig& config, const std::vector<std::uint32_t>& gpus, bool is_release
) {
  if (gpus.empty()) return {};
  auto view = ask_view(config);
  if (view && !is_release) view->reclaims.clear();
  Missing out;
  out.gpus = gpus_not_there(gpus, view, [&](std::uint32_t gpu) {
    return access((config.root + "/dev/nvidia" + std::to_string(gpu)).c_str(), F_OK) == 0;
  });
  if (!out.gpus.empty()) out.error = no_such_gpus(out.gpus, *view);
  return out;
}

/// A warden whose loop is awake, and which has ended every process of the guests, is at work on
/// what remains of them: what came of it, or how it stands when `limit` has passed. nullopt: it is
/// not so.
std::optional<ReclaimRecord> wait_for_remains(
    const AgentConfig& config, const std::vector<std::uint32_t>& gpus, milliseconds limit
) {
  const io::RealClock clock{};
  const Instant end = clock.now().boot + limit;
  bool is_said = false;
  for (;;) {
    const auto answer = ask_warden(config, warden_wire::Query{}, milliseconds(500));
    if (!answer) return std::nullopt;
    auto reclaim = emergency_at_work(answer->state, gpus);
    if (!reclaim) return std::nullopt;
    const bool is_over =
        reclaim->phase == ReclaimPhase::kCleared || reclaim->phase == ReclaimPhase::kWedged;
    if (is_over || clock.now().boot >= end) return reclaim;
    if (!is_said)
      std::fprintf(
          stderr,
          "reclaim-agent: the guests are cut and gone; the warden looks whether anything of them "
          "remains\n"
      );
    is_said = true;
    std::this_thread::sleep_for(milliseconds(100));  // between two looks, until `end`
  }
}

Error wedged(const std::vector<std::string>& remains) {
  std::string what = "something of a guest remains (wedged)";
  for (const std::string& one : remains) what += "\n  " + one;
  return {ErrorCode::kInternal, what, "reclaim-agent status names it; reclaim-kill tries again"};
}

/// Beside this program, or in PATH; empty: neither.
std::string program_of_the_warden() {
  std::error_code failed;
  const auto own = std::filesystem::read_symlink("/proc/self/exe", failed);
  const char* path = std::getenv("PATH");
  std::istringstream folders(own.parent_path().string() + ":" + (path == nullptr ? "" : path));
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string program = folder + "/reclaim-warden";
    const bool is_file = std::filesystem::is_regular_file(program, failed);
    if (!folder.empty() && is_file && access(program.c_str(), X_OK) == 0) return program;
  }
  return "";
}

/// A warden that hangs or is dead is not waited for by who can do without it: root. Returns only if
/// that program is not to be had.
void by_hand(const AgentConfig& config, const ReclaimFlags& flags, const Error& why) {
  std::error_code failed;
  // Without a state folder that program takes whichever lab it finds on the machine.
  if (!std::filesystem::is_directory(config.state + "/warden", failed)) return;
  const std::string program = program_of_the_warden();
  if (program.empty()) return;
  std::vector<std::string> words = {program, "kill", "--state", config.state, "--run", config.run};
  for (const std::uint32_t gpu : flags.gpus)
    words.insert(words.end(), {"--gpu", std::to_string(gpu)});
  std::fprintf(
      stderr,
      "reclaim-agent: %s; doing it by hand: reclaim-warden kill\n",
      printable(why.message).c_str()
  );
  std::fflush(nullptr);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execv(program.c_str(), arguments.data());
}

int emergency(const AgentConfig& config, const ReclaimFlags& flags) {
  std::uint64_t mask = 0;
  for (const std::uint32_t gpu : flags.gpus) {
    if (gpu > 63)
      return report(
          {ErrorCode::kInvalid,
           "--gpu: " + std::to_string(gpu) + " is above 63",
           "reclaim-agent status lists the GPUs"}
      );
    mask |= 1ULL << gpu;
  }
  const bool is_root = geteuid() == 0;
  const auto frame =
      send_kill(config.kill_path(), mask, is_root ? milliseconds(1500) : milliseconds(15'000));
  if (!frame && is_root && frame.error().code == ErrorCode::kTimeout) {
    if (const auto reclaim = wait_for_remains(config, flags.gpus, milliseconds(13'500))) {
      if (reclaim->phase == ReclaimPhase::kWedged) return report(wedged(reclaim->remains));
      const Instant asked_at = instant_from_ns(reclaim->declared_ns);
      std::printf(
          "%s\n", reclaim_words(flags.gpus, *reclaim, asked_at, io::RealClock().now()).c_str()
      );
      return reclaim->phase == ReclaimPhase::kCleared ? 0 : report(wedged(reclaim->remains));
    }
  }
  if (!frame && is_root && frame.error().code != ErrorCode::kDenied)
    by_hand(config, flags, frame.error());
  if (!frame) return report(frame.error());
  const auto ms = [&](std::int64_t ns) {
    return static_cast<double>(ns - frame->declared_ns) / 1e6;
  };
  // Only now: nothing comes before the cut.
  const Missing missing = find_missing(config, flags.gpus, false);
  std::vector<std::uint32_t> there = flags.gpus;
  std::erase_if(there, [&](std::uint32_t gpu) {
    return std::find(missing.gpus.begin(), missing.gpus.end(), gpu) != missing.gpus.end();
  });
  if (flags.gpus.empty() || !there.empty()) {
    std::printf(
        "%s is yours: cut after %.2f ms, %u processes gone after %.2f ms%s\n",
        gpu_words(there).c_str(),
        ms(frame->cut_ns),
        frame->processes,
        ms(frame->killed_ns),
        frame->status == 0 ? ", verified" : ""
    );
  }
  if (frame->status != 0) {
    return report(wedged({}));
  }
  return missing.error ? report(*missing.error) : 0;
}

}  // namespace

Result<std::string> ask_agent(
    const AgentConfig& config,
    const std::string& method,
    const std::string& path,
    const std::string& body,
    milliseconds limit
) {
  io::HttpCall call;
  call.method = method;
  call.url = "http://agent" + path;
  call.unix_socket = config.control_path();
  call.body = body;
  call.timeout = limit;
  auto reply = io::succeed(io::perform_blocking(call));
  if (!reply) {
    Error error = reply.error();
    if (error.code == ErrorCode::kNotFound && error.message.find("path") == std::string::npos)
      error.code = ErrorCode::kUnavailable;
    // Else the words would be those of a web address.
    if (error.code == ErrorCode::kUnavailable && !ServingProcess::of(config.control_path()))
      error = {error.code, "nobody answers on " + config.control_path(), ""};
    if (error.code == ErrorCode::kTimeout)
      error = {error.code, "no answer within " + std::to_string(limit.count()) + " ms", ""};
    return fail(
        error.with("the agent")
            .hinting("is it running? systemctl status reclaim-agent, or: reclaim-agent serve")
    );
  }
  return std::move(reply->body);
}

int report(const Error& error) {
  const std::string hint =
      error.hint.empty() ? "reclaim-agent doctor names what is missing" : error.hint;
  std::fprintf(
      stderr,
      "reclaim-agent: %s\n  next: %s\n",
      printable_lines(error.message).c_str(),
      printable_lines(hint).c_str()
  );
  return exit_code_of(error.code);
}

Result<std::uint32_t> parse_duration(const std::string& text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::string unit = text.substr(digits);
  const std::uint32_t factor = unit.empty() || unit == "s" ? 1
                               : unit == "m"               ? 60
                               : unit == "h"               ? 3600
                               : unit == "d"               ? 86'400
                                                           : 0;
  const auto value = whole_number<std::uint32_t>(std::string_view(text).substr(0, digits));
  if (!value || factor == 0 || *value == 0 || *value > kDurationMaxS / factor)
    return fail(
        ErrorCode::kInvalid,
        "'" + text + "' is no duration from one second to 365 days",
        "write 90s, 10m, 2h or 1d"
    );
  return *value * factor;
}

int do_reclaim(const AgentConfig& config, const ReclaimFlags& flags) {
  if (flags.is_now) {  // never refused for its words
    const int code = emergency(config, flags);
    if (!flags.message.empty())
      std::fprintf(
          stderr, "reclaim-agent: the message went to nobody: --now ends guests before they read\n"
      );
    return code;
  }
  warden_wire::DeclareReclaim declare;
  declare.gpus = flags.gpus;
  declare.message = flags.message;
  if (!flags.in.empty()) {
    const auto in_s = parse_duration(flags.in);
    if (!in_s) return report(in_s.error());
    declare.kind = ReclaimKind::kAnnounced;
    declare.in_s = *in_s;
  } else {
    io::RealFileSystem fs;
    const Notice notice = notice_of(
        load_contract(fs, config.contract_path(), {}, config.zone_folder),
        [&]() -> Result<Contract> {
          RN_TRY(const std::string body, ask_agent(config, "GET", "/v1/node", "", kWordTime));
          RN_TRY(const NodeView view, node_view_from_json(body));
          return view.contract;
        }
    );
    if (!notice.doubt.empty())
      std::fprintf(stderr, "reclaim-agent: %s\n", printable_lines(notice.doubt).c_str());
    declare.notice_s = notice.seconds;
  }
  if (const Missing missing = find_missing(config, flags.gpus, false); missing.error)
    return report(*missing.error);
  const io::RealClock clock{};
  const Instant asked_at = clock.now().boot;
  const auto answer = ask_warden(config, declare);
  if (!answer) return report(answer.error());
  std::printf("%s\n", reclaim_words(flags.gpus, answer->reclaim, asked_at, clock.now()).c_str());
  return 0;
}

/// A warden that clears guests, or has just been started, says to wait a moment: this does.
Result<warden_wire::Answer> ask_to_release(
    const AgentConfig& config, const std::vector<std::uint32_t>& gpus, bool is_warden_there
) {
  const io::RealClock clock{};
  const Instant end = clock.now().boot + kClearingTime;
  for (bool is_said = false;;) {
    auto answer = ask_warden(config, warden_wire::Release{gpus});
    const bool is_to_wait = !answer && answer.error().code == ErrorCode::kUnavailable;
    if (!is_to_wait || !is_warden_there || clock.now().boot >= end) return answer;
    if (!is_said)
      std::fprintf(
          stderr, "reclaim-agent: %s; waiting\n", printable(answer.error().message).c_str()
      );
    is_said = true;
    std::this_thread::sleep_for(milliseconds(200));
  }
}

int do_release(const AgentConfig& config, const std::vector<std::uint32_t>& gpus) {
  if (const Missing missing = find_missing(config, gpus, true); missing.error)
    return report(*missing.error);
  const auto before = ask_warden(config, warden_wire::Query{}, kWordTime);
  const auto answer = ask_to_release(config, gpus, before.has_value());
  if (!answer) return report(answer.error());
  const bool was_taken = !before || is_taken_back(gpus, before->state.reclaims);
  std::printf(
      "%s is lent again, as the contract says%s\n",
      gpu_words(gpus).c_str(),
      was_taken ? "" : " (the warden knew of no reclaim of it)"
  );
  return 0;
}

int do_pause(
    const AgentConfig& config, std::uint32_t for_s, const std::vector<std::uint32_t>& gpus
) {
  if (const Missing missing = find_missing(config, gpus, false); missing.error)
    return report(*missing.error);
  const auto answer = ask_warden(config, warden_wire::Pause{for_s, gpus});
  if (!answer) return report(answer.error());
  const std::string where = gpus.empty() ? "" : " on " + gpu_words(gpus);
  if (for_s == 0) {
    std::printf("no new guests%s until: reclaim-agent resume. Running ones stay.\n", where.c_str());
  } else {
    std::printf("no new guests%s for %u s. Running ones stay.\n", where.c_str(), for_s);
  }
  return 0;
}

int do_resume(const AgentConfig& config, const std::vector<std::uint32_t>& gpus) {
  if (const Missing missing = find_missing(config, gpus, true); missing.error)
    return report(*missing.error);
  const auto answer = ask_warden(config, warden_wire::Resume{gpus});
  if (!answer) return report(answer.error());
  const std::string where = gpus.empty() ? "" : " on " + gpu_words(gpus);
  std::printf("guests may come again%s, as the contract says\n", where.c_str());
  return 0;
}

void print_gpus(const NodeView& view) {
  for (const Gpu& gpu : view.facts.gpus) {
    std::string state = gpu.is_static ? "static" : "free";
    const auto& paused = view.paused_gpus;
    if (std::find(paused.begin(), paused.end(), gpu.index) != paused.end()) state = "paused";
    for (const GpuTelemetry& seen : view.telemetry.gpus) {
      if (seen.index != gpu.index) continue;
      if (seen.is_outside_window) state = "outside its lending windows";
      if (is_owners_own(view.contract, seen))
        state = "busy: " + std::to_string(seen.foreign_processes) + " foreign processes";
      if (!seen.sickness.empty()) state = "sick: " + printable(seen.sickness);
      if (seen.is_wedged) state = "wedged";
    }
    std::printf(
        "GPU %u  %s  %llu MiB  %s\n",
        gpu.index,
        printable(gpu.model).c_str(),
        static_cast<unsigned long long>(gpu.memory_mib),
        state.c_str()
    );
  }
}

int do_gpu_ok(const AgentConfig& config, std::uint32_t gpu) {
  const auto body = ask_agent(config, "POST", "/v1/gpu-ok", std::to_string(gpu));
  if (!body) return report(body.error());
  const auto told = parse_json(*body);
  if (!told) return report(told.error());
  const std::string was = told->value("was", "");
  const std::string is = told->value("sickness", "");
  if (!is.empty())
    return report(Error{
        ErrorCode::kConflict,
        "GPU " + std::to_string(gpu) + " is sick all the same: " + is,
        "what has gone wrong there cannot be accepted"});
  std::printf(
      "GPU %u is lent again, as the contract says%s\n", gpu, was.empty() ? " (it was well)" : ""
  );
  return 0;
}

void print_clock(const NodeView& view) {
  const std::string words = arbiter::clocks_words(view.contract, view.clock_offset_ms);
  if (!view.is_coordinator_connected || words.empty()) return;
  std::printf("CLOCK: %s\n  next: %s\n", printable(words).c_str(), arbiter::kClocksHelp);
}

/// A change of the contract that waits, and when the machine is taken back.
void print_what_comes(const NodeView& view) {
  if (!view.proposal.id.empty())
    std::printf(
        "a change of the contract by %s waits: reclaim-agent contract pending\n",
        printable(view.proposal.user.str()).c_str()
    );
  if (view.announced_in_ms < 0) return;
  std::printf(
      "taken back in %lld s: %s\n",
      static_cast<long long>(view.announced_in_ms / 1000),
      printable(view.announced_because).c_str()
  );
}

int do_status(const AgentConfig& config, bool explains, bool as_json) {
  const auto body = ask_agent(config, "GET", "/v1/node");
  if (!body) return report(body.error());
  if (as_json) {
    std::printf("%s\n", printable_json(*body).c_str());
    return 0;
  }
  const auto view = node_view_from_json(*body);
  if (!view) return report(view.error());
  std::printf(
      "%s  lending: %s  coordinator: %s  warden: %s\n",
      printable(view->facts.hostname).c_str(),
      std::string(to_string(view->lending)).c_str(),
      view->is_coordinator_connected ? "connected" : "away",
      view->is_warden_connected ? "connected" : "away"
  );
  if (explains) std::printf("why: %s\n", printable(view->why).c_str());
  print_clock(*view);
  print_what_comes(*view);
  if (!view->taking.empty() && !(explains && view->why.starts_with(view->taking)))
    std::printf("%s\n", printable(view->taking).c_str());
  if (explains) std::printf("copies: %s\n", printable(view->copies).c_str());
  for (const std::string& trouble : view->troubles)
    std::printf("trouble: %s\n", printable(trouble).c_str());
  print_gpus(*view);
  if (view->attempts.empty()) std::printf("no guests\n");
  for (const AttemptView& a : view->attempts) {
    std::printf(
        "guest %s (%s%s, lab %s)  %s  generation %u safe, %u durable\n",
        printable(a.report.job.str()).c_str(),
        printable(a.name.empty() ? "" : a.name + ", ").c_str(),
        printable(a.user.str()).c_str(),
        printable(a.lab.str()).c_str(),
        printable(a.phase).c_str(),
        std::max(a.report.safe_generation, a.durable_generation),
        a.durable_generation
    );
    if (explains && !a.report.detail.empty())
      std::printf("  why: %s\n", printable(a.report.detail).c_str());
    for (const NodeId& holder : a.report.waits_for)
      std::printf("  waits for a word of %s\n", printable(holder.str()).c_str());
    if (explains && !a.report.save_trouble.empty())
      std::printf("  saves: %s\n", printable(a.report.save_trouble).c_str());
  }
  // Of those that are over, the last is news.
  const auto is_over = [](const ReclaimRecord& r) { return r.phase == ReclaimPhase::kReturned; };
  auto left_out = std::count_if(view->reclaims.begin(), view->reclaims.end(), is_over) - 1;
  if (left_out > 0)
    std::printf(
        "%lld older reclaims are over (--json has them)\n", static_cast<long long>(left_out)
    );
  for (const ReclaimRecord& r : view->reclaims) {
    if (is_over(r) && left_out-- > 0) continue;
    std::printf(
        "reclaim %s (%s)  %s  %s\n",
        printable(r.id.str()).c_str(),
        std::string(to_string(r.kind)).c_str(),
        std::string(to_string(r.phase)).c_str(),
        gpu_words(r.gpus).c_str()
    );
    for (const std::string& remains : r.remains)
      std::printf("  remains: %s\n", printable(remains).c_str());
  }
  return 0;
}

namespace {

/// Beside what is printed, which can go into a file as it is.
void say_no_contract(const AgentConfig& config) {
  std::error_code ignored;
  const bool has_folder = std::filesystem::exists(config.folder(), ignored);
  std::fprintf(
      stderr,
      "reclaim-agent: this machine has no contract of its own (%s is not there%s): it lends by the "
      "default, which follows\n  next: reclaim-agent contract show >contract.yaml, change what is "
      "to be otherwise, and %s\n",
      printable(config.contract_path()).c_str(),
      has_folder ? "" : ", nor is its folder: it never joined, or --state is another one",
      has_folder ? "reclaim-agent contract set contract.yaml"
                 : ("join, and reclaim-agent contract set contract.yaml; or before the first start "
                    "put it at " +
                    printable(config.contract_path()))
                       .c_str()
  );
}

/// What a file that cannot be used says of itself is right; what to do about it is not to show it.
Error not_shown(const Error& error, const AgentConfig& config) {
  if (error.code == ErrorCode::kDenied)
    return {error.code, error.message, "run it as root, or as the user that runs the agent"};
  return {
      error.code,
      error.message,
      "correct " + config.contract_path() +
          " (`reclaim-agent contract check` says what is wrong with it), or move it away: then the "
          "default holds"};
}

}  // namespace

int do_contract_show(const AgentConfig& config) {
  io::RealFileSystem fs;
  const auto contract = load_contract(fs, config.contract_path(), {}, config.zone_folder);
  const bool has_none = !contract && contract.error().code == ErrorCode::kNotFound;
  if (!contract && !has_none) return report(not_shown(contract.error(), config));
  if (has_none) say_no_contract(config);
  std::printf("%s", printable_lines(to_yaml(contract.value_or(Contract{}))).c_str());
  return 0;
}

int do_contract_check(const AgentConfig& config, const std::string& file) {
  io::RealFileSystem fs;
  std::unique_ptr<NvmlSampler> nvml;
  const NodeFacts facts = machine_facts(config, nvml);
  const auto contract = load_contract(fs, file, facts, config.zone_folder);
  if (!contract) return report(contract.error().hinting("correct the file and check it again"));
  std::printf("%s is a good contract\n", file.c_str());
  return 0;
}

int do_contract_set(const AgentConfig& config, const std::string& file) {
  io::RealFileSystem fs;
  const auto bytes = read_named(fs, file, 256u << 10);
  if (!bytes)
    return report(bytes.error().with("the contract").hinting("name a readable contract file"));
  const auto answer = ask_agent(config, "PUT", "/v1/contract", std::string(as_text(*bytes)));
  if (!answer) return report(answer.error());
  std::printf("the contract is in force\n");
  return 0;
}

}  // namespace rn::agent
