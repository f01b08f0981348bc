// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <openssl/sha.h>

#include "coordinator/daemon_fixture.h"
#include "coordinator/daemon_played_node.h"
#include "coordinator/notebook_http.h"
#include "io/inbox_fixture.h"
#include "io/loop_fixture.h"
#include "io/websocket_client.h"
#include "model/tunnel.h"

namespace rn::coordinator {
namespace {

using nlohmann::json;
using GuestKind = tunnel::Kind;

constexpr const char* kNotebookJob =
    R"({"command": ["sleep", "1000"], "env": {"NOTEBOOK_PORT": "8888"}})";

/// The server in the guest: answers a head with what the test says, and then ends; of an upgrade,
/// it gives WebSocket messages back. On the loop; `heads` from anywhere.
class PlayedServer {
 public:
  /// Empty: it refuses the connection.
  void answers(std::string answer) {
    const std::lock_guard lock(mutex_);
    answer_ = std::move(answer);
  }

  std::vector<std::string> heads() const {
    const std::lock_guard lock(mutex_);
    return heads_;
  }

  void hear(const std::shared_ptr<io::WebSocket>& link, const Blob& message) {
    ASSERT_GT(message.size(), 4u);
    const std::uint32_t id = tunnel::read_u32(message.data());
    const BlobView packet = BlobView(message).subspan(4);
    const std::lock_guard lock(mutex_);
    switch (static_cast<GuestKind>(packet[0])) {
      case GuestKind::kOpen:
        if (answer_.empty())
          return say(link, id, GuestKind::kRefused, "nothing listens there on 127.0.0.1:8888");
        tunnels_[id] = Tunnel();
        return say(link, id, GuestKind::kOpened, "");
      case GuestKind::kData:
        tunnels_[id].heard += as_text(packet.subspan(1));
        return go_on(link, id, tunnels_[id]);
      case GuestKind::kReset:
        tunnels_.erase(id);
        return;
      case GuestKind::kOpened:
      case GuestKind::kRefused:
      case GuestKind::kCredit:
      case GuestKind::kEnd:
      case GuestKind::kEnter:
      case GuestKind::kAccept:
      case GuestKind::kDial:
      case GuestKind::kFrom:
      default:
        return;
    }
  }

 private:
  struct Tunnel {
    std::string heard;
    bool is_upgraded = false;
    bool is_answered = false;
  };

  void go_on(const std::shared_ptr<io::WebSocket>& link, std::uint32_t id, Tunnel& tunnel) {
    if (tunnel.is_upgraded) return echo(link, id, tunnel);
    const std::size_t end = notebook::end_of_head(tunnel.heard);
    if (end == 0 || tunnel.is_answered) return;
    const std::string head = tunnel.heard.substr(0, end);
    heads_.push_back(head);
    if (head.find("Upgrade: websocket") != head.npos) {
      tunnel.heard.erase(0, end);
      tunnel.is_upgraded = true;
      return say(link, id, GuestKind::kData, accepts(head));
    }
    tunnel.is_answered = true;
    for (std::size_t at = 0; at < answer_.size(); at += tunnel::kDataMax)
      say(link, id, GuestKind::kData, answer_.substr(at, tunnel::kDataMax));
    say(link, id, GuestKind::kEnd, "");
  }

  static std::string accepts(const std::string& head) {
    const std::string name = "Sec-WebSocket-Key: ";
    const std::size_t at = head.find(name) + name.size();
    const std::string text =
        head.substr(at, head.find("\r\n", at) - at) + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    unsigned char digest[SHA_DIGEST_LENGTH];
    SHA1(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
    return "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
           "Sec-WebSocket-Accept: " +
           to_base64(BlobView(digest, SHA_DIGEST_LENGTH)) + "\r\n\r\n";
  }

  /// Whole frames of fewer than 126 bytes, unmasked.
  static void echo(const std::shared_ptr<io::WebSocket>& link, std::uint32_t id, Tunnel& tunnel) {
    while (tunnel.heard.size() >= 6) {
      const std::size_t size = static_cast<unsigned char>(tunnel.heard[1]) & 127;
      if (tunnel.heard.size() < 6 + size) return;
      std::string frame = tunnel.heard.substr(0, 1) + static_cast<char>(size);
      for (std::size_t i = 0; i < size; ++i)
        frame += static_cast<char>(tunnel.heard[6 + i] ^ tunnel.heard[2 + i % 4]);
      tunnel.heard.erase(0, 6 + size);
      say(link, id, GuestKind::kData, frame);
    }
  }

  static void say(
      const std::shared_ptr<io::WebSocket>& link,
      std::uint32_t id,
      GuestKind kind,
      const std::string& rest
  ) {
    say_as_guest(link, id, kind, as_bytes(rest));
  }

  mutable std::mutex mutex_;
  std::string answer_ = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
  std::vector<std::string> heads_;
  std::map<std::uint32_t, Tunnel> tunnels_;
};

/// A site with a notebook whose guest is played.
class NotebooksSite : public testing::Test {
 protected:
  NotebooksSite() {
    ann_ = site_.make_token(R"({"kind":"user","user":"ann","lab":"lab-a"})");
    node_.play_guests([this](const PlayedNode::Link& link, const Blob& message) {
      server_.hear(link, message);
    });
  }

