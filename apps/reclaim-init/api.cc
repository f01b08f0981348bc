// SPDX-License-Identifier: Apache-2.0
#include "api.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "listener.h"
#include "metadata.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

namespace rn::init {

namespace {

constexpr char kSocket[] = "/reclaim/api.sock";
constexpr int kWaitMaxS = 60;
constexpr std::int64_t kRequestMs = 5000;
/// For who is answered to take the answer and close.
constexpr std::int64_t kClosingMs = 1000;
constexpr int kAcceptedAtOnce = 8;
constexpr char kRoutes[] = "next: GET /v1/notice, GET /v1/notice?wait=SECONDS or POST /v1/saved\n";

/// As much as the socket takes at once, which is all of it: it is the first thing that it gets.
void send_reply(
    int fd, int status, const char* words, const char* headers, const char* body, std::size_t size
) {
  static char out[16384];
  char length[48] = "";
  if (status != 204) snprintf(length, sizeof length, "Content-Length: %zu\r\n", size);
  const int head = snprintf(
      out,
      sizeof out,
      "HTTP/1.1 %d %s\r\n%s%sConnection: close\r\n\r\n",
      status,
      words,
      headers,
      length
  );
  if (head <= 0 || static_cast<std::size_t>(head) + size > sizeof out) return;
  memcpy(out + head, body, size);
  send(fd, out, static_cast<std::size_t>(head) + size, MSG_NOSIGNAL | MSG_DONTWAIT);
  shutdown(fd, SHUT_WR);
}

/// Takes what comes and forgets it. False once the other side has closed, or writes more than a
/// client ever would.
bool drop_input(int fd) {
  static char drop[4096];
  for (int round = 0; round < 16; ++round) {
    const ssize_t got = recv(fd, drop, sizeof drop, MSG_DONTWAIT);
    if (got > 0) continue;
    return got < 0 && (errno == EAGAIN || errno == EINTR);
  }
  return false;
}

/// Behind the blank line that ends a request's head; 0 = it is not there yet.
std::size_t end_of_head(const char* text, std::size_t size) {
  for (std::size_t i = 0; i + 1 < size; ++i) {
    if (text[i] != '\n') continue;
    if (text[i + 1] == '\n') return i + 2;
    if (i + 2 < size && text[i + 1] == '\r' && text[i + 2] == '\n') return i + 3;
  }
  return 0;
}

/// Digits and nothing else; -1 = no such number, or one of more than six digits.
long number_in(const char* text, const char* end) {
  if (text == end || end - text > 6) return -1;
  long value = 0;
  for (; text != end; ++text) {
    if (*text < '0' || *text > '9') return -1;
    value = value * 10 + (*text - '0');
  }
  return value;
}

/// What the head says of the body; 0 = nothing, -1 = no number.
long body_size(const char* head, const char* end) {
  constexpr char kName[] = "\nContent-Length:";
  for (const char* at = head; at + sizeof kName < end; ++at) {
    if (*at != '\n' || strncasecmp(at, kName, sizeof kName - 1) != 0) continue;
    const char* from = at + sizeof kName - 1;
    while (*from == ' ' || *from == '\t') ++from;
    const char* to = from;
    while (to < end && *to != '\r' && *to != '\n' && *to != ' ' && *to != '\t') ++to;
    return number_in(from, to);
  }
  return 0;
}

struct RequestLine {
  const char* method = nullptr;
  const char* path = nullptr;
  const char* query = nullptr;  ///< "" if there is none
};

/// Cuts the first line into its words. False if it is none of HTTP/1.
bool cut_line(char* text, RequestLine& out) {
  char* const end = strpbrk(text, "\r\n");
  char* const first = strchr(text, ' ');
  if (end == nullptr || first == nullptr || first > end) return false;
  char* const second = strchr(first + 1, ' ');
  if (second == nullptr || second > end || strncmp(second + 1, "HTTP/1.", 7) != 0) return false;
  *end = *first = *second = '\0';
  out.method = text;
  out.path = first + 1;
  char* const query = strchr(first + 1, '?');
  if (query != nullptr) *query = '\0';
  out.query = query != nullptr ? query + 1 : "";
  return true;
}

}  // namespace

struct Api::Reply {
  int status;
  const char* words;
  const char* headers = "";
};

constexpr Api::Reply Api::kOk{200, "OK", "Content-Type: application/json\r\n"};
constexpr Api::Reply Api::kText{200, "OK", "Content-Type: text/plain\r\n"};
constexpr Api::Reply Api::kNothing{204, "No Content"};
constexpr Api::Reply Api::kBad{400, "Bad Request"};
constexpr Api::Reply Api::kNoSuchPath{404, "Not Found"};
constexpr Api::Reply Api::kGetOnly{405, "Method Not Allowed", "Allow: GET\r\n"};
constexpr Api::Reply Api::kPostOnly{405, "Method Not Allowed", "Allow: POST\r\n"};
constexpr Api::Reply Api::kConflict{409, "Conflict"};
constexpr Api::Reply Api::kTooLarge{413, "Content Too Large"};
constexpr Api::Reply Api::kBusy{503, "Service Unavailable"};

void Api::Connection::say(
    const Reply& reply, const char* body, std::size_t size, std::int64_t now
) {
  send_reply(fd, reply.status, reply.words, reply.headers, body, size);
  phase = Phase::kClosing;
  until = now + kClosingMs;
}

void Api::Connection::say(const Reply& reply, const char* words, std::int64_t now) {
  say(reply, words, strlen(words), now);
}

void Api::Connection::end() {
  close(fd);
  fd = -1;
  phase = Phase::kFree;
}

bool Api::begin() {
  listener_ = listen_at_path(kSocket, SOCK_STREAM, kPlaces);
  return listener_ >= 0;
}

namespace {

int listen_at_port(in_addr_t host, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(host);
  const auto* const name = reinterpret_cast<const sockaddr*>(&address);
  return listen_at(name, sizeof address, SOCK_STREAM, Api::kPlaces);
}

}  // namespace

bool Api::begin_metadata(int port) {
  metadata_ = listen_at_port(INADDR_LOOPBACK, port);
  return metadata_ >= 0;
}

bool Api::begin_link_local() {
  constexpr in_addr_t kLinkLocal = 0xa9fea9fe;  // 169.254.169.254
  constexpr int kHttpPort = 80;
  link_local_ = listen_at_port(kLinkLocal, kHttpPort);
  return link_local_ >= 0;
}

void Api::fill(pollfd* out) const {
  out[0] = {listener_, POLLIN, 0};
  out[1] = {metadata_, POLLIN, 0};
  out[2] = {link_local_, POLLIN, 0};
  for (int i = 0; i < kPlaces; ++i) out[kListeners + i] = {connections_[i].fd, POLLIN, 0};
}

void Api::step(const pollfd* ready, std::int64_t now, bool is_time_to_look, Word& word) {
  if (!is_open()) return;
  for (int i = 0; i < kPlaces; ++i)
    serve(connections_[i], ready[kListeners + i].revents != 0, now, word);
  if (ready[0].revents != 0) accept_some(listener_, now);
  if (ready[1].revents != 0) accept_some(metadata_, now);
  if (ready[2].revents != 0) accept_some(link_local_, now);
  if (!is_time_to_look) return;
  bool is_told = false;
  for (Connection& one : connections_) {
    if (one.phase != Phase::kWaiting) continue;
    if (!is_told && !word.load()) return;
    is_told = true;
    one.say(kOk, word.json(), word.json_size(), now);
  }
}

std::int64_t Api::wakes_at() const {
  std::int64_t first = -1;
  for (const Connection& one : connections_) {
    if (one.phase != Phase::kFree && (first < 0 || one.until < first)) first = one.until;
  }
  return first;
}

void Api::accept_some(int listener, std::int64_t now) {
  for (int round = 0; round < kAcceptedAtOnce; ++round) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    Connection* place = nullptr;
    int busy = 0;
    for (Connection& one : connections_) {
      if (place == nullptr && one.phase == Phase::kFree) place = &one;
      if (one.phase == Phase::kReading || one.phase == Phase::kWaiting) ++busy;
    }
    if (place == nullptr) {
      close(fd);
      continue;
    }
    place->fd = fd;
    place->phase = Phase::kReading;
    place->is_metadata = listener != listener_;
    place->until = now + kRequestMs;
    place->used = 0;
    if (busy >= kConnections)
      place->say(
          kBusy, "eight connections are open already; next: ask from one process at a time\n", now
      );
  }
}

