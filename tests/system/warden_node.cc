// SPDX-License-Identifier: Apache-2.0
//
// The warden with a real private engine, real loop disks, veths and BPF, as root: a guest's life,
// what a guest cannot do, restarts, a hanging engine, and leaving without a trace.

#include <algorithm>
#include <array>
#include <cstdio>

#include "warden_suite_fake.h"
#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <sys/wait.h>

#include "base/places_fixture.h"
#include "warden/engine.h"
#include "warden/guest_net.h"

namespace rn::warden {
namespace {

TEST_F(Warden, a_guest_runs_and_its_log_and_exit_code_are_there) {
  const auto answer = node->run(name_of(1), "echo hello; id -u; exit 7");

  ASSERT_EQ(answer.code, "") << answer.message;
  ASSERT_TRUE(has_exited(name_of(1)));
  EXPECT_EQ(node->guest(name_of(1)).exit_code, 7);
  EXPECT_EQ(log_of(name_of(1)), "hello\n10001\n");
  EXPECT_EQ(text_of(node->guest(name_of(1)).disk + "/reclaim/exit"), "7\n");
  EXPECT_TRUE(node->finish(name_of(1)));
  EXPECT_TRUE(node->state().guests.empty());
}

TEST_F(Warden, the_bridge_of_the_owners_engine_is_left_alone) {
  ASSERT_TRUE(node->state().is_engine_up);

  EXPECT_TRUE(run_shell("ip link show docker0 >/dev/null"));
}

TEST_F(Warden, tells_the_agent_of_changes_without_being_asked) {
  const auto name = name_of(16);
  ASSERT_EQ(node->run(name, "sleep 0.3; exit 4").code, "");

  EXPECT_TRUE(node->hears([&](const warden_wire::WardenState& state) {
    return !state.guests.empty() && state.guests[0].state == GuestState::kExited &&
           state.guests[0].exit_code == 4;
  }));
  EXPECT_TRUE(node->finish(name));
}

TEST_F(Warden, an_order_for_a_lab_or_a_gpu_that_is_not_there_ends_nobody_and_names_those_that_are) {
  const auto name = name_of(25);
  ASSERT_EQ(node->run(name, "sleep 100", [](auto& s) { s.gpus = {0}; }).code, "");
  const std::string out = node->folder + "/mistyped.out";
  const std::string into = " > " + out + " 2>&1";

  EXPECT_FALSE(run_shell(node->command("kill") + " --gpu 64" + into));
  EXPECT_NE(text_of(out).find("'64' is no whole number from 0 to 63"), std::string::npos)
      << text_of(out);
  EXPECT_FALSE(run_shell(node->command("kill") + " --lab mistyped" + into));
  EXPECT_NE(text_of(out).find("it is lab \"" + node->lab + "\""), std::string::npos);
  EXPECT_FALSE(run_shell(node->command("kill") + " --transfers --lab mistyped" + into));
  EXPECT_NE(text_of(out).find("it is lab \"" + node->lab + "\""), std::string::npos);
  node->kill_daemon();
  EXPECT_FALSE(run_shell(node->command("kill") + " --lab mistyped" + into));
  EXPECT_NE(text_of(out).find("it is lab \"" + node->lab + "\""), std::string::npos);

  ASSERT_TRUE(node->serve());
  EXPECT_EQ(node->guest(name).state, GuestState::kRunning);
  EXPECT_TRUE(node->state().reclaims.empty());
  EXPECT_TRUE(node->finish(name));
}

TEST_F(Warden, a_stranger_on_the_machine_can_neither_ask_nor_kill) {
  const auto name = name_of(17);
  ASSERT_EQ(node->run(name, "sleep 100").code, "");
  const std::string out = node->folder + "/stranger.out";

  const bool is_done = run_shell(
      "setpriv --reuid 12345 --regid 12345 --clear-groups " + node->command("kill") + " > " + out +
      " 2>&1"
  );

  EXPECT_FALSE(is_done);
  EXPECT_NE(text_of(out).find("only the owner may do this"), std::string::npos) << text_of(out);
  EXPECT_EQ(node->guest(name).state, GuestState::kRunning);
  EXPECT_TRUE(node->state().reclaims.empty());
  EXPECT_TRUE(node->finish(name));
}

/// Not a figure: what the phases of a start take on this machine, printed for the reader.
TEST_F(Warden, starts_guests_quickly) {
  std::vector<double> ms;
  for (int i = 100; i < 110; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_EQ(node->run(name_of(i), "true").code, "");
    ms.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count()
    );
    ASSERT_TRUE(has_exited(name_of(i)));
    ASSERT_TRUE(node->finish(name_of(i)));
  }
  std::sort(ms.begin(), ms.end());
  std::printf(
      "disk, adoption, container and go-ahead: median %.0f ms, max %.0f ms, n = 10\n", ms[5], ms[9]
  );
}

TEST_F(Warden, an_image_with_another_digest_is_refused) {
  const std::string other = "sha256:" + std::string(64, 'a');

  const auto answer =
      node->ask(warden_wire::LoadImage{other, node->folder + "/state/agent/images/base.tar"});

  EXPECT_EQ(answer.code, "corrupt");
  EXPECT_EQ(node->state().images, std::vector<std::string>{node->digest});
  EXPECT_EQ(node->ask(warden_wire::LoadImage{other, "/etc/passwd"}).code, "denied");
  EXPECT_EQ(
      node->ask(warden_wire::LoadImage{other, node->folder + "/state/agent/../warden/journal"})
          .code,
      "denied"
  );
}

TEST_F(Warden, a_saved_image_is_taken_only_with_the_layers_that_it_was_listed_with) {
  const std::string tar = node->folder + "/state/agent/images/saved.tar";
  const std::string docker = "docker -H unix://" + node->folder + "/run/engine/docker.sock ";
  ASSERT_TRUE(run_shell(
      docker + "tag $(" + docker + "images -q | head -n 1) saved:1 && " + docker + "save -o " +
      tar + " saved:1 && " + docker + "rmi saved:1 >/dev/null && sha256sum " + tar +
      " | cut -c1-64 > " + node->folder + "/saved"
  ));
  const std::string digest = "sha256:" + text_of(node->folder + "/saved").substr(0, 64);
  const Digest layer = *digest_from_hex(node->digest.substr(7));

  EXPECT_EQ(node->ask(warden_wire::LoadImage{digest, tar, {Digest{}}}).code, "corrupt");
  EXPECT_EQ(node->ask(warden_wire::LoadImage{digest, tar, {layer, layer}}).code, "corrupt");
  const std::string other = "sha256:" + std::string(64, 'b');
  EXPECT_EQ(node->ask(warden_wire::LoadImage{other, tar, {layer}}).code, "corrupt");
  EXPECT_EQ(node->state().images, std::vector<std::string>{node->digest});

  EXPECT_EQ(node->ask(warden_wire::LoadImage{digest, tar, {layer}}).message, "");
  EXPECT_EQ(node->state().images, (std::vector<std::string>{node->digest, digest}));
}

ReadAt archive_in(const std::string& path) {
  return [text = text_of(path)](std::uint64_t offset, std::size_t max) -> Result<Blob> {
    const std::string piece = text.substr(std::min<std::size_t>(offset, text.size()), max);
    return Blob(piece.begin(), piece.end());
  };
}

TEST_F(Warden, labs_on_one_engine_have_names_of_their_own_for_one_image) {
  const std::string socket = node->folder + "/run/engine/docker.sock";
  const Engine first(socket, "first");
  const Engine second(socket, std::string(63, 's'));  // the longest that a lab may have
  const std::string archive = node->folder + "/state/agent/images/base.tar";
  const auto names = [](const Engine& engine) {
    std::vector<std::string> digests;
    const auto images = engine.images();
    for (const EngineImage& image : *images) digests.push_back(image.digest);
    return digests;
  };
  const std::vector<std::string> one = {node->digest};
  const std::vector<std::string> before = node->state().images;

  const auto id = first.import_image(node->digest, archive_in(archive));
  ASSERT_TRUE(id) << id.error().message;
  ASSERT_TRUE(second.import_image(node->digest, archive_in(archive)));

  EXPECT_EQ(names(first), one);
  EXPECT_EQ(first.images()->front().id, *id);
  EXPECT_EQ(names(second), one);
  EXPECT_TRUE(second.remove_image(node->digest));
  EXPECT_EQ(names(second), std::vector<std::string>());
  EXPECT_EQ(names(first), one);
  EXPECT_TRUE(first.remove_image(node->digest));
  EXPECT_EQ(node->state().images, before);
}

TEST_F(
    Warden, an_image_that_another_lab_or_the_owner_has_stays_when_this_lab_refuses_or_leaves_it
) {
  const std::string socket = node->folder + "/run/engine/docker.sock";
  const std::string docker = "docker -H unix://" + socket + " ";
  const std::string tar = node->folder + "/shared.tar";
  const std::string mine = Engine(socket, node->lab).name_of(node->digest);
  const auto has = [&](const std::string& name) {
    return run_shell(docker + "image inspect " + name + " >/dev/null 2>&1");
  };
  // The owner's name in the archive stands for another image by the time that it is loaded.
  ASSERT_TRUE(run_shell(
      docker + "tag " + mine + " owner:1 && " + docker + "tag " + mine + " brought:1 && " + docker +
      "save -o " + tar + " brought:1 owner:1 && " + docker + "rmi brought:1 >/dev/null && " +
      "tar -C " + node->folder + " -cf - log | " + docker + "import - owner:1 >/dev/null && " +
      "sha256sum " + tar + " | cut -c1-64 > " + node->folder + "/shared && " + docker +
      "image inspect -f '{{.Id}}' owner:1 > " + node->folder + "/owner"
  ));
  const std::string digest = "sha256:" + text_of(node->folder + "/shared").substr(0, 64);
  const Digest layer = *digest_from_hex(node->digest.substr(7));
  const Engine other(socket, "other");

  const auto refused = other.load_image(digest, {Digest{}}, archive_in(tar));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kCorrupt);
  EXPECT_TRUE(has(mine));
  EXPECT_FALSE(has("brought:1"));