  /// Number 1, when it runs.
  json running_job(const std::string& spec = kNotebookJob) {
    EXPECT_EQ(site_.call("POST", "/v1/jobs", spec, ann_).status, 201);
    return site_.job_when("running");
  }

  io::HttpReply ask(
      const std::string& url,
      const io::HttpHeaders& headers = {},
      const std::string& method = "GET",
      const std::string& body = {}
  ) const {
    io::HttpCall call = site_.prepared(method, "/", "");
    call.url = url;
    call.headers = headers;
    call.body = body;
    auto reply = io::perform_blocking(call);
    EXPECT_TRUE(reply.has_value()) << reply.error().describe();
    return reply ? *reply : io::HttpReply{};
  }

  json invitation(const std::string& token) const {
    return json::parse(site_.call("POST", "/v1/jobs/1/notebook", "", token).body);
  }

  /// The header of a browser that has redeemed an address; `place_` is the notebook's.
  io::HttpHeaders session() {
    const json invited = invitation(ann_);
    place_ = invited["place"];
    const io::HttpReply reply = ask(invited["url"]);
    EXPECT_EQ(reply.status, 303) << reply.body;
    const std::string cookie(io::find_header(reply.headers, "Set-Cookie"));
    return {{"Cookie", cookie.substr(0, cookie.find(';'))}};
  }