void Api::serve(Connection& one, bool is_ready, std::int64_t now, Word& word) {
  if (one.phase == Phase::kReading && is_ready) read_some(one, now, word);
  const bool is_read = one.phase == Phase::kWaiting || one.phase == Phase::kClosing;
  if (is_read && is_ready && !drop_input(one.fd)) return one.end();
  if (one.phase == Phase::kFree || now < one.until) return;
  if (one.phase == Phase::kReading)
    return one.say(
        kBad, "the request did not come whole within 5 seconds; next: send it at once\n", now
    );
  if (one.phase == Phase::kWaiting) return one.say(kNothing, "", now);
  one.end();
}

void Api::read_some(Connection& one, std::int64_t now, Word& word) {
  const ssize_t got = recv(one.fd, one.request + one.used, kRequestMax - one.used, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) return one.end();
  one.used += static_cast<std::size_t>(got);
  one.request[one.used] = '\0';
  const std::size_t head = end_of_head(one.request, one.used);
  if (head != 0) return answer(one, head, now, word);
  if (one.used == kRequestMax)
    one.say(kTooLarge, "a request has at most 4096 bytes; next: leave headers out\n", now);
}

void Api::answer(Connection& one, std::size_t head, std::int64_t now, Word& word) {
  const long body = body_size(one.request, one.request + head);
  RequestLine line;
  if (body < 0 || !cut_line(one.request, line))
    return one.say(kBad, "this is no request of HTTP/1.1; next: use an HTTP client\n", now);
  if (head + static_cast<std::size_t>(body) > kRequestMax)
    return one.say(kTooLarge, "a request has at most 4096 bytes; next: send no body\n", now);
  if (one.is_metadata) return answer_by_metadata(one, line.method, line.path, now);
  const bool is_notice = strcmp(line.path, "/v1/notice") == 0;
  const bool is_saved = strcmp(line.path, "/v1/saved") == 0;
  if (!is_notice && !is_saved) return one.say(kNoSuchPath, kRoutes, now);
  if (strcmp(line.method, is_notice ? "GET" : "POST") != 0)
    return one.say(is_notice ? kGetOnly : kPostOnly, kRoutes, now);
  if (is_notice) return answer_notice(one, line.query, now, word);
  answer_saved(one, line.query, now);
}

