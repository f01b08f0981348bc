// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

// Text of others (names, messages, logs) on its way to a terminal. What a terminal would obey or
// hide becomes a visible escape: control characters ("\x1b", "\n"), bytes that are no UTF-8
// ("\xff"), and characters that turn the direction of writing or show nothing ("\u202e"). All else
// stays as it is, so that words of every language can be read. Pure.
namespace rn {

/// One line: a field of a table, a name within a sentence.
std::string printable(std::string_view text);

/// Text of several lines: '\n' and '\t' stay.
std::string printable_lines(std::string_view text);

/// JSON that means the same, in which such characters are written as \uXXXX. Bytes that are no
/// UTF-8 become U+FFFD.
std::string printable_json(std::string_view text);

/// How many columns a printable text takes, characters of double width counted once.
std::size_t columns_of(std::string_view text);

/// Text that comes in pieces, which may end within a character. As printable_lines(); a carriage
/// return begins a new line, so that a progress bar is read one state after the other and nothing
/// is written over.
class PrintableStream {
 public:
  /// What can be shown by now.
  std::string take(std::string_view bytes);
  /// What was kept back, when nothing follows.
  std::string finish();

 private:
  std::string kept_;  ///< three bytes at most, or a carriage return
};

}  // namespace rn
