// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <vector>

#include <arpa/inet.h>

/// Frames for packet tables: only what the traffic program reads is filled in; checksums are zero.
namespace rn::traffic::packet {

using Frame = std::vector<std::uint8_t>;

inline void put(Frame& frame, std::initializer_list<int> bytes) {
  for (const int byte : bytes) frame.push_back(static_cast<std::uint8_t>(byte));
}

inline void put16(Frame& frame, unsigned value) {
  put(frame, {static_cast<int>(value >> 8), static_cast<int>(value & 0xff)});
}

inline void put_address(Frame& frame, int family, const std::string& text) {
  std::uint8_t bytes[16] = {};
  if (inet_pton(family, text.c_str(), bytes) != 1) throw std::invalid_argument(text);
  frame.insert(frame.end(), bytes, bytes + (family == AF_INET ? 4 : 16));
}

inline Frame ethernet(unsigned type) {
  Frame frame;
  put(frame, {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2});
  put16(frame, type);
  return frame;
}

inline Frame& append(Frame& frame, const Frame& more) {
  frame.insert(frame.end(), more.begin(), more.end());
  return frame;
}

/// Transport headers.
inline Frame udp(unsigned source, unsigned target) {
  Frame head;
  put16(head, source);
  put16(head, target);
  put(head, {0, 12, 0, 0, 'd', 'a', 't', 'a'});
  return head;
}

inline Frame tcp(unsigned source, unsigned target, int flags) {
  Frame head;
  put16(head, source);
  put16(head, target);
  put(head, {0, 0, 0, 1, 0, 0, 0, 0, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0});
  return head;
}

inline Frame icmp(int type) {
  Frame head;
  put(head, {type, 0, 0, 0, 0, 1, 0, 1});
  return head;
}

inline Frame neighbour(int type, const std::string& target) {
  Frame head;
  put(head, {type, 0, 0, 0, 0, 0, 0, 0});
  put_address(head, AF_INET6, target);
  return head;
}

struct V4 {
  std::string from;
  std::string to;
  int protocol = 17;
  unsigned fragment = 0x4000;  ///< flags and offset; "don't fragment" as ordinary hosts send it
  int version_and_length = 0x45;
};

inline Frame v4(const V4& ip, const Frame& payload) {
  Frame frame = ethernet(0x0800);
  put(frame, {ip.version_and_length, 0});
  put16(frame, static_cast<unsigned>(20 + payload.size()));
  put16(frame, 1);
  put16(frame, ip.fragment);
  put(frame, {64, ip.protocol, 0, 0});
  put_address(frame, AF_INET, ip.from);
  put_address(frame, AF_INET, ip.to);
  return append(frame, payload);
}

struct V6 {
  std::string from;
  std::string to;
  int next_header = 17;
  int hop_limit = 64;
};

inline Frame v6(const V6& ip, const Frame& payload) {
  Frame frame = ethernet(0x86dd);
  put(frame, {0x60, 0, 0, 0});
  put16(frame, static_cast<unsigned>(payload.size()));
  put(frame, {ip.next_header, ip.hop_limit});
  put_address(frame, AF_INET6, ip.from);
  put_address(frame, AF_INET6, ip.to);
  return append(frame, payload);
}

inline Frame arp(int operation, const std::string& sender, const std::string& target) {
  Frame frame = ethernet(0x0806);
  put(frame, {0, 1, 8, 0, 6, 4, 0, operation, 2, 0, 0, 0, 0, 1});
  put_address(frame, AF_INET, sender);
  put(frame, {0, 0, 0, 0, 0, 0});
  put_address(frame, AF_INET, target);
  return frame;
}

inline Frame cut_to(Frame frame, std::size_t size) {
  frame.resize(size);
  return frame;
}

}  // namespace rn::traffic::packet