  const auto loaded = other.load_image(digest, {layer}, archive_in(tar));
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(other.images()->size(), 1U);
  EXPECT_TRUE(other.remove_image(digest));

  EXPECT_TRUE(has(mine));
  EXPECT_FALSE(has("brought:1"));
  EXPECT_TRUE(run_shell(
      "test $(" + docker + "image inspect -f '{{.Id}}' owner:1) = $(cat " + node->folder +
      "/owner) && " + docker + "rmi owner:1 >/dev/null"
  ));
}

TEST_F(Warden, names_of_the_form_without_a_lab_go_when_a_warden_starts) {
  const std::string docker = "docker -H unix://" + node->folder + "/run/engine/docker.sock ";
  const std::string old = "reclaimnet/image:" + std::string(64, 'e');
  const std::string owners = "reclaimnet/image:mine";
  const auto has = [&](const std::string& name) {
    return run_shell(docker + "image inspect " + name + " >/dev/null 2>&1");
  };
  const std::string mine = Engine("", node->lab).name_of(node->digest);
  ASSERT_TRUE(run_shell(docker + "tag " + mine + " " + old));
  ASSERT_TRUE(run_shell(docker + "tag " + mine + " " + owners));

  node->kill_daemon();
  ASSERT_TRUE(node->serve());

  EXPECT_FALSE(has(old));
  EXPECT_TRUE(has(owners));
  EXPECT_TRUE(has(mine));
  EXPECT_TRUE(run_shell(docker + "rmi " + owners + " >/dev/null"));
}