  LiveSite site_;
  std::string ann_;
  std::string place_;
  PlayedServer server_;
  PlayedNode node_{site_};
};

TEST_F(NotebooksSite, an_address_begins_one_session_and_then_counts_no_more) {
  running_job();
  const json invited = invitation(ann_);
  const std::string url = invited["url"];
  const std::string place = invited["place"];
  EXPECT_TRUE(url.starts_with(place + "?key=")) << url;
  EXPECT_EQ(invited["port"], 8888);

  const io::HttpReply first = ask(url);

  EXPECT_EQ(first.status, 303);
  EXPECT_EQ(io::find_header(first.headers, "Location"), "/notebooks/1/") << "the key is gone";
  const std::string cookie(io::find_header(first.headers, "Set-Cookie"));
  EXPECT_TRUE(cookie.starts_with(std::string(notebook::kCookie) + "=t-")) << cookie;
  EXPECT_TRUE(
      cookie.ends_with("; Path=/notebooks/1; Max-Age=604800; HttpOnly; Secure; "
                       "SameSite=Strict")
  ) << cookie;
  const io::HttpReply second = ask(url);
  EXPECT_EQ(second.status, 403);
  EXPECT_EQ(io::find_header(second.headers, "Set-Cookie"), "");
  const io::HttpHeaders mine = {{"Cookie", cookie.substr(0, cookie.find(';'))}};
  EXPECT_EQ(ask(url, mine).status, 303) << "who has a session may load the address again";
  EXPECT_EQ(ask(place, mine).body, "hello");
}

TEST_F(NotebooksSite, a_request_reaches_the_guest_without_our_cookie_and_its_answer_comes_back) {
  running_job();
  io::HttpHeaders headers = session();
  headers[0].second += "; _xsrf=2";
  headers.emplace_back("Authorization", "Bearer " + ann_);
  server_.answers(
      "HTTP/1.1 201 Created\r\nContent-Length: 3\r\nService-Worker-Allowed: /\r\n"
      "Set-Cookie: a=b; Path=/\r\n\r\nyes"
  );

  const io::HttpReply reply = ask(place_ + "api/contents?x=%20", headers, "POST", "a body");

  EXPECT_EQ(reply.status, 201);
  EXPECT_EQ(reply.body, "yes");
  EXPECT_EQ(io::find_header(reply.headers, "Service-Worker-Allowed"), "");
  EXPECT_EQ(io::find_header(reply.headers, "Set-Cookie"), "a=b; Path=/notebooks/1/; Secure");
  ASSERT_EQ(server_.heads().size(), 1u);
  const std::string head = server_.heads()[0];
  EXPECT_TRUE(head.starts_with("POST /notebooks/1/api/contents?x=%20 HTTP/1.1\r\n")) << head;
  EXPECT_NE(head.find("Cookie: _xsrf=2\r\n"), head.npos) << head;
  EXPECT_EQ(head.find("reclaim-notebook"), head.npos) << head;
  EXPECT_EQ(head.find("Authorization"), head.npos) << head;
}

TEST_F(NotebooksSite, a_large_answer_comes_whole_by_credit) {
  running_job();
  const io::HttpHeaders headers = session();
  std::string body;
  for (int i = 0; i < 12'000; ++i) body += std::to_string(i) + " of a plot\n";
  ASSERT_LT(body.size(), tunnel::kWindowToUser - 16 * tunnel::kPacketCost) << "the player's window";
  server_.answers(
      "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body
  );

  EXPECT_EQ(ask(place_ + "plot", headers).body, body);
}

TEST_F(NotebooksSite, a_websocket_goes_through) {
  running_job();
  const io::HttpHeaders headers = session();
  const io::Inbox inbox;
  const io::Told<Result<std::shared_ptr<io::WebSocket>>> opened;
  io::WebSocketClientConfig config;
  config.url = "wss" + place_.substr(5) + "api/kernels/k/channels";
  config.tls = *site_.prepared("GET", "/", "").tls;
  config.headers = headers;
  node_.thread().call([&] {
    io::WebSocketConnect::start(
        node_.thread().loop(),
        config,
        [opened, inbox](Result<std::shared_ptr<io::WebSocket>> socket) {
          if (socket)
            (*socket)->on_message([inbox](Blob message) { inbox.put(std::move(message)); });
          opened.tell(std::move(socket));
        }
    );
  });
  const auto socket = opened.wait();
  ASSERT_TRUE(socket) << socket.error().describe();

  for (const std::string word : {"execute", "this"}) {
    const BlobView bytes = as_bytes(word);
    node_.thread().call([&] { EXPECT_TRUE((*socket)->send(Blob(bytes.begin(), bytes.end()))); });
    EXPECT_EQ(as_text(inbox.take()), word);
  }

  node_.thread().call([&] { (*socket)->close("over"); });
}

TEST_F(NotebooksSite, nobody_else_gets_in) {
  running_job();
  const std::string bob = site_.make_token(R"({"kind":"user","user":"bob","lab":"lab-a"})");
  EXPECT_EQ(site_.call("POST", "/v1/jobs/1/notebook", "", bob).status, 404);
  const io::HttpReply admin = site_.call("POST", "/v1/jobs/1/notebook", "");
  EXPECT_EQ(admin.status, 403);
  EXPECT_NE(admin.body.find("reclaim forward"), admin.body.npos) << "which an administrator may";

  const io::HttpHeaders headers = session();
  const std::string cookie = headers[0].second;
  EXPECT_EQ(ask(place_).status, 403) << "without a session";
  EXPECT_EQ(ask(place_, {{"Authorization", "Bearer " + ann_}}).status, 403) << "no other way in";
  EXPECT_EQ(ask(place_, {{"Cookie", cookie.substr(0, cookie.size() - 1) + "x"}}).status, 403);
  EXPECT_EQ(ask(place_ + "?key=" + std::string(48, '0')).status, 403);
  const std::string origin = place_.substr(0, place_.find("/notebooks/"));
  EXPECT_EQ(ask(origin + "/notebooks/2/", headers).status, 403) << "the session is of job 1";
  EXPECT_EQ(ask(origin + "/v1/jobs", {{"Authorization", "Bearer " + ann_}}).status, 404);
  io::HttpHeaders foreign = headers;
  foreign.emplace_back("Origin", site_.url());
  EXPECT_EQ(ask(place_ + "api", foreign, "POST", "{}").status, 403) << "a page of the dashboard's";
  EXPECT_EQ(server_.heads().size(), 0u);
}

TEST_F(NotebooksSite, a_token_that_is_revoked_ends_its_sessions) {
  running_job();
  const io::HttpHeaders headers = session();
  ASSERT_EQ(ask(place_, headers).status, 200);
  const std::string id =
      ann_.substr(ann_.find("t-"), ann_.find('.', ann_.find("t-")) - ann_.find("t-"));

  ASSERT_EQ(site_.call("DELETE", "/v1/tokens/" + id).status, 204);

  EXPECT_EQ(ask(place_, headers).status, 403);
}

TEST_F(NotebooksSite, a_session_outlives_the_coordinators_start_and_a_key_does_not) {
  running_job();
  const std::string unused = invitation(ann_)["url"];
  const io::HttpHeaders headers = session();
  const std::string before = site_.url();

  site_.stop();
  site_.start();

  const std::string place = invitation(ann_)["place"];  // another port, as the test's is any
  const io::HttpReply reply = ask(place, headers);
  EXPECT_TRUE(reply.status == 200 || reply.status == 503) << reply.status << reply.body;
  EXPECT_EQ(ask(place + unused.substr(unused.find("?key="))).status, 403);
}

TEST_F(NotebooksSite, while_it_is_nowhere_a_page_says_what_happens_and_looks_again) {
  running_job();
  const io::HttpHeaders headers = session();
  io::HttpHeaders page = headers;
  page.emplace_back("Accept", "text/html,*/*");
  server_.answers("");

  const io::HttpReply starts = ask(place_, page);
  EXPECT_EQ(starts.status, 503);
  EXPECT_EQ(io::find_header(starts.headers, "Retry-After"), "2");
  EXPECT_NE(starts.body.find("http-equiv=\"refresh\" content=\"2\""), starts.body.npos);
  EXPECT_NE(starts.body.find("nothing listens there"), starts.body.npos) << starts.body;
  node_.thread().call([&] { node_.link()->close("the node is away"); });
  io::HttpReply away;
  for (int i = 0; i < 500; ++i) {  // the coordinator hears of it a moment later
    away = ask(place_ + "api", headers);
    if (away.body.find("offers no way") != away.body.npos) break;
    std::this_thread::sleep_for(milliseconds(10));  // between two looks
  }
  EXPECT_EQ(away.status, 503);
  EXPECT_EQ(json::parse(away.body)["error"]["code"], "unavailable") << "a program gets no page";

  EXPECT_EQ(site_.call("POST", "/v1/jobs/1/stop", "{}", ann_).status, 200);
  site_.job_when("cancelled");

  const io::HttpReply over = ask(place_, page);
  EXPECT_EQ(over.status, 409);
  EXPECT_EQ(over.body.find("http-equiv"), over.body.npos) << "there is nothing to wait for";
  EXPECT_EQ(site_.call("POST", "/v1/jobs/1/notebook", "", ann_).status, 409);
}

TEST_F(NotebooksSite, the_page_is_told_of_its_job_by_the_coordinator_itself) {
  const json job = running_job();
  const io::HttpHeaders headers = session();

  const io::HttpReply reply = ask(place_ + ".reclaim/state", headers);

  EXPECT_EQ(reply.status, 200);
  const json state = json::parse(reply.body);
  EXPECT_EQ(state["job"], 1);
  EXPECT_EQ(state["state"], "running");
  EXPECT_EQ(state["epoch"], job["epoch"]);
  EXPECT_EQ(state["is_noticed"], false);
  EXPECT_FALSE(state["why"].get<std::string>().empty());
  EXPECT_EQ(ask(place_ + ".reclaim/state").status, 403);
  EXPECT_EQ(server_.heads().size(), 0u) << "the guest is not asked";
}

TEST_F(NotebooksSite, what_a_guest_sends_that_is_no_answer_is_said) {
  running_job();
  const io::HttpHeaders headers = session();
  server_.answers("SSH-2.0-x\r\n\r\n");
  EXPECT_NE(ask(place_, headers).body.find("does not speak HTTP"), std::string::npos);
  server_.answers("HTTP/1.1 200 OK\r\nContent-Le");
  EXPECT_NE(ask(place_, headers).body.find("has no head"), std::string::npos);
}

TEST_F(NotebooksSite, a_job_without_a_notebook_has_no_address) {
  running_job(R"({"command": ["sleep", "1000"]})");

  const io::HttpReply reply = site_.call("POST", "/v1/jobs/1/notebook", "", ann_);

  EXPECT_EQ(reply.status, 501);
  EXPECT_NE(reply.body.find("job 1 has no notebook"), reply.body.npos) << reply.body;
}

}  // namespace
}  // namespace rn::coordinator
