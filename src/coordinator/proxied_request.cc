// SPDX-License-Identifier: Apache-2.0
#include "coordinator/proxied_request.h"

#include <algorithm>
#include <utility>

#include "coordinator/notebook_http.h"

namespace rn::coordinator {

namespace {

using ProxiedKind = tunnel::Kind;

/// Of an answer, in one write to the browser.
constexpr std::size_t kProxiedPiece = 32u << 10;

}  // namespace

// ---- the end of a tunnel

void LocalEnd::listen(std::function<void(const Blob&)> heard) {
  heard_ = std::move(heard);
}

void LocalEnd::say(const Blob& packet) {
  if (is_open_ && said_) said_(packet);
}

void LocalEnd::hang_up() {
  heard_ = nullptr;
  waiting_.clear();
  waiting_bytes_ = 0;
  close("over");
}

Status LocalEnd::send(Blob message) {
  if (!is_open_) return fail(ErrorCode::kUnavailable, "the connection is closed");
  waiting_bytes_ += message.size();
  waiting_.push_back(std::move(message));
  if (waiting_.size() == 1) loop_.post([self = shared_from_this()] { self->deliver(); });
  return {};
}

void LocalEnd::deliver() {
  while (!waiting_.empty()) {
    const Blob packet = std::move(waiting_.front());
    waiting_.pop_front();
    waiting_bytes_ -= packet.size();
    if (const auto heard = heard_) heard(packet);
  }
}

void LocalEnd::close(const std::string& reason) {
  if (!std::exchange(is_open_, false)) return;
  said_ = nullptr;
  if (const auto closed = std::exchange(closed_, nullptr))
    closed(Error{ErrorCode::kUnavailable, reason, {}});
}

void LocalEnd::on_message(std::function<void(Blob)> fn) {
  said_ = std::move(fn);
}

void LocalEnd::on_close(std::function<void(const Error&)> fn) {
  closed_ = std::move(fn);
}

std::size_t LocalEnd::queued_bytes() const {
  return waiting_bytes_;
}

bool LocalEnd::is_open() const {
  return is_open_;
}

const std::optional<std::string>& LocalEnd::peer_identity() const {
  static const std::optional<std::string> kNone;
  return kNone;
}

const std::string& LocalEnd::remote() const {
  static const std::string kHere = "notebook";
  return kHere;
}

// ---- a request

ProxiedRequest::ProxiedRequest(
    std::shared_ptr<io::TakenConnection> browser,
    std::shared_ptr<LocalEnd> tunnel,
    const io::HttpRequest& request,
    std::uint64_t job,
    Absence absence
)
    : browser_(std::move(browser)),
      tunnel_(std::move(tunnel)),
      job_(job),
      is_upgrade_(notebook::is_upgrade(request)),
      wants_continue_(!request.header("Expect").empty()),
      absence_(std::move(absence)),
      to_guest_(notebook::request_head(request)) {}

void ProxiedRequest::start(std::function<void()> over) {
  over_ = std::move(over);
  tunnel_->listen([weak = weak_from_this()](const Blob& packet) {
    if (const auto self = weak.lock()) self->hear(packet);
  });
}

void ProxiedRequest::stop() {
  over_ = nullptr;
  if (!is_over_) abort();
}

void ProxiedRequest::hear(const Blob& packet) {
  if (is_over_ || packet.empty()) return;
  const std::string words(as_text(BlobView(packet).subspan(1)));
  const auto kind = static_cast<ProxiedKind>(packet[0]);
  if (kind == ProxiedKind::kRefused || kind == ProxiedKind::kReset) {
    const std::string why = words.empty() ? "the connection to the notebook broke" : words;
    return refuse(Error{ErrorCode::kUnavailable, why, {}});
  }
  if (!end_) {
    if (kind != ProxiedKind::kOpened)
      return refuse(Error{ErrorCode::kInternal, "the node does not keep to the protocol", {}});
    end_ = std::make_unique_for_overwrite<UserEnd>();  // its memory is touched as it is used
    end_->begin(tunnel::kWindowToGuest);
    if (wants_continue_) to_browser_ = "HTTP/1.1 100 Continue\r\n\r\n";
    return pump();
  }
  if (end_->hear(packet.data(), packet.size()) != UserEnd::Heard::kFine)
    return refuse(Error{ErrorCode::kInternal, "the guest does not keep to the protocol", {}});
  pump();
}

/// Whatever can be done now in both directions.
void ProxiedRequest::pump() {
  if (is_over_) return;
  if (send_head()) read_browser();
  if (is_over_ || !take_answer_head()) return;
  write_browser();
}

/// True once the whole head of the request is on its way.
bool ProxiedRequest::send_head() {
  while (!to_guest_.empty()) {
    const std::size_t bytes = std::min(end_->may_send(), to_guest_.size());
    if (bytes == 0) return false;
    say(ProxiedKind::kData, as_bytes(std::string_view(to_guest_).substr(0, bytes)));
    if (is_over_) return false;
    end_->sent(bytes);
    to_guest_.erase(0, bytes);
  }
  return true;
}

void ProxiedRequest::read_browser() {
  const std::size_t most = is_reading_ ? 0 : end_->may_send();
  if (most == 0) return;
  is_reading_ = true;
  browser_->read(most, [self = shared_from_this()](Result<Blob> bytes) {
    self->is_reading_ = false;
    if (self->is_over_) return;
    // A browser that ends its side has gone.
    if (!bytes || bytes->empty()) return self->abort();
    self->say(ProxiedKind::kData, *bytes);
    if (self->is_over_) return;
    self->end_->sent(bytes->size());
    self->pump();
  });
}

/// False: it has not come whole, or is none.
bool ProxiedRequest::take_answer_head() {
  while (!has_answer_head_) {
    const std::size_t there = std::min(end_->waiting_bytes(), notebook::kHeadMax);
    const std::string_view bytes = as_text(BlobView(end_->waiting(), there));
    const std::size_t end = notebook::end_of_head(bytes);
    if (end == 0) {
      const bool is_too_long = there == notebook::kHeadMax;
      if (is_too_long || end_->has_heard_end())
        refuse(Error{ErrorCode::kInvalid, "the notebook's answer has no head", {}});
      else if (!to_browser_.empty())
        write_browser();
      return false;
    }
    const auto head = notebook::answer_head(bytes.substr(0, end), job_, is_upgrade_);
    if (!head) {
      refuse(head.error());
      return false;
    }
    end_->wrote(end);
    if (head->text.empty()) continue;
    has_answer_head_ = true;
    to_browser_ += head->text;
    absence_ = nullptr;
  }
  return true;
}

void ProxiedRequest::write_browser() {
  if (is_writing_) return;
  give_credit();
  if (is_over_) return;
  Blob piece;
  std::size_t of_guest = 0;
  if (!to_browser_.empty()) {
    const BlobView head = as_bytes(to_browser_);
    piece.assign(head.begin(), head.end());
    to_browser_.clear();
  } else if (has_answer_head_) {
    of_guest = std::min(end_->waiting_bytes(), kProxiedPiece);
    piece.assign(end_->waiting(), end_->waiting() + of_guest);
  }
  if (piece.empty()) {
    if (end_->has_heard_end()) finish();
    return;
  }
  is_writing_ = true;
  browser_->write(std::move(piece), [self = shared_from_this(), of_guest](const Status& written) {
    self->is_writing_ = false;
    if (self->is_over_) return;
    if (!written) return self->abort();
    self->end_->wrote(of_guest);
    self->pump();
  });
}

void ProxiedRequest::give_credit() {
  std::uint8_t credit[UserEnd::kCreditPacket];
  const std::size_t size = end_->credit_packet(credit);
  if (size == 0) return;
  tunnel_->say(Blob(credit, credit + size));
  if (!is_over_) end_->gave_credit();
}

void ProxiedRequest::say(ProxiedKind kind, BlobView bytes) {
  Blob packet{static_cast<std::uint8_t>(kind)};
  packet.insert(packet.end(), bytes.begin(), bytes.end());
  tunnel_->say(packet);
}

void ProxiedRequest::refuse(const Error& why) {
  const bool has_begun = has_answer_head_ || is_writing_;
  if (has_begun || !absence_ || !browser_->is_open()) return abort();
  const std::string text = raw_text(absence_(why));
  const auto browser = browser_;
  leave();
  const BlobView bytes = as_bytes(text);
  browser->write(Blob(bytes.begin(), bytes.end()), [browser](const Status&) { browser->finish(); });
}

void ProxiedRequest::finish() {
  const auto browser = browser_;
  say(ProxiedKind::kEnd, {});
  leave();
  browser->finish();
}

void ProxiedRequest::abort() {
  const auto browser = browser_;
  leave();
  browser->close();
}

void ProxiedRequest::leave() {
  is_over_ = true;
  const auto self = shared_from_this();  // who keeps it lets it go
  tunnel_->hang_up();
  if (const auto over = std::exchange(over_, nullptr)) over();
}

std::string raw_text(const io::HttpResponse& response) {
  std::string text = "HTTP/1.1 " + std::to_string(response.status) + " -\r\n";
  for (const auto& [name, value] : response.headers) text += name + ": " + value + "\r\n";
  text += "Content-Length: " + std::to_string(response.body.size()) + "\r\n";
  return text + "Connection: close\r\n\r\n" + response.body;
}

}  // namespace rn::coordinator