TEST_F(Warden, start_is_idempotent_and_the_guest_is_confined) {
  const auto name = name_of(2);
  ASSERT_EQ(
      node->run(
              name,
              "grep -E 'Cap(Eff|Bnd)|NoNewPrivs|^Seccomp:' /proc/self/status; cat "
              "/proc/self/uid_map;"
              "echo x > /bin/x || echo rootfs read-only; mount -t tmpfs t /tmp || echo no mount;"
              "echo ifs $(ls /sys/class/net); sleep 100",
              [](warden_wire::StartGuest& s) {
                s.command = {"sh", "-c", s.command[2]};
                s.command[2].replace(0, 4, "busybox grep");
              }
      ).code,
      ""
  );
  warden_wire::StartGuest again;
  again.guest = name;
  again.image_digest = node->digest;
  again.command = {"true"};

  EXPECT_EQ(node->ask(again).code, "");
  EXPECT_TRUE(eventually([&] { return log_of(name).find("ifs") != std::string::npos; }));
  const std::string log = log_of(name);
  EXPECT_NE(log.find("CapEff:\t0000000000000000"), std::string::npos) << log;
  EXPECT_NE(log.find("CapBnd:\t0000000000000000"), std::string::npos) << log;
  EXPECT_NE(log.find("NoNewPrivs:\t1"), std::string::npos) << log;
  EXPECT_NE(log.find("Seccomp:\t2"), std::string::npos) << log;
  EXPECT_NE(log.find("rootfs read-only"), std::string::npos) << log;
  EXPECT_NE(log.find("no mount"), std::string::npos) << log;
  EXPECT_NE(log.find("ifs lo\n"), std::string::npos) << "no wire without an allow list: " << log;
  EXPECT_EQ(log.find("         0          0"), std::string::npos) << "user namespace: " << log;
  EXPECT_GE(node->guest(name).pids, 2U);
  EXPECT_EQ(node->ask(warden_wire::ReleaseDisk{name}).code, "conflict");
  EXPECT_TRUE(node->finish(name));
}

