// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>

#include "coordinator/api_answers.h"

namespace rn::coordinator {

namespace {

/// Who has missed more is told to load anew what it shows.
constexpr std::uint64_t kToldAgain = 1000;
constexpr std::uint32_t kEventsPerLook = 200;
/// Of one write: well below what may wait for a client (HttpServerConfig::max_stream_buffer_bytes).
constexpr std::size_t kEventPieceBytes = 64 << 10;
/// Events come in crowds, and each look is a query.
constexpr auto kBetweenLooks = milliseconds(100);
/// So that both ends notice that the other one is gone, and a token that has ended is noticed here.
constexpr auto kBeat = seconds(10);
/// The client comes back at once, by its last number.
constexpr auto kLongest = std::chrono::hours(1);
constexpr std::size_t kStreamsPerUser = 32;
constexpr std::size_t kStreamsOfAll = 1024;

std::string message_text(std::string_view kind, const std::string& body, std::uint64_t seq) {
  return "id: " + std::to_string(seq) + "\nevent: " + std::string(kind) + "\ndata: " + body +
         "\n\n";
}

/// Sends the events that its caller may see, as they become durable. Held by its timer.
class EventStream : public std::enable_shared_from_this<EventStream> {
 public:
  EventStream(ApiContext& context, ApiRequest request, std::optional<std::uint64_t> after)
      : context_(context),
        caller_(std::move(request.caller)),
        token_(parts_of_token(bearer_of(request.http))),
        cursor_(after) {}

  void start(const io::Responder& responder) {
    ++context_.streams[caller_.user.str()];
    io::HttpResponse head;
    head.headers = {
        {"Content-Type", "text/event-stream"},
        {"Cache-Control", "no-store"},
        {"X-Content-Type-Options", "nosniff"}};
    // What a client waits before it comes back when nothing else is said to it.
    head.body = "retry: 2000\n\n";
    stream_ = std::make_unique<io::ResponseStream>(responder.stream(std::move(head)));
    stream_->on_drained([self = weak_from_this()] {
      if (const auto one = self.lock()) one->look();
    });
    stream_->on_closed([self = weak_from_this()] {
      if (const auto one = self.lock()) one->stop();
    });
    watch_ = context_.shell.watch_events([self = weak_from_this()] {
      if (const auto one = self.lock()) one->look_soon();
    });
    ends_at_ = context_.loop.now().boot + kLongest;
    // The timer owns the stream.
    timer_ = context_.loop.run_every(kBeat, [self = shared_from_this()] { self->beat(); });
    greet();
  }

 private:
  /// Where the stream begins: at the newest event, or after the one that the client knows.
  void greet() {
    is_reading_ = true;
    EventFilter newest;
    newest.is_newest_first = true;
    newest.limit = 1;
    read(newest, [](EventStream& self, const std::vector<StoredEvent>& events) {
      const std::uint64_t last = events.empty() ? 0 : events.front().seq;
      const std::uint64_t known = self.cursor_.value_or(last);
      // A number beyond the newest is of another database, or of a time before a backup.
      const bool is_complete = known <= last && last - known <= kToldAgain;
      self.cursor_ = is_complete ? known : last;
      self.has_greeted_ = true;
      self.send(message_text("hello", to_json(api::StreamHello{last, is_complete}), *self.cursor_));
      self.look();
    });
  }

  void look_soon() {
    if (is_waiting_ || is_done_) return;
    is_waiting_ = true;
    context_.loop.run_after(kBetweenLooks, [self = weak_from_this()] {
      const auto one = self.lock();
      if (!one) return;
      one->is_waiting_ = false;
      one->look();
    });
  }

  void look() {
    if (is_done_ || !has_greeted_) return;
    if (is_reading_ || stream_->queued_bytes() > 0) {
      looks_again_ = true;
      return;
    }
    is_reading_ = true;
    looks_again_ = false;
    EventFilter filter;
    filter.after = *cursor_;
    filter.limit = kEventsPerLook;
    read(filter, [](EventStream& self, const std::vector<StoredEvent>& events) {
      self.tell(events);
    });
  }

  template <class Then>
  void read(const EventFilter& filter, Then then) {
    const Status submitted = context_.workers.submit_for(
        [&store = context_.store, filter] { return store.events(filter); },
        [self = shared_from_this(), then](const Result<std::vector<StoredEvent>>& events) {
          self->is_reading_ = false;
          if (self->is_done_) return;
          if (!events) return self->abort();
          then(*self, *events);
        }
    );
    // The client comes back; by then there are workers.
    if (!submitted) abort();
  }

