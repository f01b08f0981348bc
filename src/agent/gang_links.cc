// SPDX-License-Identifier: Apache-2.0
#include "agent/gang_links.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "agent/gang_pace.h"
#include "agent/link_threads.h"
#include "base/log.h"
#include "checkpoint/transfer_messages.h"
#include "io/packet_socket.h"
#include "model/gang_link.h"

namespace rn::agent {

namespace {

using checkpoint::PeerFrameType;
using GuestPacket = tunnel::Kind;
using Steady = std::chrono::steady_clock;

/// Of what waits for a program: it computes for as long as it likes.
constexpr milliseconds kLinkForEver = std::chrono::hours(24 * 10);
/// Of PID 1, for an answer: it connects in 10 s and waits 10 s for a program that does not listen.
constexpr milliseconds kInsidePatience{25'000};
constexpr milliseconds kFramePatience{10'000};
constexpr milliseconds kEnterAgain{200};  ///< to a PID 1 that is not there yet
constexpr seconds kOfferAgain{1};
/// In the kernel, not sent yet: a guest that is cut may have so much of each link go out after it.
constexpr std::uint32_t kLinkUnsentBytes = 64 << 10;

Blob guest_packet(GuestPacket kind, std::string_view words) {
  Blob packet{static_cast<std::uint8_t>(kind)};
  const BlobView text = as_bytes(words.substr(0, tunnel::kWordsMax));
  packet.insert(packet.end(), text.begin(), text.end());
  return packet;
}

bool is_packet(BlobView packet, GuestPacket kind) {
  return !packet.empty() && packet[0] == static_cast<std::uint8_t>(kind);
}

std::uint8_t type_of(LinkFrame frame) {
  return static_cast<std::uint8_t>(frame);
}

}  // namespace

struct GangLinks::State {
  /// One connection at a PID 1, whether it has become a link yet or not: what can break it from
  /// outside. Registered as long as it lives.
  class Link {
   public:
    Link(State& all, const GuestName& guest) : all_(all), guest_(guest) {
      const std::lock_guard lock(all_.mutex);
      all_.links.insert(this);
      if (all_.is_stopping) is_broken_ = true;
    }

    ~Link() {
      const std::lock_guard lock(all_.mutex);
      all_.links.erase(this);
    }

    Link(const Link&) = delete;
    Link& operator=(const Link&) = delete;

    const GuestName& guest() const { return guest_; }

    /// Both outlive this.
    void attach(io::PacketSocket& packets) {
      const std::lock_guard lock(mutex_);
      packets_ = &packets;
      if (is_broken_) packets.shut_down();
    }

    void attach(io::FramedConnection& connection) {
      connection.bound_unsent(kLinkUnsentBytes);
      const std::lock_guard lock(mutex_);
      connection_ = &connection;
      if (is_broken_) connection.abort();
    }

    /// From outside: nothing of its guest's leaves any more.
    void break_off() {
      const std::lock_guard lock(mutex_);
      is_broken_ = true;
      if (packets_ != nullptr) packets_->shut_down();
      if (connection_ != nullptr) connection_->abort();
      all_.pace.wake();
    }

    /// From inside: one of its ends is gone. What it has said before still arrives.
    void part() {
      const std::lock_guard lock(mutex_);
      is_broken_ = true;
      if (packets_ != nullptr) packets_->shut_down();
      if (connection_ != nullptr) connection_->shut_down();
      all_.pace.wake();
    }

    const std::atomic<bool>& is_broken() const { return is_broken_; }

   private:
    State& all_;
    const GuestName guest_;
    std::mutex mutex_;  ///< taken after State::mutex
    io::PacketSocket* packets_ = nullptr;
    io::FramedConnection* connection_ = nullptr;
    std::atomic<bool> is_broken_{false};
  };

  struct Guest {
    LinkedGuest about;
    int offers = 0;                   ///< connections that wait at its PID 1, or try to
    int open = 0;                     ///< links, from the first word on
    Steady::time_point not_before{};  ///< it had no way in
    Steady::time_point second{};      ///< in which it has dialled
    std::uint32_t dials = 0;
  };

  explicit State(Deps d) : deps(std::move(d)) {}

  // gang_links.cc, in the order of a link's life
  void offer(const GuestName& name);
  void offer_some(const GuestName& name);
  bool runs(const GuestName& name) const;
  void refuse_guest(
      io::PacketSocket& packets, const GuestName& name, gang_link::Asked asked, const Error& error
  );
  Status connect(
      Link& link,
      std::unique_ptr<io::FramedConnection>& connection,
      gang_link::Asked to,
      bool& is_programs
  );
  Result<LinkedGuest> await_member(const LinkHello& hello, const NodeId& peer);
  Result<std::unique_ptr<io::PacketSocket>> enter(Link& link, const LinkedGuest& about);
  static Status ask_inside(io::PacketSocket& packets, gang_link::Asked asked);
  void accept(io::FramedConnection& connection, const LinkHello& hello, const LinkedGuest& about);
  void pump(Link& link, io::PacketSocket& packets, io::FramedConnection& connection);
  bool to_peer(Link& link, io::PacketSocket& packets, io::FramedConnection& connection);
  bool to_guest(Link& link, io::PacketSocket& packets, io::FramedConnection& connection);
  bool lost(const Link& link, const Error& error) const;

  bool take_place(const GuestName& name);
  void give_place_back(const GuestName& name);
  bool await_turn(const GuestName& name);
  void end_offer(const GuestName& name, bool has_no_way);

  Deps deps;
  GangPace pace;
  std::atomic<std::uint64_t> opened{0};
  std::atomic<std::uint64_t> refused{0};

  mutable std::mutex mutex;  ///< guards what follows
  std::condition_variable changed;
  bool is_stopping = false;
  std::map<GuestName, Guest> guests;
  std::set<Link*> links;
  std::size_t open = 0;

  LinkThreads threads;  ///< ends before all that is above
};

GangLinks::GangLinks(Deps deps) : state_(std::make_unique<State>(std::move(deps))) {}

GangLinks::~GangLinks() {
  stop();
  state_->threads.join_all();
}

void GangLinks::stop() {
  const std::lock_guard lock(state_->mutex);
  state_->is_stopping = true;
  state_->guests.clear();
  for (State::Link* const link : state_->links) link->break_off();
  state_->changed.notify_all();
}

void GangLinks::set(std::vector<LinkedGuest> guests) {
  std::vector<GuestName> names;
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->is_stopping) return;
    std::map<GuestName, State::Guest> now;
    for (LinkedGuest& one : guests) {
      const GuestName name = one.name;
      names.push_back(name);
      const auto known = state_->guests.find(name);
      State::Guest& guest = now[name];
      if (known != state_->guests.end()) guest = std::move(known->second);
      guest.about = std::move(one);
    }
    state_->guests = std::move(now);
    for (State::Link* const link : state_->links) {
      if (!state_->guests.contains(link->guest())) link->break_off();
    }
    state_->changed.notify_all();
  }
  for (const GuestName& name : names) state_->offer_some(name);
}

void GangLinks::set_rate(std::uint64_t bps) {
  state_->pace.set_rate(bps);
}

GangLinks::Seen GangLinks::look() const {
  Seen seen;
  seen.opened = state_->opened;
  seen.refused = state_->refused;
  seen.bytes_sent = state_->pace.bytes_sent();
  const std::lock_guard lock(state_->mutex);
  seen.open = state_->open;
  return seen;
}

// ---- places

/// For a link of this guest. False: it is gone, or there are too many.
bool GangLinks::State::take_place(const GuestName& name) {
  const std::lock_guard lock(mutex);
  const auto found = guests.find(name);
  if (found == guests.end() || open >= deps.most) return false;
  if (found->second.open >= gang_link::kOpenAtOnce) return false;
  ++found->second.open;
  ++open;
  return true;
}

void GangLinks::State::give_place_back(const GuestName& name) {
  const std::lock_guard lock(mutex);
  --open;
  const auto found = guests.find(name);
  if (found != guests.end() && found->second.open > 0) --found->second.open;
}

/// Of so many dials a second. False: the guest is gone.
bool GangLinks::State::await_turn(const GuestName& name) {
  std::unique_lock lock(mutex);
  for (;;) {
    const auto found = guests.find(name);
    if (is_stopping || found == guests.end()) return false;
    Guest& guest = found->second;
    const Steady::time_point now = Steady::now();
    if (now - guest.second >= seconds(1)) {
      guest.second = now;
      guest.dials = 0;
    }
    if (guest.dials < deps.dials_per_s) {
      ++guest.dials;
      return true;
    }
    changed.wait_until(lock, guest.second + seconds(1));
  }
}

// ---- what the guest begins

/// Until a few of its connections wait at its PID 1, and no more than may be open.
void GangLinks::State::offer_some(const GuestName& name) {
  for (;;) {
    {
      const std::lock_guard lock(mutex);
      const auto found = guests.find(name);
      if (is_stopping || found == guests.end()) return;
      Guest& guest = found->second;
      const bool is_enough = guest.offers >= gang_link::kOffered ||
                             guest.offers + guest.open >= gang_link::kOpenAtOnce;
      if (is_enough || Steady::now() < guest.not_before) return;
      ++guest.offers;
    }
    if (threads.start([this, name] { offer(name); })) continue;
    log::warning("gang_link.no_thread", {{"guest", name.job.str()}});
    return end_offer(name, true);
  }
}

void GangLinks::State::end_offer(const GuestName& name, bool has_no_way) {
  const std::lock_guard lock(mutex);
  const auto found = guests.find(name);
  if (found == guests.end()) return;
  if (found->second.offers > 0) --found->second.offers;
  if (has_no_way) found->second.not_before = Steady::now() + kOfferAgain;
}

/// On a thread of its own: one connection at the guest's PID 1, and the link that comes of it.
void GangLinks::State::offer(const GuestName& name) {
  std::string disk;
  {
    const std::lock_guard lock(mutex);
    const auto found = guests.find(name);
    if (found == guests.end()) return;
    disk = found->second.about.disk;
  }
  auto packets = io::PacketSocket::connect(disk + "/reclaim", tunnel::kSocketName);
  // Before it has begun its PID 1 has no socket yet.
  if (!packets) return end_offer(name, true);
  std::unique_ptr<io::FramedConnection> connection;
  Link link(*this, name);
  link.attach(**packets);
  if (!runs(name)) return;  // it went between the look and the registration
  const Blob word{static_cast<std::uint8_t>(GuestPacket::kAccept)};
  std::array<std::uint8_t, tunnel::kPacketMax> packet{};
  const Status offered = (*packets)->write(word, kFramePatience);
  const auto got =
      offered ? (*packets)->read(packet, kLinkForEver) : Result<std::size_t>(fail(offered.error()));
  const gang_link::Asked asked =
      got ? gang_link::read_dial(packet.data(), *got) : gang_link::Asked{};
  const bool is_asked = asked.rank < gang_link::kRanks;
  const bool has_place = is_asked && take_place(name);
  end_offer(name, !is_asked);
  if (!is_asked) return;
  offer_some(name);
  if (!has_place) {
    deps.on_broken(name);
    return refuse_guest(
        **packets, name, asked, {ErrorCode::kExhausted, "too many links are open", ""}
    );
  }
  bool is_programs = true;
  const Status reached = await_turn(name) ? connect(link, connection, asked, is_programs)
                                          : fail(ErrorCode::kUnavailable, "it ends");
  if (reached) {
    ++opened;
    const Blob yes{static_cast<std::uint8_t>(GuestPacket::kOpened)};
    if ((*packets)->write(yes, kFramePatience)) pump(link, **packets, *connection);
  } else {
    if (!is_programs && !link.is_broken()) deps.on_broken(name);
    refuse_guest(**packets, name, asked, reached.error());
  }
  give_place_back(name);
  offer_some(name);
}

void GangLinks::State::refuse_guest(
    io::PacketSocket& packets, const GuestName& name, gang_link::Asked asked, const Error& error
) {
  ++refused;
  log::info(
      "gang_link.refused", {{"job", name.job.str()}, {"to", asked.rank}, {"why", error.describe()}}
  );
  (void)packets.write(guest_packet(GuestPacket::kRefused, error.message), kFramePatience);
}

bool GangLinks::State::runs(const GuestName& name) const {
  const std::lock_guard lock(mutex);
  return guests.contains(name);
}

/// To the other member's agent, until that has said yes. `connection` outlives `link`. An error is
/// the programs' own if they asked for what there is not, or if nothing listens there.
Status GangLinks::State::connect(
    Link& link,
    std::unique_ptr<io::FramedConnection>& connection,
    gang_link::Asked to,
    bool& is_programs
) {
  LinkHello hello;
  wire::GangPeer peer;
  {
    const std::lock_guard lock(mutex);
    const auto found = guests.find(link.guest());
    if (found == guests.end()) return fail(ErrorCode::kUnavailable, "it ends");
    const LinkedGuest& about = found->second.about;
    const wire::GangPeer* const member = about.member(to.rank);
    if (member == nullptr || to.rank == about.place.rank)
      return fail(ErrorCode::kNotFound, "the gang has no other member " + std::to_string(to.rank));
    peer = *member;
    hello.gang = about.place.gang;
    hello.from = about.place.rank;
  }
  hello.epoch = link.guest().epoch;
  hello.to = to.rank;
  hello.port = to.port;
  hello.ticket = peer.ticket_out;
  is_programs = false;
  RN_CHECK(check_link_end(peer.address, deps.control_ports));
  RN_TRY(connection, deps.dial(peer));
  link.attach(*connection);
  RN_CHECK(connection->send(type_of(LinkFrame::kLink), encode(hello), kFramePatience));
  RN_TRY(
      const io::Frame answer,
      connection->receive(deps.peer_patience + kInsidePatience + kFramePatience)
  );
  if (answer.type == static_cast<std::uint8_t>(PeerFrameType::kRefused)) {
    const Error refusal = checkpoint::decode_refusal(answer.body);
    is_programs = refusal.code == ErrorCode::kUnavailable;  // as await_member and ask_inside say it
    return fail(refusal);
  }
  if (answer.type != static_cast<std::uint8_t>(PeerFrameType::kWelcome))
    return fail(ErrorCode::kInvalid, "the other agent answered something else");
  return {};
}

// ---- what comes from other agents

void GangLinks::serve(io::FramedConnection& connection, const NodeId& peer, BlobView body) {
  const auto refuse = [&](const Error& error) {
    ++state_->refused;
    log::info("gang_link.denied", {{"peer", peer.str()}, {"why", error.describe()}});
    const checkpoint::PeerFrame words = checkpoint::encode_refusal(error);
    (void)connection.send(static_cast<std::uint8_t>(words.type), words.body, kFramePatience);
  };
  const auto hello = decode_link_hello(body);
  if (!hello) return refuse(hello.error());
  const Status allowed = check_link_end(connection.remote(), state_->deps.control_ports);
  if (!allowed) return refuse(allowed.error());
  be_nice();  // the thread ends with the link
  const Status good = check_link_ticket(*hello, peer, state_->deps.rules());
  if (!good) return refuse(good.error());
  const auto about = state_->await_member(*hello, peer);
  if (!about) return refuse(about.error());
  if (!state_->take_place(about->name)) {
    state_->deps.on_broken(about->name);
    return refuse({ErrorCode::kExhausted, "too many links are open at that member", ""});
  }
  state_->accept(connection, *hello, *about);
  state_->give_place_back(about->name);
}

/// The member that is asked for, when its guest runs. A newer or another attempt of it is an error
/// at once.
Result<LinkedGuest> GangLinks::State::await_member(const LinkHello& hello, const NodeId& peer) {
  const Steady::time_point until = Steady::now() + deps.peer_patience;
  std::unique_lock lock(mutex);
  for (;;) {
    if (is_stopping) return fail(ErrorCode::kUnavailable, "the agent stops");
    for (const auto& [name, guest] : guests) {
      const GangPlace& place = guest.about.place;
      if (place.gang != hello.gang || place.rank != hello.to) continue;
      if (name.epoch < hello.epoch) continue;  // it is about to go
      RN_CHECK(check_link(hello, peer, guest.about));
      return guest.about;
    }
    if (Steady::now() >= until)
      return fail(
          ErrorCode::kTimeout,
          "rank " + std::to_string(hello.to) + " of gang " + hello.gang.str() +
              " does not run here now"
      );
    changed.wait_until(lock, until);
  }
}

/// Its PID 1, which a guest that has only just begun may not have yet.
Result<std::unique_ptr<io::PacketSocket>> GangLinks::State::enter(
    Link& link, const LinkedGuest& about
) {
  const Steady::time_point until = Steady::now() + deps.peer_patience;
  for (;;) {
    auto packets = io::PacketSocket::connect(about.disk + "/reclaim", tunnel::kSocketName);
    if (packets || Steady::now() >= until) return packets;
    std::unique_lock lock(mutex);
    changed.wait_for(lock, kEnterAgain, [&] { return link.is_broken().load(); });
    if (link.is_broken()) return fail(ErrorCode::kUnavailable, "the member has ended");
  }
}

Status GangLinks::State::ask_inside(io::PacketSocket& packets, gang_link::Asked asked) {
  std::uint8_t from[gang_link::kFromBytes];
  gang_link::write_from(from, asked);
  RN_CHECK(packets.write(from, kFramePatience));
  std::array<std::uint8_t, tunnel::kPacketMax> packet{};
  RN_TRY(const std::size_t size, packets.read(packet, kInsidePatience));
  const BlobView answer = BlobView(packet).first(size);
  if (is_packet(answer, GuestPacket::kOpened) && size == 1) return {};
  if (!is_packet(answer, GuestPacket::kRefused))
    return fail(ErrorCode::kUnavailable, "the member's first process has closed it");
  const std::size_t words = std::min(size - 1, tunnel::kWordsMax);
  return fail(ErrorCode::kUnavailable, std::string(as_text(answer.subspan(1, words))));
}

void GangLinks::State::accept(
    io::FramedConnection& connection, const LinkHello& hello, const LinkedGuest& about
) {
  std::unique_ptr<io::PacketSocket> packets;
  Link link(*this, about.name);
  link.attach(connection);
  if (!runs(about.name)) return;  // it went between the look and the registration
  const auto answer = [&connection](const checkpoint::PeerFrame& frame) {
    return connection.send(static_cast<std::uint8_t>(frame.type), frame.body, kFramePatience);
  };
  const auto port = static_cast<std::uint16_t>(hello.port);
  auto entered = enter(link, about);
  Status inside;
  if (entered) {
    packets = *std::move(entered);
    link.attach(*packets);
    inside = ask_inside(*packets, {hello.from, port});
  } else {
    inside = fail(entered.error());
    if (!link.is_broken()) deps.on_broken(about.name);
  }
  if (!inside) {
    ++refused;
    return void(answer(checkpoint::encode_refusal(inside.error())));
  }
  ++opened;
  if (answer(checkpoint::encode_welcome({}))) pump(link, *packets, connection);
}

// ---- both ways

/// Until both directions have ended, or it broke.
void GangLinks::State::pump(
    Link& link, io::PacketSocket& packets, io::FramedConnection& connection
) {
  std::thread back;
  try {
    back = std::thread([&] {
      be_nice();
      if (!to_guest(link, packets, connection)) link.part();
    });
  } catch (const std::system_error&) {
    log::warning("gang_link.no_thread", {{"guest", link.guest().job.str()}});
    deps.on_broken(link.guest());
    return link.part();
  }
  if (!to_peer(link, packets, connection)) link.part();
  back.join();
}

/// The way to the other agent. One that is closed says nothing of why: who has closed it says so to
/// the coordinator. One that was silent for too long is nobody's program's doing. False.
bool GangLinks::State::lost(const Link& link, const Error& error) const {
  if (error.code == ErrorCode::kTimeout && !link.is_broken()) deps.on_broken(link.guest());
  return false;
}

/// What the guest's program writes. False: it broke.
bool GangLinks::State::to_peer(
    Link& link, io::PacketSocket& packets, io::FramedConnection& connection
) {
  std::array<std::uint8_t, tunnel::kPacketMax> packet;
  for (;;) {
    const auto size = packets.read(packet, kLinkForEver);
    if (!size) return false;
    const BlobView got = BlobView(packet).first(*size);
    if (is_packet(got, GuestPacket::kEnd) && got.size() == 1) {
      const Status ended = connection.send(type_of(LinkFrame::kEnd), {}, kLinkForEver);
      return ended || lost(link, ended.error());
    }
    if (!is_packet(got, GuestPacket::kData) || got.size() < 2) return false;
    if (!pace.take(got.size(), link.is_broken())) return false;
    const Status sent = connection.send(type_of(LinkFrame::kData), got.subspan(1), kLinkForEver);
    if (!sent) return lost(link, sent.error());
  }
}

/// What the other member's program writes. False: it broke.
bool GangLinks::State::to_guest(
    Link& link, io::PacketSocket& packets, io::FramedConnection& connection
) {
  Blob packet;
  packet.reserve(tunnel::kPacketMax);
  for (;;) {
    const auto frame = connection.receive(kLinkForEver);
    if (!frame) return lost(link, frame.error());
    const bool is_end = frame->type == type_of(LinkFrame::kEnd) && frame->body.empty();
    const bool is_data = frame->type == type_of(LinkFrame::kData) && !frame->body.empty() &&
                         frame->body.size() <= gang_link::kDataMax;
    if (!is_end && !is_data) return false;
    packet.assign(1, static_cast<std::uint8_t>(is_end ? GuestPacket::kEnd : GuestPacket::kData));
    packet.insert(packet.end(), frame->body.begin(), frame->body.end());
    if (!packets.write(packet, kLinkForEver)) return false;
    if (is_end) return true;
  }
}

}  // namespace rn::agent