TEST_F(Warden, the_disk_limit_holds_and_the_log_is_bounded) {
  const auto name = name_of(3);

  ASSERT_EQ(
      node->run(name, "yes | head -c 200000; dd if=/dev/zero of=big bs=1M count=100; true").code, ""
  );
  ASSERT_TRUE(has_exited(name));

  const std::string disk = node->guest(name).disk;
  EXPECT_LT(std::filesystem::file_size(std::filesystem::path(disk) / "work" / "big"), 32U << 20);
  EXPECT_NE(log_of(name).find("log limit reached"), std::string::npos);
  EXPECT_LT(log_of(name).size(), (64U << 10) + 200);
  EXPECT_TRUE(node->finish(name));
  EXPECT_FALSE(std::filesystem::exists(disk));
}

TEST_F(Warden, a_disk_that_the_owners_disk_cannot_hold_is_refused) {
  const auto answer = node->ask(warden_wire::PrepareDisk{name_of(4), 16 << 20});

  EXPECT_EQ(answer.code, "exhausted") << answer.message;
  EXPECT_TRUE(node->state().guests.empty());
}

TEST_F(Warden, save_signals_reach_exactly_those_who_catch_them) {
  const auto name = name_of(5);
  ASSERT_EQ(node->run(name, "sleep 100 & trap 'echo saved; exit 3' TERM; echo up; wait").code, "");
  ASSERT_TRUE(eventually([&] { return log_of(name).find("up") != std::string::npos; }));

  const auto answer = node->ask(warden_wire::SignalGuest{name, SaveSignal::kAuto});

  EXPECT_EQ(answer.signalled, 1U);
  ASSERT_TRUE(has_exited(name));
  EXPECT_EQ(node->guest(name).exit_code, 3);
  EXPECT_NE(log_of(name).find("saved"), std::string::npos);
  EXPECT_TRUE(node->finish(name));
}

TEST_F(Warden, notices_are_written_over_whatever_the_guest_put_there) {
  const auto name = name_of(6);
  ASSERT_EQ(
      node->run(name, "busybox ln -s /etc/passwd /reclaim/notice; echo up; sleep 100").code, ""
  );
  ASSERT_TRUE(eventually([&] { return log_of(name).find("up") != std::string::npos; }));

  const auto answer = node->ask(warden_wire::WriteNotice{name, 1'700'000'000'500, 30, "owner"});

  EXPECT_EQ(answer.code, "");
  const std::string notice = text_of(node->guest(name).disk + "/reclaim/notice");
  EXPECT_NE(notice.find("\"deadline_unix\":1700000000.5"), std::string::npos) << notice;
  EXPECT_EQ(text_of("/etc/passwd").find("deadline_unix"), std::string::npos);
  EXPECT_EQ(node->ask(warden_wire::WriteNotice{name, 0, 0, ""}).code, "");
  EXPECT_FALSE(std::filesystem::exists(node->guest(name).disk + "/reclaim/notice"));
  EXPECT_TRUE(node->finish(name));
}

TEST_F(Warden, the_network_is_open_where_it_was_opened_and_nowhere_else) {
  ASSERT_TRUE(run_shell("ip link add up0 type veth peer name peer0"));
  io::SpawnOptions options;
  options.argv = {"unshare", "-n", "sleep", "300"};
  auto peer = io::Subprocess::spawn(options);
  ASSERT_TRUE(peer);
  const std::string enter = "nsenter -t " + std::to_string(peer->pid()) + " -n ";
  ASSERT_TRUE(eventually([&] {
    return run_shell("ip link set peer0 netns " + std::to_string(peer->pid()) + " 2>/dev/null") &&
           !run_shell("ip link show peer0 >/dev/null 2>&1");
  }));
  ASSERT_TRUE(run_shell(
      "ip addr add 10.77.0.1/24 dev up0 && ip link set up0 up && " + enter +
      "sh -c 'ip link set lo up;"
      "ip addr add 10.77.0.2/24 dev peer0; ip addr add 10.77.0.3/24 dev peer0; ip link set peer0 "
      "up;"
      "(while kill -0 " +
      std::to_string(peer->pid()) +
      "; do echo open | timeout 5 busybox nc -l -p 80 ; done) & "
      "' >/dev/null 2>&1 &"
  ));
  const auto name = name_of(7);
  ASSERT_EQ(
      node->run(
              name,
              "sleep 0.5; for i in 1 2 3 4 5; do nc -w 1 10.77.0.2 80 < /dev/null && break; sleep "
              "0.3; done;"
              "ping -c1 -W1 10.77.0.2 >/dev/null && echo allowed ping;"
              "ping -c1 -W1 10.77.0.3 >/dev/null || echo other peer shut;"
              "ping -c1 -W1 10.77.0.1 >/dev/null || echo host shut;"
              "ping -c1 -W1 100.64.0.1 >/dev/null || echo gateway shut; sleep 100",
              [](warden_wire::StartGuest& s) {
                s.network = {{"10.77.0.2/32", 0, "any"}};
              }
      ).code,
      ""
  );

  EXPECT_TRUE(eventually([&] { return log_of(name).find("gateway shut") != std::string::npos; }))
      << log_of(name);
  const std::string log = log_of(name);
  EXPECT_NE(log.find("open"), std::string::npos) << log;
  EXPECT_NE(log.find("other peer shut"), std::string::npos) << log;
  EXPECT_NE(log.find("host shut"), std::string::npos) << log;
  EXPECT_TRUE(run_shell("nft list table inet reclaimnet >/dev/null 2>&1"));
  EXPECT_TRUE(node->finish(name));
  EXPECT_FALSE(run_shell("ip -o link | grep -q ': rn[0-9a-f]*g'"));
  (void)peer->signal_group(SIGKILL);
  run_shell("ip link del up0 2>/dev/null");
}