  void tell(const std::vector<StoredEvent>& events) {
    if (!is_still_allowed()) return;
    std::string piece;
    bool has_all = events.size() < kEventsPerLook;
    std::uint64_t told = *cursor_;
    for (const StoredEvent& event : events) {
      told = event.seq;
      if (may_see(context_.shell.core(), caller_, event.row))
        piece += message_text("event", to_json(event_info(event)), event.seq);
      else if (is_on_own_machine(event.row))
        piece += message_text("touched", to_json(api::StreamTouched{event.row.node}), event.seq);
      if (piece.size() < kEventPieceBytes) continue;
      has_all = false;
      break;
    }
    cursor_ = told;
    if (!piece.empty()) send(std::move(piece));
    if (is_done_) return;
    if (stream_->queued_bytes() == 0 && (!has_all || looks_again_)) look();
  }

  /// An owner's page shows who is on the machine, but their jobs' events are not the owner's.
  bool is_on_own_machine(const EventRow& event) const {
    if (caller_.role != Role::kOwner || event.node.empty()) return false;
    const auto view = context_.shell.core().node(event.node, context_.shell.now());
    return view && view->row.lab == caller_.lab;
  }

  void send(std::string text) {
    if (!stream_->write(std::move(text))) abort();
  }

  /// A stream that was allowed once is not allowed for ever.
  bool is_still_allowed() {
    const auto caller =
        context_.shell.core().authenticate(token_.id, token_.secret, context_.shell.now().wall);
    if (caller) return true;
    (void)stream_->write("event: denied\ndata: " + io::error_json(caller.error()) + "\n\n");
    finish();
    return false;
  }

  void beat() {
    if (is_done_ || !is_still_allowed()) return;
    if (context_.loop.now().boot >= ends_at_) return finish();
    // The number moves on without a message, over events that are not for this caller.
    if (has_greeted_ && stream_->queued_bytes() == 0)
      send(": beat\nid: " + std::to_string(*cursor_) + "\n\n");
    look();
  }

  void finish() {
    stream_->finish();
    stop();
  }

  void abort() {
    if (is_done_) return;
    stream_->abort();
    stop();
  }

  void stop() {
    if (is_done_) return;
    is_done_ = true;
    context_.shell.unwatch_events(watch_);
    const auto counted = context_.streams.find(caller_.user.str());
    if (--counted->second == 0) context_.streams.erase(counted);
    // NOTE: later, because the timer's or a stream's callback may be running.
    context_.loop.post([&loop = context_.loop, timer = timer_] { loop.cancel(timer); });
  }

  ApiContext& context_;
  const Caller caller_;
  const TokenParts token_;
  std::optional<std::uint64_t>
      cursor_;  ///< all events up to it were told or are not for the caller
  std::unique_ptr<io::ResponseStream> stream_;
  EventWatchId watch_;
  io::TimerId timer_;
  Instant ends_at_;
  bool has_greeted_ = false;
  bool is_reading_ = false;
  bool looks_again_ = false;  ///< something came while it could not look
  bool is_waiting_ = false;
  bool is_done_ = false;
};

/// Browsers repeat the header by themselves; `after` is for whoever cannot set one.
Result<std::optional<std::uint64_t>> last_known(ApiRequest& request) {
  const std::string_view header = request.http.header("Last-Event-ID");
  if (!header.empty()) request.query["after"] = header;
  if (!request.query.contains("after")) return std::optional<std::uint64_t>();
  RN_TRY(const std::uint64_t after, query_number(request, "after", 0));
  return std::optional(after);
}

Status admit(const ApiContext& context, const Caller& caller) {
  std::size_t all = 0;
  for (const auto& [user, count] : context.streams) all += count;
  const auto own = context.streams.find(caller.user.str());
  if (all < kStreamsOfAll && (own == context.streams.end() || own->second < kStreamsPerUser))
    return {};
  return fail(
      ErrorCode::kExhausted,
      "too many event streams are open",
      "close a window of the dashboard, or wait until another one ends"
  );
}

}  // namespace

void stream_events(ApiContext& context, ApiRequest request, io::Responder responder) {
  const auto after = last_known(request);
  if (!after) return responder.send_error(after.error());
  const Status admitted = admit(context, request.caller);
  if (!admitted) return responder.send_error(admitted.error());
  std::make_shared<EventStream>(context, std::move(request), *after)->start(responder);
}

}  // namespace rn::coordinator
