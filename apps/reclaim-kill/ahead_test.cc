// SPDX-License-Identifier: Apache-2.0
//
// The built program under ptrace: what it asks of the kernel first. Needs no rights: the gate that
// it is told of is not there.

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <linux/bpf.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace rn {
namespace {

/// `PROGRAM WORDS…`, stopped at its first system call; ended with the object.
class Begun {
 public:
  explicit Begun(std::vector<const char*> words, const char* program = RN_KILL_PROGRAM) {
    words.insert(words.begin(), program);
    words.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
      execv(words.front(), const_cast<char**>(words.data()));
      _exit(127);
    }
    int status = 0;
    waitpid(pid_, &status, 0);                                        // after the exec
    ptrace(PTRACE_SETOPTIONS, pid_, nullptr, PTRACE_O_TRACESYSGOOD);  // else no call is told
    while (WIFSTOPPED(status) && call_.op != PTRACE_SYSCALL_INFO_ENTRY) {
      ptrace(PTRACE_SYSCALL, pid_, nullptr, nullptr);
      waitpid(pid_, &status, 0);
      ptrace(PTRACE_GET_SYSCALL_INFO, pid_, sizeof call_, &call_);
    }
  }

  Begun(const Begun&) = delete;
  Begun& operator=(const Begun&) = delete;

  ~Begun() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  std::uint64_t call() const { return call_.entry.nr; }

  std::uint64_t argument(int which) const { return call_.entry.args[which]; }

  std::uint64_t word_at(std::uint64_t address) const {
    return static_cast<std::uint64_t>(ptrace(PTRACE_PEEKDATA, pid_, address, nullptr));
  }

  std::string text_at(std::uint64_t address) const {
    std::string text;
    for (; text.size() < 512; address += sizeof(std::uint64_t)) {
      const std::uint64_t word = word_at(address);
      char part[sizeof word + 1] = {};
      std::memcpy(part, &word, sizeof word);
      text += part;
      if (std::strlen(part) < sizeof word) break;
    }
    return text;
  }

 private:
  pid_t pid_ = 0;
  __ptrace_syscall_info call_{};
};

TEST(ReclaimKill, asks_the_kernel_for_the_gate_before_anything_else) {
#if defined(__x86_64__)
  const Begun guests({"--run", "/nowhere", "--cut-only"});
  ASSERT_EQ(guests.call(), SYS_bpf);
  EXPECT_EQ(guests.argument(0), BPF_OBJ_GET);
  EXPECT_EQ(guests.text_at(guests.word_at(guests.argument(1))), "/nowhere/gates/rn_node_gate");

  const Begun transfers({"--run=/nowhere", "--transfers"});
  ASSERT_EQ(transfers.call(), SYS_bpf);
  EXPECT_EQ(
      transfers.text_at(transfers.word_at(transfers.argument(1))), "/nowhere/gates/rn_edge_gate"
  );
#else
  GTEST_SKIP() << "elsewhere than on x86-64 the C library comes first";
#endif
}

TEST(ReclaimKill, touches_no_gate_for_an_order_that_is_for_less) {
#if defined(__x86_64__)
  for (const char* const word : {"--gpu=64", "--help", "--frob"})
    EXPECT_EQ(Begun({"--run", "/nowhere", word}).call(), SYS_brk) << word << ": the C library's";
#else
  GTEST_SKIP() << "elsewhere than on x86-64 the C library comes first";
#endif
}

TEST(ReclaimKill, looks_which_slots_have_a_gpu_before_anything_else) {
#if defined(__x86_64__)
  const Begun gpus({"--run", "/nowhere", "--gpu=0"});
  ASSERT_EQ(gpus.call(), SYS_openat);
  EXPECT_EQ(gpus.text_at(gpus.argument(1)), "/nowhere/slot-gpus");
#else
  GTEST_SKIP() << "elsewhere than on x86-64 the C library comes first";
#endif
}

TEST(ReclaimKill, looks_whether_a_lab_that_is_named_was_served_before_it_cuts) {
#if defined(__x86_64__)
  const Begun named({"--run", "/nowhere", "--state", "/elsewhere", "--lab", "lab-a"});
  ASSERT_EQ(named.call(), SYS_openat);
  EXPECT_EQ(named.text_at(named.argument(1)), "/elsewhere/warden/settings");
#else
  GTEST_SKIP() << "elsewhere than on x86-64 the C library comes first";
#endif
}

TEST(ReclaimWarden, kill_asks_the_kernel_for_the_gate_before_anything_else) {
#if defined(__x86_64__)
  const Begun guests({"kill", "--run", "/nowhere", "--cut-only"}, RN_WARDEN_PROGRAM);
  ASSERT_EQ(guests.call(), SYS_bpf);
  EXPECT_EQ(guests.argument(0), BPF_OBJ_GET);
  EXPECT_EQ(guests.text_at(guests.word_at(guests.argument(1))), "/nowhere/gates/rn_node_gate");
#else
  GTEST_SKIP() << "elsewhere than on x86-64 the C library comes first";
#endif
}

TEST(ReclaimWarden, touches_no_gate_for_another_verb) {
#if defined(__x86_64__)
  for (const char* const verb : {"verify", "serve", "killed", "kil", "--help"})
    EXPECT_EQ(Begun({verb, "--run", "/nowhere"}, RN_WARDEN_PROGRAM).call(), SYS_brk) << verb;
  EXPECT_EQ(Begun({}, RN_WARDEN_PROGRAM).call(), SYS_brk) << "no word at all";
#else
  GTEST_SKIP() << "elsewhere than on x86-64 the C library comes first";
#endif
}

TEST(ReclaimWarden, says_what_to_do_where_the_large_program_is_not_installed) {
  std::string folder = std::filesystem::temp_directory_path() / "rn-test-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  std::filesystem::copy_file(RN_WARDEN_PROGRAM, folder + "/reclaim-warden");

  FILE* const said = popen((folder + "/reclaim-warden verify 2>&1").c_str(), "r");
  ASSERT_NE(said, nullptr);
  std::string text(4096, '\0');
  text.resize(fread(text.data(), 1, text.size(), said));
  const int status = pclose(said);
  std::filesystem::remove_all(folder);

  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_NE(text.find("lib/reclaimnet/reclaim-warden: No such file"), std::string::npos) << text;
  EXPECT_NE(text.find("next: install the whole package"), std::string::npos) << text;
}

}  // namespace
}  // namespace rn