/// Whether our programs are on both hooks of the guest's interface.
bool is_filtered(const std::string& interface) {
  const std::string show = "tc filter show dev " + interface + " ";
  return run_shell(show + "ingress 2>/dev/null | grep -q rn_from_guest") &&
         run_shell(show + "egress 2>/dev/null | grep -q rn_to_guest");
}

bool is_up(const std::string& interface) {
  return run_shell("ip link show " + interface + " 2>/dev/null | grep -q '[<,]UP[,>]'");
}

/// A guest with a wire; the error's code, "" if it runs.
std::string run_with_network(WardenNode& node, const GuestName& name) {
  return node.run(
                 name,
                 "sleep 100",
                 [](auto& s) {
                   s.network = {{"10.77.0.2/32", 0, "any"}};
                 }
  ).code;
}

TEST_F(Warden, a_filter_that_somebody_removed_is_put_back_and_the_owner_told) {
  const auto name = name_of(19);
  ASSERT_EQ(run_with_network(*node, name), "");
  const std::string interface = interface_name(node->lab, 0);
  ASSERT_TRUE(is_filtered(interface));

  for (const char* removal :
       {"filter del dev IF ingress", "filter del dev IF egress", "qdisc del dev IF clsact"}) {
    std::string command = std::string("tc ") + removal;
    command.replace(command.find("IF"), 2, interface);
    ASSERT_TRUE(run_shell(command)) << command;
    EXPECT_TRUE(eventually([&] { return is_filtered(interface); })) << command;
  }

  EXPECT_TRUE(is_up(interface));
  EXPECT_EQ(node->guest(name).state, GuestState::kRunning);
  const auto troubles = node->state().troubles;
  ASSERT_FALSE(troubles.empty());
  EXPECT_EQ(
      troubles[0].what,
      "somebody removed the traffic filter of " + interface + ", job j-19; it is back"
  );
  EXPECT_TRUE(node->finish(name));
}

TEST_F(Warden, a_guest_whose_filter_cannot_be_put_back_is_cut_by_its_interface_and_killed) {
  const auto name = name_of(20);
  ASSERT_EQ(run_with_network(*node, name), "");
  const std::string interface = interface_name(node->lab, 0);

  // Where an ingress qdisc sits there can be no clsact. The daemon may put its own back in between.
  const std::string taken = "printf 'qdisc del dev " + interface + " clsact\\nqdisc add dev " +
                            interface + " ingress\\n' | tc -batch -";
  ASSERT_TRUE(eventually([&] { return run_shell(taken); }));

  EXPECT_TRUE(eventually([&] { return !is_up(interface); }));
  EXPECT_TRUE(has_exited(name));
  EXPECT_TRUE(node->guest(name).is_vanished) << "its exit code says nothing about it";
  const auto troubles = node->state().troubles;
  ASSERT_FALSE(troubles.empty());
  EXPECT_NE(troubles.back().what.find(interface + ", job j-20; it cannot"), std::string::npos)
      << troubles.back().what;
  EXPECT_TRUE(node->finish(name));
}

