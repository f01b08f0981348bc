// SPDX-License-Identifier: Apache-2.0
#include "io/http_client.h"

#include <array>
#include <map>
#include <utility>
#include <vector>

#include <sys/epoll.h>

#include "base/assert.h"
#include "io/curl_transfer.h"
#include "io/fd.h"

namespace rn::io {

// curl names the sockets that it waits for; they go into an epoll set of their own, and the loop
// watches that set.
struct HttpClient::State {
  using Done = std::function<void(Result<HttpReply>)>;

  struct Active {
    std::unique_ptr<CurlTransfer> transfer;
    Done done;
  };

  State(Loop& owner, std::size_t max) : loop(owner), max_calls(max) {}

  Loop& loop;
  std::size_t max_calls;
  CURLM* multi = nullptr;
  Fd sockets;
  WatchId watch;
  TimerId timer;
  std::uint64_t next_id = 1;
  std::map<std::uint64_t, Active> active;
  // Tells callbacks on the loop that outlive this object that it is gone.
  std::shared_ptr<bool> is_alive = std::make_shared<bool>(true);

  static int on_socket(CURL*, curl_socket_t socket, int what, void* self, void*) {
    auto& state = *static_cast<State*>(self);
    epoll_event event{};
    event.data.fd = socket;
    if ((what & CURL_POLL_IN) != 0) event.events |= EPOLLIN;
    if ((what & CURL_POLL_OUT) != 0) event.events |= EPOLLOUT;
    const int set = state.sockets.get();
    if (what == CURL_POLL_REMOVE) {
      (void)epoll_ctl(set, EPOLL_CTL_DEL, socket, nullptr);
    } else if (epoll_ctl(set, EPOLL_CTL_MOD, socket, &event) != 0) {
      (void)epoll_ctl(set, EPOLL_CTL_ADD, socket, &event);
    }
    return 0;
  }

  static int on_timer(CURLM*, long delay_ms, void* self) {
    auto& state = *static_cast<State*>(self);
    state.loop.cancel(state.timer);
    state.timer = TimerId{};
    if (delay_ms < 0) return 0;
    state.timer = state.loop.run_after(milliseconds(delay_ms), [&state] {
      state.act(CURL_SOCKET_TIMEOUT, 0);
      state.collect();
    });
    return 0;
  }

  void act(curl_socket_t socket, int events) const {
    int running = 0;
    (void)curl_multi_socket_action(multi, socket, events, &running);
  }

  void on_ready() {
    std::array<epoll_event, 32> events{};
    const int count = epoll_wait(sockets.get(), events.data(), events.size(), 0);
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events.at(static_cast<std::size_t>(i));
      int mask = 0;
      if ((event.events & EPOLLIN) != 0) mask |= CURL_CSELECT_IN;
      if ((event.events & EPOLLOUT) != 0) mask |= CURL_CSELECT_OUT;
      if ((event.events & (EPOLLERR | EPOLLHUP)) != 0) mask |= CURL_CSELECT_ERR;
      act(event.data.fd, mask);
    }
    collect();
  }