void Api::answer_notice(Connection& one, const char* query, std::int64_t now, Word& word) {
  constexpr char kWait[] = "wait=";
  long wait_s = 0;
  if (*query != '\0') {
    const bool is_wait = strncmp(query, kWait, sizeof kWait - 1) == 0;
    wait_s = is_wait ? number_in(query + sizeof kWait - 1, query + strlen(query)) : -1;
  }
  if (wait_s < 0 || wait_s > kWaitMaxS)
    return one.say(kBad, "behind ? may stand wait=SECONDS, 0 to 60, and nothing else\n", now);
  if (word.load()) return one.say(kOk, word.json(), word.json_size(), now);
  if (wait_s == 0) return one.say(kNothing, "", now);
  one.phase = Phase::kWaiting;
  one.until = now + wait_s * 1000;
}

void Api::answer_by_metadata(
    Connection& one, const char* method, const char* path, std::int64_t now
) {
  const MetadataAnswer answer = answer_metadata(method, path);
  if (answer.status != 200) return one.say(kNoSuchPath, "nothing is known of that\n", now);
  has_told_to_leave_ = has_told_to_leave_ || answer.tells_to_leave;
  one.say(answer.is_json ? kOk : kText, answer.body, now);
}

void Api::answer_saved(Connection& one, const char* query, std::int64_t now) {
  if (*query != '\0')
    return one.say(kBad, "nothing stands behind ? here; next: leave it out\n", now);
  if (Word::take_away()) return one.say(kNothing, "", now);
  one.say(kConflict, "/reclaim/told cannot be removed; next: remove what was put there\n", now);
}

}  // namespace rn::init