TEST_F(Warden, what_stands_before_a_guests_filter_is_told_and_closed_gates_are_no_cut_then) {
  const auto name = name_of(40);
  ASSERT_EQ(run_with_network(*node, name), "");
  const std::string on_ingress = interface_name(node->lab, 0) + " ingress pref 10";
  const std::string out = node->folder + "/cut.out";
  const auto cut = [&] {
    return WEXITSTATUS(std::system((node->command("kill --cut-only") + " > " + out).c_str()));
  };

  ASSERT_TRUE(run_shell("tc filter add dev " + on_ingress + " bpf bytecode '1,6 0 0 0'"));

  EXPECT_TRUE(eventually([&] {
    const auto troubles = node->state().troubles;
    return !troubles.empty() && troubles.back().what.ends_with("tc filter del dev " + on_ingress);
  }));
  const std::string named = "remains: a tc filter on ingress (bpf, pref 10)";
  EXPECT_EQ(cut(), 3) << "as the daemon's last look says";
  EXPECT_NE(text_of(out).find(named), std::string::npos) << text_of(out);
  EXPECT_TRUE(node->guest(name).is_cut) << "the gates are shut all the same";
  EXPECT_EQ(node->guest(name).state, GuestState::kRunning);
  node->kill_daemon();
  EXPECT_EQ(cut(), 3) << "as the tool's own look says";
  EXPECT_NE(text_of(out).find(named), std::string::npos);
  ASSERT_TRUE(run_shell("tc filter del dev " + on_ingress));
  EXPECT_EQ(cut(), 0) << text_of(out);

  ASSERT_TRUE(node->serve()) << text_of(node->folder + "/log");
  EXPECT_EQ(node->guest(name).state, GuestState::kRunning) << "what is only cut lives";
  EXPECT_TRUE(node->guest(name).is_cut);
  EXPECT_EQ(node->ask(warden_wire::Release{}).code, "");
  EXPECT_TRUE(node->finish(name));
}

TEST_F(Warden, a_guest_survives_the_wardens_death_and_is_found_again) {
  const auto name = name_of(8);
  ASSERT_EQ(node->run(name, "i=0; while true; do i=$((i+1)); echo $i; sleep 0.1; done").code, "");
  const auto before = node->guest(name);

  node->kill_daemon();
  ASSERT_TRUE(node->serve()) << text_of(node->folder + "/log");

  const auto after = node->guest(name);
  EXPECT_EQ(after.state, GuestState::kRunning);
  EXPECT_EQ(after.started_boot_ns, before.started_boot_ns);
  EXPECT_GE(after.pids, 2U);
  EXPECT_EQ(node->ask(warden_wire::KillGuest{name}).code, "");
  EXPECT_EQ(node->guest(name).state, GuestState::kExited);
  EXPECT_TRUE(node->finish(name));
}

TEST_F(Warden, a_guest_that_ends_while_the_warden_is_dead_has_its_exit_code) {
  const auto name = name_of(9);
  ASSERT_EQ(node->run(name, "sleep 1; exit 9").code, "");
  const std::string exit_file = node->guest(name).disk + "/reclaim/exit";

  node->kill_daemon();
  ASSERT_EQ(text_of(exit_file), "") << "it ended before the warden was dead";
  ASSERT_TRUE(eventually([&] { return text_of(exit_file) == "9\n"; }));
  ASSERT_TRUE(node->serve());

  expect_end(name, 9);
}

TEST_F(Warden, a_guest_whose_shim_is_killed_has_no_end_of_its_own) {
  const auto name = name_of(18);
  ASSERT_EQ(node->run(name, "sleep 100").code, "");
  EXPECT_FALSE(node->guest(name).is_vanished);

  ASSERT_TRUE(run_shell("kill -KILL $(pgrep -f 'containerd-shim.*" + node->folder + "/[r]un/')"));

  EXPECT_TRUE(has_exited(name));
  EXPECT_TRUE(node->guest(name).is_vanished);
  EXPECT_TRUE(eventually([&] { return node->guest(name).pids == 0; }));
  EXPECT_TRUE(node->finish(name));
}

TEST_F(Warden, the_engine_is_started_again_and_the_guest_runs_on) {
  const auto name = name_of(10);
  ASSERT_EQ(node->run(name, "echo up; sleep 100").code, "");
  const pid_t engine = node->engine_pid();

  ASSERT_EQ(kill(engine, SIGKILL), 0);
  EXPECT_TRUE(eventually([&] {
    return node->engine_pid() != engine && node->engine_pid() > 1 && node->state().is_engine_up;
  }));

  EXPECT_EQ(node->guest(name).state, GuestState::kRunning);
  EXPECT_GE(node->guest(name).pids, 2U);
  EXPECT_TRUE(eventually([&] { return node->finish(name); }));
}

TEST_F(Warden, a_second_container_of_one_guest_never_gets_the_go_ahead) {
  const auto name = name_of(30);
  ASSERT_EQ(node->run(name, "echo once; sleep 100").code, "");
  ASSERT_TRUE(eventually([&] { return log_of(name) == "once\n"; }));

  const std::string docker = "docker -H unix://" + node->folder + "/run/engine/docker.sock ";
  const std::string image = "$(" + docker + "inspect -f '{{.Image}}' $(" + docker +
                            "ps -q --filter label=reclaimnet.job=" + name.job.str() + "))";
  const int status = std::system((docker + "run --network none --user 10001:10001 -v " +
                                  node->guest(name).disk + "/reclaim:/reclaim -v " + RN_INIT +
                                  ":/reclaim-init:ro --entrypoint /reclaim-init " + image +
                                  " 65536 20 another sh -c 'echo twice'")
                                     .c_str());

  EXPECT_EQ(WEXITSTATUS(status), 125) << "ends at once, without its command";
  EXPECT_EQ(log_of(name), "once\n");
  EXPECT_FALSE(std::filesystem::exists(node->guest(name).disk + "/reclaim/exit"));
  EXPECT_EQ(node->guest(name).state, GuestState::kRunning);
  EXPECT_TRUE(node->finish(name));
}

