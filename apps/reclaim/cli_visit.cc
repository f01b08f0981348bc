// SPDX-License-Identifier: Apache-2.0
#include "cli_visit.h"

#include <algorithm>
#include <utility>

#include "command_line.h"

#include "base/whole_number.h"
#include "io/close_when_sent.h"
#include "io/http.h"

namespace rn::cli {

namespace {

/// Beside input, which waits for room: what a person types and does while nothing can be sent.
constexpr std::size_t kFramesWaiting = 1024;
constexpr const char* kTasksListed = "/v1/jobs?limit=1000";

Blob tunnel_word(tunnel::Kind kind) {
  return Blob{static_cast<std::uint8_t>(kind)};
}

}  // namespace

std::string task_word(const std::string& text) {
  const std::size_t slash = text.find('/');
  if (slash == std::string::npos) return name_word(text);
  const bool is_index = whole_number<std::uint32_t>(text.substr(slash + 1)).has_value();
  if (is_index) return name_word(text.substr(0, slash));
  return "'" + text + "' is no JOB or ARRAY/INDEX";
}

Result<Job> job_of_word(const Client& client, const std::string& name) {
  const std::size_t slash = name.find('/');
  if (slash == std::string::npos) return client.get_as<Job>("/v1/jobs/" + io::percent_encode(name));
  const std::string array = name.substr(0, slash);
  RN_TRY(const std::uint32_t index, whole_number<std::uint32_t>(name.substr(slash + 1)));
  RN_TRY(api::JobList list, client.get_as<api::JobList>(kTasksListed));
  for (Job& job : list.jobs) {
    const bool is_wanted =
        job.array && job.array->index == index &&
        (job.array->array == array || std::to_string(job.array->first_number) == array);
    if (is_wanted) return std::move(job);
  }
  return fail(
      ErrorCode::kNotFound,
      "array " + array + " has no task " + std::to_string(index) + " that is not over",
      "`reclaim ps` lists what runs and waits"
  );
}

Error without_url(const Error& error) {
  const std::size_t at = error.message.find(": ");
  const bool has_url = error.message.starts_with("wss://") && at != std::string::npos;
  return Error{error.code, has_url ? error.message.substr(at + 2) : error.message, error.hint};
}

void Visit::start(const Client& client, const JobId& job) {
  const io::HttpCall call = client.call("GET", "");
  io::WebSocketClientConfig config;
  config.url =
      "wss" + client.login().url.substr(5) + "/v1/visit?job=" + io::percent_encode(job.str());
  config.tls = *call.tls;
  config.headers = call.headers;
  config.limits.max_message_bytes = tunnel::kPacketMax;
  connecting_ = io::WebSocketConnect::start(
      loop_,
      std::move(config),
      [self = shared_from_this()](Result<std::shared_ptr<io::WebSocket>> socket) {
        self->connecting_.reset();
        if (self->is_over_) return socket ? (*socket)->close("over") : void();
        if (!socket)
          return self->fail_with(without_url(socket.error()).hinting("repeat it in some seconds"));
        self->connected(*std::move(socket));
      }
  );
}

void Visit::connected(std::shared_ptr<io::WebSocket> socket) {
  socket_ = std::move(socket);
  socket_->on_message([self = shared_from_this()](const Blob& packet) { self->hear(packet); });
  socket_->on_close([self = shared_from_this()](const Error& error) { self->lost(error.message); });
}

void Visit::hear(const Blob& packet) {
  if (is_over_ || packet.empty()) return;
  const auto kind = static_cast<tunnel::Kind>(packet[0]);
  if (kind == tunnel::Kind::kRefused || kind == tunnel::Kind::kReset)
    return lost(std::string(as_text(BlobView(packet).subspan(1))));
  if (!end_) {
    if (kind != tunnel::Kind::kOpened)
      return break_off("the coordinator does not keep to the protocol");
    end_ = std::make_unique<VisitEnd>();
    end_->begin(tunnel::kWindowToGuest);
    events_.opened();
  } else if (end_->hear(packet.data(), packet.size()) != VisitEnd::Heard::kFine) {
    return break_off("the guest does not keep to the protocol");
  }
  pump();
}

/// When the guest's side has ended all is here, though it may not have been taken yet.
void Visit::lost(const std::string& words) {
  if (is_over_) return;
  if (!end_ || !end_->has_heard_end()) return break_off(words);
  is_cut_off_ = true;
  pump();
}

void Visit::pump() {
  if (is_over_ || !end_ || is_pumping_) return;
  is_pumping_ = true;
  const std::shared_ptr<Visit> self = shared_from_this();  // what is called may let go of it
  take_frames();
  is_pumping_ = false;
  if (is_over_) return;
  if (end_->has_heard_end() && end_->waiting_bytes() == 0)
    return break_off("the guest has ended it");
  if (is_cut_off_ || !give_credit()) return;
  send_queued();
  if (!is_over_ && room() > 0) events_.has_room();
}

void Visit::take_frames() {
  visit::Cut frame{};
  while (!is_over_ && end_->waiting_bytes() > 0) {
    const auto cutting = visit::cut(end_->waiting(), end_->waiting_bytes(), frame);
    if (cutting == visit::Cutting::kMore && !end_->has_heard_end()) return;
    const Taken taken = cutting == visit::Cutting::kWhole ? take(frame) : Taken::kBad;
    if (is_over_ || taken == Taken::kLater) return;
    if (taken == Taken::kBad) return break_off("the guest does not keep to the protocol");
    end_->wrote(frame.used);
  }
}

Visit::Taken Visit::take(const visit::Cut& frame) {
  const BlobView body(frame.body, frame.size);
  if (frame.frame == visit::Frame::kOutput || frame.frame == visit::Frame::kErrors) {
    if (body.empty()) return Taken::kBad;
    return events_.said(frame.frame, body) ? Taken::kFine : Taken::kLater;
  }
  if (frame.frame == visit::Frame::kTaken) {
    const std::uint32_t size = body.size() == 4 ? tunnel::read_u32(body.data()) : 0;
    if (size == 0 || size > input_under_way_) return Taken::kBad;
    input_under_way_ -= size;
    return Taken::kFine;
  }
  if (frame.frame == visit::Frame::kOver && body.size() == 1) {
    finish(int{body[0]});
    return Taken::kFine;
  }
  if (frame.frame != visit::Frame::kCannot) return Taken::kBad;
  fail_with(Error{ErrorCode::kUnavailable, std::string(as_text(body)), "repeat it a little later"});
  return Taken::kFine;
}

void Visit::finish(int code) {
  is_over_ = true;
  (void)socket_->send(tunnel_word(tunnel::Kind::kEnd));
  close("over");
  events_.over(code);
}

/// False: it broke.
bool Visit::give_credit() {
  std::uint8_t credit[VisitEnd::kCreditPacket];
  const std::size_t size = end_->credit_packet(credit);
  if (size == 0) return true;
  if (!send(BlobView(credit, size))) return false;
  end_->gave_credit();
  return true;
}

std::size_t Visit::room() const {
  if (is_over_ || is_cut_off_ || !end_ || !queue_.empty()) return 0;
  const std::size_t outer = end_->may_send();
  if (outer <= visit::kHeadBytes) return 0;
  const std::size_t inner = visit::kInputWindow - input_under_way_;
  return std::min({inner, outer - visit::kHeadBytes, visit::kBodyMax});
}

void Visit::say(visit::Frame frame, BlobView body) {
  if (is_over_ || is_cut_off_ || !end_) return;
  if (queue_.size() >= kFramesWaiting) return break_off("the guest takes nothing any more");
  Blob whole(visit::kHeadBytes);
  visit::write_head(whole.data(), frame, body.size());
  whole.insert(whole.end(), body.begin(), body.end());
  queue_.push_back(std::move(whole));
  send_queued();
}

void Visit::say_input(BlobView bytes) {
  input_under_way_ += static_cast<std::uint32_t>(bytes.size());
  say(visit::Frame::kInput, bytes);
}

void Visit::send_queued() {
  while (!queue_.empty() && !is_over_) {
    const std::size_t most = end_->may_send();
    if (most == 0) return;
    const BlobView left = BlobView(queue_.front()).subspan(sent_of_front_);
    const BlobView part = left.first(std::min(most, left.size()));
    Blob packet = tunnel_word(tunnel::Kind::kData);
    packet.insert(packet.end(), part.begin(), part.end());
    end_->sent(part.size());
    sent_of_front_ += part.size();
    if (part.size() == left.size()) {
      queue_.pop_front();
      sent_of_front_ = 0;
    }
    if (!send(packet)) return;
  }
}

/// False: it broke, and is over.
bool Visit::send(BlobView packet) {
  const Status sent = socket_->send(Blob(packet.begin(), packet.end()));
  if (!sent) break_off(sent.error().message);
  return sent.has_value();
}

void Visit::resume() {
  pump();
}

void Visit::stop() {
  if (std::exchange(is_over_, true)) return;
  if (connecting_) connecting_->cancel();
  if (socket_) (void)socket_->send(tunnel_word(tunnel::Kind::kReset));
  close("stopped");
}

void Visit::break_off(const std::string& words) {
  const bool was_open = end_ != nullptr;
  const std::string why = words.empty() ? "the connection broke" : words;
  fail_with(Error{
      ErrorCode::kUnavailable,
      was_open ? "the connection into the guest broke: " + why : why,
      was_open ? ""
               : "connect again in some seconds; a job that began before its node had this "
                 "version has no way in until it starts anew"});
}

void Visit::fail_with(const Error& error) {
  if (is_over_) return;
  is_over_ = true;
  if (socket_) (void)socket_->send(tunnel_word(tunnel::Kind::kReset));
  close("broken");
  events_.over(fail(error));
}

void Visit::close(const char* reason) {
  if (socket_) io::close_when_sent(loop_, std::exchange(socket_, nullptr), reason);
}

}  // namespace rn::cli