  /// Hands finished calls to their owners. An owner may destroy this object in its callback.
  void collect() {
    std::vector<std::pair<Done, Result<HttpReply>>> finished;
    int left = 0;
    while (CURLMsg* message = curl_multi_info_read(multi, &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      const CURLcode code = message->data.result;
      const auto found = find(message->easy_handle);
      if (found == active.end()) continue;
      (void)curl_multi_remove_handle(multi, found->second.transfer->easy());
      finished.emplace_back(std::move(found->second.done), found->second.transfer->finish(code));
      active.erase(found);
    }
    const std::shared_ptr<bool> alive = is_alive;
    for (auto& [done, result] : finished) {
      if (*alive) done(std::move(result));
    }
  }

  std::map<std::uint64_t, Active>::iterator find(CURL* easy) {
    for (auto at = active.begin(); at != active.end(); ++at) {
      if (at->second.transfer && at->second.transfer->easy() == easy) return at;
    }
    return active.end();
  }

  void fail_later(std::uint64_t id, Error error) {
    loop.post([this, alive = is_alive, id, error = std::move(error)]() mutable {
      if (!*alive) return;
      const auto found = active.find(id);
      if (found == active.end()) return;
      const Done done = std::move(found->second.done);
      active.erase(found);
      done(fail(std::move(error)));
    });
  }

  void begin(std::uint64_t id) {
    const auto found = active.find(id);
    if (found == active.end()) return;
    const CURLMcode code = curl_multi_add_handle(multi, found->second.transfer->easy());
    RN_ASSERT(code == CURLM_OK, "a fresh transfer can be added outside of curl's callbacks");
  }

  void remove(std::uint64_t id) {
    const auto found = active.find(id);
    if (found == active.end()) return;
    if (found->second.transfer)
      (void)curl_multi_remove_handle(multi, found->second.transfer->easy());
    active.erase(found);
  }
};

HttpClient::HttpClient(Loop& loop, std::size_t max_calls)
    : state_(std::make_unique<State>(loop, max_calls)) {
  initialise_curl();
  state_->multi = curl_multi_init();
  state_->sockets = Fd(epoll_create1(EPOLL_CLOEXEC));
  RN_ASSERT(state_->multi != nullptr && state_->sockets, "a process has room for a client");
  (void)curl_multi_setopt(state_->multi, CURLMOPT_SOCKETFUNCTION, &State::on_socket);
  (void)curl_multi_setopt(state_->multi, CURLMOPT_SOCKETDATA, state_.get());
  (void)curl_multi_setopt(state_->multi, CURLMOPT_TIMERFUNCTION, &State::on_timer);
  (void)curl_multi_setopt(state_->multi, CURLMOPT_TIMERDATA, state_.get());
  (void)curl_multi_setopt(state_->multi, CURLMOPT_MAXCONNECTS, 32L);
  const auto watch =
      loop.watch_readable(state_->sockets.get(), [state = state_.get()] { state->on_ready(); });
  RN_ASSERT(watch.has_value(), "an epoll set can be watched");
  state_->watch = *watch;
}

HttpClient::~HttpClient() {
  *state_->is_alive = false;
  while (!state_->active.empty()) state_->remove(state_->active.begin()->first);
  (void)curl_multi_cleanup(state_->multi);
  state_->loop.cancel(state_->timer);
  state_->loop.unwatch(state_->watch);
}

HttpCallId HttpClient::perform(HttpCall call, std::function<void(Result<HttpReply>)> done) {
  const std::uint64_t id = state_->next_id++;
  const bool is_full = state_->active.size() >= state_->max_calls;
  State::Active& entry = state_->active[id];
  entry.done = std::move(done);
  if (is_full) {
    state_->fail_later(
        id, Error{ErrorCode::kExhausted, "too many calls at once", "try again later"}
    );
    return HttpCallId{id};
  }
  auto transfer = CurlTransfer::prepare(std::move(call));
  if (!transfer) {
    state_->fail_later(id, transfer.error());
    return HttpCallId{id};
  }
  entry.transfer = std::move(*transfer);
  // Not at once: the caller may be inside one of curl's callbacks.
  state_->loop.post([state = state_.get(), alive = state_->is_alive, id] {
    if (*alive) state->begin(id);
  });
  return HttpCallId{id};
}

void HttpClient::cancel(HttpCallId id) {
  const auto found = state_->active.find(id.value);
  if (found == state_->active.end()) return;
  // What a pending fail_later or curl callback still needs goes away in the next turn.
  found->second.done = [](const Result<HttpReply>&) {};
  state_->loop.post([state = state_.get(), alive = state_->is_alive, id] {
    if (*alive) state->remove(id.value);
  });
}

std::size_t HttpClient::active() const {
  return state_->active.size();
}

}  // namespace rn::io