TEST_F(Warden, an_engine_killed_in_the_middle_of_a_start_makes_no_second_guest) {
  for (const int moment : {40, 80, 120, 160, 200, 240}) {
    const auto name = name_of(31 + moment / 40);
    const pid_t engine = node->engine_pid();
    std::thread killer([&] {
      std::this_thread::sleep_for(milliseconds(moment));  // into the start
      ::kill(engine, SIGKILL);
    });
    auto answer = node->run(name, "echo once; sleep 100");
    killer.join();
    // The agent asks again until the engine is there.
    EXPECT_TRUE(eventually([&] {
      if (answer.code.empty()) return true;
      answer = node->run(name, "echo once; sleep 100");
      return answer.code.empty();
    })) << moment
        << " ms: " << answer.message;
    EXPECT_TRUE(eventually([&] { return node->engine_pid() != engine; }));
    EXPECT_TRUE(eventually([&] { return log_of(name).starts_with("once\n"); }));
    EXPECT_EQ(log_of(name), "once\n") << moment << " ms";
    EXPECT_LE(node->guest(name).pids, 3U) << moment << " ms: init, sh, sleep";
    EXPECT_TRUE(eventually([&] { return node->finish(name); })) << moment << " ms";
  }
}

TEST_F(Warden, a_reclaim_with_notice_clears_at_its_deadline_and_the_node_opens_by_release) {
  const auto name = name_of(11);
  ASSERT_EQ(node->run(name, "sleep 100").code, "");
  warden_wire::DeclareReclaim declare;
  declare.notice_s = 1;

  const auto answer = node->ask(declare);
  EXPECT_EQ(answer.reclaim.phase, ReclaimPhase::kEvacuating);
  EXPECT_EQ(node->ask(warden_wire::PrepareDisk{name_of(12), 32}).code, "unavailable");
  EXPECT_TRUE(eventually([&] {
    return node->state().reclaims.back().phase == ReclaimPhase::kCleared;
  }));
  const ReclaimRecord record = node->state().reclaims.back();
  EXPECT_GE(record.cut_ns, record.deadline_ns);
  const auto late_ms = (record.cleared_ns - record.deadline_ns) / 1'000'000;
  std::printf("  cleared %lld ms after the deadline\n", static_cast<long long>(late_ms));
  EXPECT_TRUE(has_exited(name));
  EXPECT_TRUE(std::filesystem::exists(node->guest(name).disk + "/work")) << "the disk stays";
  EXPECT_EQ(node->ask(warden_wire::Release{}).reclaim.phase, ReclaimPhase::kReturned);

  EXPECT_TRUE(node->finish(name));
  EXPECT_EQ(node->run(name, "true").code, "");
  expect_end(name, 0);
}

/// The owner's kill with everything hanging that can hang.
TEST_F(Warden, kill_works_with_engine_and_warden_stopped) {
  const auto name = name_of(13);
  ASSERT_EQ(node->run(name, "sleep 100 & sleep 100").code, "");
  const pid_t engine = node->engine_pid();
  ASSERT_EQ(kill(engine, SIGSTOP), 0);

  for (const bool is_daemon_stopped : {false, true}) {
    if (is_daemon_stopped) {
      ASSERT_TRUE(node->daemon().signal(SIGSTOP));
    }
    const std::string out = node->folder + "/kill.out";
    EXPECT_TRUE(run_shell(node->command("kill") + " > " + out + " 2>&1")) << text_of(out);
    std::printf("%s", text_of(out).c_str());
    EXPECT_EQ(text_of(out).find("(by hand)") != std::string::npos, is_daemon_stopped);
  }
  ASSERT_TRUE(node->daemon().signal(SIGCONT));
  ASSERT_EQ(kill(engine, SIGCONT), 0);

  EXPECT_TRUE(has_exited(name));
  EXPECT_EQ(node->state().reclaims.back().kind, ReclaimKind::kEmergency);
  EXPECT_EQ(node->state().reclaims.back().phase, ReclaimPhase::kCleared);
  EXPECT_EQ(node->ask(warden_wire::PrepareDisk{name_of(14), 32}).code, "unavailable");

  node->kill_daemon();
  ASSERT_TRUE(node->serve());
  EXPECT_EQ(node->ask(warden_wire::PrepareDisk{name_of(14), 32}).code, "unavailable")
      << "taken back until it is given again";
  EXPECT_EQ(node->ask(warden_wire::Release{}).code, "");
  EXPECT_TRUE(eventually([&] { return node->finish(name); }));
}

