// SPDX-License-Identifier: Apache-2.0
#include "cli_exec.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "cli_copy.h"
#include "cli_run.h"
#include "cli_site_fixture.h"
#include <gtest/gtest.h>
#include <signal.h>

#include "base/scratch_folder.h"
#include "coordinator/daemon_fixture.h"
#include "coordinator/daemon_played_node.h"
#include "model/copy_stream.h"
#include "model/tunnel.h"
#include "model/visit.h"

namespace rn::cli {
namespace {

using coordinator::say_as_guest;
using TunnelKind = tunnel::Kind;
using visit::Frame;

/// No test here takes as long; one that would wait for ever fails.
constexpr seconds kGuestsAnswerIn{60};

/// The guests of a node whose PID 1 is played. A command's first word says what it does.
class VisitedGuests {
 public:
  void hear(const std::shared_ptr<io::WebSocket>& link, const Blob& message) {
    ASSERT_GT(message.size(), 4u);
    const std::uint32_t id = tunnel::read_u32(message.data());
    const BlobView packet = BlobView(message).subspan(4);
    if (packet[0] == static_cast<std::uint8_t>(TunnelKind::kEnter)) {
      ends_[id] = std::make_unique<End>();
      ends_[id]->begin(tunnel::kWindowToUser);
      return say_as_guest(link, id, TunnelKind::kOpened, {});
    }
    const auto found = ends_.find(id);
    if (found == ends_.end()) return;
    End& end = *found->second;
    const auto heard = end.hear(packet.data(), packet.size());
    if (heard != End::Heard::kFine) ends_.erase(found);
    if (heard == End::Heard::kReset) return;
    // Said, so that nobody waits for an answer.
    if (heard != End::Heard::kFine)
      return say_as_guest(link, id, TunnelKind::kReset, as_bytes("no credit"));
    visit::Cut frame{};
    while (visit::cut(end.waiting(), end.waiting_bytes(), frame) == visit::Cutting::kWhole) {
      obey(link, id, frame);
      end.wrote(frame.used);
    }
    std::uint8_t credit[End::kCreditPacket];
    if (end.credit_packet(credit) == 0) return;
    say_as_guest(link, id, TunnelKind::kCredit, BlobView(credit).subspan(1));
    end.gave_credit();
  }

  std::string taken_path;
  std::string taken;

 private:
  using End = tunnel::End<tunnel::kWindowToGuest>;

  void obey(const std::shared_ptr<io::WebSocket>& link, std::uint32_t id, const visit::Cut& frame) {
    const std::string body(as_text(BlobView(frame.body, frame.size)));
    if (frame.frame == Frame::kRun) {
      visit::Run run{};
      ASSERT_TRUE(visit::read_run(frame.body, frame.size, run));
      command_ = run.words[0];
      if (command_ == "both") {
        tell(link, id, Frame::kOutput, "to the output\n");
        tell(link, id, Frame::kErrors, "to the errors\n");
        return tell(link, id, Frame::kOver, std::string(1, 7));
      }
      if (command_ == "breaks")
        return say_as_guest(link, id, TunnelKind::kReset, as_bytes("it is gone"));
      if (command_ == "lies") return tell(link, id, Frame::kTaken, std::string(4, 'x'));
      if (command_ == "none") return tell(link, id, Frame::kCannot, "no process");
      return;  // "signalled": it waits
    }
    if (frame.frame == Frame::kSignal)
      return tell(link, id, Frame::kOver, std::string(1, static_cast<char>(128 + body[0])));
    if (frame.frame == Frame::kSend) return send_file(link, id, body);
    if (frame.frame == Frame::kTake) {
      taken_path = body;
    } else if (frame.frame == Frame::kInput) {
      taken += body;
      std::string size(4, '\0');
      tunnel::write_u32(
          reinterpret_cast<std::uint8_t*>(size.data()), static_cast<std::uint32_t>(body.size())
      );
      tell(link, id, Frame::kTaken, size);
    } else if (frame.frame == Frame::kInputEnd) {
      tell(link, id, Frame::kOver, std::string(1, '\0'));
    }
  }

  void send_file(
      const std::shared_ptr<io::WebSocket>& link, std::uint32_t id, const std::string& path
  ) {
    if (path == "gone") {
      tell(link, id, Frame::kErrors, "cannot read gone: No such file or directory\n");
      return tell(link, id, Frame::kOver, std::string(1, 3));
    }
    // Whatever it is called: who asks knows its name.
    const std::string name = path == "evil" ? "../evil" : "x";
    std::uint8_t made[copy_stream::kEntryMax];
    const std::size_t size =
        copy_stream::write_entry(made, copy_stream::Kind::kFile, 0644, name.data(), name.size());
    std::string stream(reinterpret_cast<const char*>(made), size);
    stream += std::string("\0\0\0\3abc\0\0\0\0\5", 12);
    tell(link, id, Frame::kOutput, stream);
    tell(link, id, Frame::kOver, std::string(1, '\0'));
  }

  void tell(
      const std::shared_ptr<io::WebSocket>& link,
      std::uint32_t id,
      Frame frame,
      const std::string& body
  ) {
    Blob bytes(visit::kHeadBytes);
    visit::write_head(bytes.data(), frame, body.size());
    bytes.insert(bytes.end(), body.begin(), body.end());
    const auto end = ends_.find(id);
    if (end == ends_.end()) return;
    ASSERT_LE(bytes.size(), end->second->may_send());
    end->second->sent(bytes.size());
    say_as_guest(link, id, TunnelKind::kData, bytes);
  }

