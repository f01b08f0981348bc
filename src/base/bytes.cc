// SPDX-License-Identifier: Apache-2.0
#include "base/bytes.h"

#include <algorithm>

namespace rn {

namespace {

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

constexpr std::string_view kBase64 =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

BlobView as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

std::string_view as_text(BlobView bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string to_hex(BlobView bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

Result<Blob> from_hex(std::string_view text) {
  if (text.size() % 2 != 0) return fail(ErrorCode::kInvalid, "odd number of hex digits");
  Blob out;
  out.reserve(text.size() / 2);
  for (std::size_t i = 0; i < text.size(); i += 2) {
    const int high = hex_value(text[i]);
    const int low = hex_value(text[i + 1]);
    if (high < 0 || low < 0) return fail(ErrorCode::kInvalid, "not a hex digit");
    out.push_back(static_cast<std::uint8_t>(high * 16 + low));
  }
  return out;
}

Result<Digest> digest_from_hex(std::string_view text) {
  RN_TRY(const Blob raw, from_hex(text));
  if (raw.size() != 32) return fail(ErrorCode::kInvalid, "a digest is 64 hex digits");
  Digest digest{};
  std::copy(raw.begin(), raw.end(), digest.begin());
  return digest;
}

std::string to_base64(BlobView bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = std::uint32_t{bytes[i]} << 16;
    if (i + 1 < bytes.size()) group |= std::uint32_t{bytes[i + 1]} << 8;
    if (i + 2 < bytes.size()) group |= bytes[i + 2];
    text += kBase64[group >> 18];
    text += kBase64[(group >> 12) & 63];
    text += i + 1 < bytes.size() ? kBase64[(group >> 6) & 63] : '=';
    text += i + 2 < bytes.size() ? kBase64[group & 63] : '=';
  }
  return text;
}

Result<Blob> from_base64(std::string_view text) {
  if (text.size() % 4 != 0)
    return fail(ErrorCode::kInvalid, "base64 length is not a multiple of 4");
  Blob out;
  out.reserve(text.size() / 4 * 3);
  for (std::size_t i = 0; i < text.size(); i += 4) {
    std::uint32_t group = 0;
    int padding = 0;
    for (std::size_t k = 0; k < 4; ++k) {
      const char c = text[i + k];
      if (c == '=' && i + 4 == text.size() && k >= 2) {
        ++padding;
        group <<= 6;
        continue;
      }
      const auto value = kBase64.find(c);
      if (value == std::string_view::npos || padding > 0)
        return fail(ErrorCode::kInvalid, "not base64");
      group = (group << 6) | static_cast<std::uint32_t>(value);
    }
    out.push_back(static_cast<std::uint8_t>(group >> 16));
    if (padding < 2) out.push_back(static_cast<std::uint8_t>(group >> 8));
    if (padding < 1) out.push_back(static_cast<std::uint8_t>(group));
  }
  return out;
}

std::string to_base64url(BlobView bytes) {
  std::string text = to_base64(bytes);
  while (!text.empty() && text.back() == '=') text.pop_back();
  std::replace(text.begin(), text.end(), '+', '-');
  std::replace(text.begin(), text.end(), '/', '_');
  return text;
}

Result<Blob> from_base64url(std::string_view text) {
  std::string padded(text);
  if (text.find_first_of("+/=") != std::string_view::npos)
    return fail(ErrorCode::kInvalid, "a letter that base64url does not have");
  std::replace(padded.begin(), padded.end(), '-', '+');
  std::replace(padded.begin(), padded.end(), '_', '/');
  while (padded.size() % 4 != 0) padded += '=';
  RN_TRY(Blob bytes, from_base64(padded));
  if (to_base64url(bytes) != text) return fail(ErrorCode::kInvalid, "not in base64url's one form");
  return bytes;
}

}  // namespace rn