/// The line of docs/emergency.md, limited to this test's own cgroups.
TEST_F(Warden, the_printed_shell_line_kills_without_any_program_of_ours) {
  const std::string page = text_of(std::string(places::kDocs) + "/emergency.md");
  const auto from = page.find("for g in $(find /sys/fs/cgroup");
  ASSERT_NE(from, std::string::npos);
  std::string line = page.substr(from, page.find('\n', from) - from);
  const std::string all = "'reclaim-*'";
  line.replace(line.find(all), all.size(), "'reclaim-" + node->lab + "'");
  const auto name = name_of(15);
  ASSERT_EQ(node->run(name, "trap '' TERM; sleep 100 & sleep 100").code, "");

  run_shell(line);

  EXPECT_TRUE(has_exited(name));
  EXPECT_EQ(node->guest(name).pids, 0U);
  EXPECT_TRUE(node->finish(name));
}

/// Everything outside our folders that a warden could leave behind. The network namespace is this
/// test's own; of what the whole machine shares, what names one of this process's labs counts.
std::string traces() {
  std::string text;
  const std::string ours = " | grep -E 'l[vh]" + std::to_string(getpid()) + "' | sort";
  const std::vector<std::string> commands = {
      "ip -o link | cut -d: -f2- | sort",
      "nft list tables",
      "sysctl -a 2>/dev/null | grep forwarding | sort",
      "cat /proc/self/mountinfo" + ours,
      "losetup -a" + ours,
      "find /sys/fs/cgroup -name 'reclaim-*'" + ours,
      "ls /tmp" + ours,
      "ps -eo stat,args | grep -v ^Z" + ours + " | grep -v grep"};
  for (const std::string& command : commands) {
    std::array<char, 4096> part{};
    FILE* pipe = popen(command.c_str(), "r");
    while (std::fgets(part.data(), part.size(), pipe) != nullptr) text += part.data();
    pclose(pipe);
  }
  return text;
}

TEST(WardenLeave, leaves_nothing_when_engine_and_daemon_hang) {
  ASSERT_EQ(unshare(CLONE_NEWNET), 0);
  const std::string before = traces();
  {
    WardenNode node("lh");
    ASSERT_TRUE(node.serve()) << text_of(node.folder + "/log");
    ASSERT_EQ(node.load_image(), "");
    ASSERT_EQ(node.run(name_of(1), "sleep 100").code, "");
    ASSERT_TRUE(
        run_shell("for p in $(pgrep -f " + node.folder + "/[r]un/engine); do kill -STOP $p; done")
    );
    ASSERT_TRUE(node.daemon().signal(SIGSTOP));

    const std::string out = node.folder + "/leave.out";
    EXPECT_TRUE(run_shell(node.command("leave") + " > " + out)) << text_of(out);
  }
  EXPECT_EQ(traces(), before);
}

TEST(WardenCommand, a_relative_folder_below_one_that_is_gone_is_an_error_and_no_crash) {
  const int status = std::system(("d=$(mktemp -d) && cd \"$d\" && rmdir \"$d\" && " +
                                  std::string(RN_WARDEN) + " verify --state s --run r 2>/dev/null")
                                     .c_str());

  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
}

TEST(WardenLeave, leaves_nothing_and_says_what_it_removed) {
  ASSERT_EQ(unshare(CLONE_NEWNET), 0);
  const std::string before = traces();
  {
    WardenNode node("lv");
    ASSERT_TRUE(node.serve()) << text_of(node.folder + "/log");
    ASSERT_EQ(node.load_image(), "");
    ASSERT_EQ(
        node.run(
                name_of(1),
                "sleep 100",
                [](warden_wire::StartGuest& s) {
                  s.network = {{"10.9.9.9/32", 9, "tcp"}};
                }
        ).code,
        ""
    );
    node.kill_daemon();

    const std::string out = node.folder + "/leave.out";
    ASSERT_TRUE(run_shell(node.command("leave") + " > " + out)) << text_of(out);
    const std::string said = text_of(out);

    for (const char* what :
         {"guest processes", "container", "engine", "disk of j-1", "gates", "nftables", "cgroup"})
      EXPECT_NE(said.find(what), std::string::npos) << what << " in\n" << said;
    EXPECT_FALSE(std::filesystem::exists(node.folder + "/state/warden"));
  }
  EXPECT_EQ(traces(), before);
}

}  // namespace
}  // namespace rn::warden

int main(int argc, char** argv) {
  if (geteuid() != 0) {
    std::puts("skipped: needs root");
    return 77;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