  std::map<std::uint32_t, std::unique_ptr<End>> ends_;
  std::string command_;
};

class CliVisits : public testing::Test {
 protected:
  CliVisits() {
    node_.play_guests([this](const auto& link, const Blob& message) { guests_.hear(link, message); }
    );
    node_.thread().call([&] {
      patience_ = node_.thread().loop().run_after(kGuestsAnswerIn, [this] {
        ADD_FAILURE() << "a guest did not answer";
        if (node_.link()) node_.link()->close("too late");  // breaks off all that waits for it
      });
    });
    EXPECT_EQ(site_.call("POST", "/v1/jobs", R"({"command": ["sleep", "1000"]})").status, 201);
    site_.job_when("running");
  }

  ~CliVisits() override {
    node_.thread().call([&] { node_.thread().loop().cancel(patience_); });
  }

  Client client() const { return client_of(site_, site_.admin()); }

  static ExecOptions command(const std::string& word) {
    ExecOptions options;
    options.job = "1";
    options.command = {word};
    options.refuses_terminal = true;
    return options;
  }

  coordinator::LiveSite site_;
  VisitedGuests guests_;
  coordinator::PlayedNode node_{site_};
  io::TimerId patience_;
};

TEST_F(CliVisits, output_and_errors_come_apart_and_the_code_is_the_commands_own) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();

  EXPECT_EQ(exec_command(client(), command("both")), 7);

  EXPECT_EQ(testing::internal::GetCapturedStdout(), "to the output\n");
  const std::string errors = testing::internal::GetCapturedStderr();  // beside the daemon's log
  EXPECT_NE(errors.find("to the errors\n"), errors.npos) << errors;
  EXPECT_EQ(errors.find("to the output"), errors.npos) << errors;
}

TEST_F(CliVisits, a_signal_goes_to_the_command_and_it_answers_for_it) {
  ExecOptions options = command("signalled");
  options.began = [](const std::function<void(int)>& signal) { signal(SIGINT); };

  EXPECT_EQ(exec_command(client(), options), 128 + SIGINT);
}

TEST_F(CliVisits, a_break_is_said_with_what_to_do_and_has_a_code_of_its_own) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(exec_command(client(), command("breaks")), kExecFailed);
  EXPECT_EQ(exec_command(client(), command("lies")), kExecFailed);
  EXPECT_EQ(exec_command(client(), command("none")), kExecFailed);
  ExecOptions other = command("both");
  other.job = "99";
  EXPECT_EQ(exec_command(client(), other), kExecFailed);

  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("the connection into the guest broke: it is gone\n  next: "), said.npos)
      << said;
  EXPECT_NE(said.find("`reclaim why 1` says where the job is"), said.npos) << said;
  EXPECT_NE(said.find("broke: the guest does not keep to the protocol\n"), said.npos) << said;
  EXPECT_NE(said.find("reclaim: no process\n  next: "), said.npos) << said;
  EXPECT_NE(said.find("no job 99"), said.npos) << said;
}

TEST_F(CliVisits, a_file_comes_out_of_a_guest_under_the_name_that_was_asked_for) {
  const ScratchFolder folder;
  EXPECT_EQ(copy_command(client(), "1:out/model.pt", folder.path()), 0);

  std::ifstream file(folder.path() + "/model.pt");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "abc");

  testing::internal::CaptureStderr();
  EXPECT_EQ(copy_command(client(), "1:gone", folder.path()), 3);
  EXPECT_EQ(copy_command(client(), "1:evil", folder.path()), 1);
  EXPECT_EQ(copy_command(client(), "1:a", "1:b"), 2);
  EXPECT_EQ(copy_command(client(), "a", "b"), 2);
  EXPECT_EQ(copy_command(client(), folder.path() + "/none", "1:b"), 3);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("job 1: cannot read gone: No such file"), said.npos) << said;
  EXPECT_NE(said.find("what the guest sent is refused: a name in it is none"), said.npos) << said;
}

TEST_F(CliVisits, a_file_goes_into_a_guest_however_big_it_is) {
  const ScratchFolder folder;
  const std::string content(1u << 20, 'x');
  std::ofstream(folder.path() + "/big", std::ios::binary) << content;

  EXPECT_EQ(copy_command(client(), folder.path() + "/big", "1:/tmp/"), 0);

  std::string path;
  std::string taken;
  node_.thread().call([&] {
    path = guests_.taken_path;
    taken = guests_.taken;
  });
  EXPECT_EQ(path, "/tmp/");
  EXPECT_GT(taken.size(), content.size());
  EXPECT_GE(std::count(taken.begin(), taken.end(), 'x'), 1 << 20);
}

TEST_F(CliVisits, a_job_is_watched_to_its_end_and_one_that_is_over_is_not) {
  testing::internal::CaptureStderr();
  int code = -1;
  std::thread watching([&] { code = attach(client(), "1"); });
  EXPECT_EQ(site_.call("POST", "/v1/jobs/1/stop", "{}").status, 200);
  watching.join();
  EXPECT_EQ(attach(client(), "1"), 5);
  EXPECT_EQ(attach(client(), "99"), 3);

  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(code, 0) << "it was stopped";
  EXPECT_NE(said.find("job 1 is over: cancelled\n  next: `reclaim logs 1`"), said.npos) << said;
}

}  // namespace
}  // namespace rn::cli
