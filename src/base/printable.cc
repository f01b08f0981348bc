// SPDX-License-Identifier: Apache-2.0
#include "base/printable.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/utf8.h"

namespace rn {

namespace {

struct Span {
  char32_t first;
  char32_t last;
};

/// Obeyed or hidden by terminals: C0, DEL and C1; what directs writing; what has no width and no
/// use in names (the joiners U+200C and U+200D have: they stay).
constexpr std::array kHidden = {
    Span{0x00, 0x1f},
    Span{0x7f, 0x9f},
    Span{0xad, 0xad},
    Span{0x61c, 0x61c},
    Span{0x180e, 0x180e},
    Span{0x200b, 0x200b},
    Span{0x200e, 0x200f},
    Span{0x2028, 0x202e},
    Span{0x2060, 0x206f},
    Span{0xfeff, 0xfeff},
    Span{0xfff9, 0xfffb},
    Span{0xe0000, 0xe0fff},
};

bool is_hidden(char32_t value) {
  return std::any_of(kHidden.begin(), kHidden.end(), [value](const Span& span) {
    return value >= span.first && value <= span.last;
  });
}

std::string hexadecimal(const char* format, unsigned value) {
  char text[16];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string escape_of(char32_t value) {
  if (value == '\n') return "\\n";
  if (value == '\t') return "\\t";
  if (value == '\r') return "\\r";
  if (value < 0x80) return hexadecimal("\\x%02x", static_cast<unsigned>(value));
  return hexadecimal(value > 0xffff ? "\\U%08x" : "\\u%04x", static_cast<unsigned>(value));
}

std::string escape_of_bytes(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) out += hexadecimal("\\x%02x", static_cast<unsigned char>(c));
  return out;
}

std::string shown(std::string_view text, std::string_view kept) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const CodePoint point = first_code_point(text);
    const std::string_view bytes = text.substr(0, point.bytes);
    if (point.kind != CodePoint::Kind::kWhole) {
      out += escape_of_bytes(bytes);
    } else if (is_hidden(point.value) && (bytes.size() > 1 || kept.find(bytes[0]) == std::string::npos)) {
      out += escape_of(point.value);
    } else {
      out += bytes;
    }
    text.remove_prefix(point.bytes);
  }
  return out;
}

std::string json_escape_of(char32_t value) {
  if (value <= 0xffff) return hexadecimal("\\u%04x", static_cast<unsigned>(value));
  const auto above = static_cast<unsigned>(value) - 0x10000;
  return hexadecimal("\\u%04x", 0xd800 + (above >> 10)) +
         hexadecimal("\\u%04x", 0xdc00 + (above & 0x3ff));
}

}  // namespace

std::string printable(std::string_view text) {
  return shown(text, "");
}

std::string printable_lines(std::string_view text) {
  return shown(text, "\n\t");
}

std::string printable_json(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const CodePoint point = first_code_point(text);
    const std::string_view bytes = text.substr(0, point.bytes);
    const bool is_blank = bytes == "\n" || bytes == "\t" || bytes == "\r";  // between its tokens
    if (point.kind != CodePoint::Kind::kWhole) {
      out += "\\ufffd";
    } else if (is_hidden(point.value) && !is_blank) {
      out += json_escape_of(point.value);
    } else {
      out += bytes;
    }
    text.remove_prefix(point.bytes);
  }
  return out;
}

std::size_t columns_of(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

std::string PrintableStream::take(std::string_view bytes) {
  std::string text = std::move(kept_);
  kept_.clear();
  text += bytes;
  // The rest of a character may come with the next piece; so may the '\n' of "\r\n".
  for (std::size_t back = std::min<std::size_t>(3, text.size()); back > 0; --back) {
    const std::string_view tail = std::string_view(text).substr(text.size() - back);
    if (tail == "\r" || first_code_point(tail).kind == CodePoint::Kind::kCutOff) {
      kept_ = tail;
      text.resize(text.size() - back);
      break;
    }
  }
  std::string lines;
  lines.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      lines += text[i];
    } else if (i + 1 == text.size() || text[i + 1] != '\n') {
      lines += '\n';
    }
  }
  return printable_lines(lines);
}

std::string PrintableStream::finish() {
  const std::string rest = std::move(kept_);
  kept_.clear();
  return rest == "\r" ? "\n" : printable_lines(rest);
}

}  // namespace rn
