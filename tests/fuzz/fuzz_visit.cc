// SPDX-License-Identifier: Apache-2.0
// Whatever comes in the stream of a visit and in a copy: frames are cut within what is there, what
// is taken for a command or a path is one, and a copy says the same in whatever pieces it comes,
// names only steps, and leaves no folder that it has not entered.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "base/assert.h"
#include "model/copy_stream.h"
#include "model/visit.h"

namespace {

using rn::copy_stream::Reader;
using Event = Reader::Event;

void read_frames(const std::uint8_t* data, std::size_t size) {
  rn::visit::Cut frame{};
  while (rn::visit::cut(data, size, frame) == rn::visit::Cutting::kWhole) {
    RN_ASSERT(frame.used <= size && frame.size <= rn::visit::kBodyMax, "a frame is there");
    const auto run = std::make_unique<rn::visit::Run>();
    if (rn::visit::read_run(frame.body, frame.size, *run)) {
      std::size_t bytes = std::strlen(run->terminal);
      for (int i = 0; run->words[i] != nullptr; ++i) bytes += std::strlen(run->words[i]) + 1;
      RN_ASSERT(bytes < frame.size, "a command's words lie in its frame");
    }
    char path[rn::visit::kPathMax + 1];
    if (rn::visit::read_path(frame.body, frame.size, path))
      RN_ASSERT(std::strlen(path) == frame.size, "a path is the frame's body");
    data += frame.used;
    size -= frame.used;
  }
}

/// All that it says, one letter an event; content by its bytes.
std::string told(const std::uint8_t* data, std::size_t size, std::size_t piece) {
  const auto reader = std::make_unique<Reader>();
  std::string out;
  int depth = 0;
  for (std::size_t begin = 0; begin < size; begin += piece) {
    const std::uint8_t* at = data + begin;
    std::size_t left = std::min(piece, size - begin);
    while (left > 0) {
      const Event event = reader->next(at, left);
      if (event == Event::kBad) return out + "bad";
      if (event == Event::kMore) continue;
      if (event == Event::kBytes) {
        out.append(reader->bytes(), reader->bytes() + reader->size());
        continue;
      }
      depth += event == Event::kFolder ? 1 : 0;
      depth -= event == Event::kUp ? 1 : 0;
      RN_ASSERT(depth >= 0 && depth <= rn::copy_stream::kDepthMax, "folders are bounded");
      const bool is_named =
          event == Event::kFile || event == Event::kFolder || event == Event::kLeftOut;
      if (is_named) {
        const std::string name = reader->name();
        RN_ASSERT(rn::copy_stream::is_name(name.data(), name.size()), "a name is a step");
        RN_ASSERT(name.find('/') == name.npos && name != "..", "it leads nowhere else");
        RN_ASSERT(reader->mode() <= 0777, "no mode is more than one of files");
        out += name;
      }
      out += static_cast<char>(event);
    }
  }
  return out + (reader->is_over() ? "over" : "open");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  read_frames(data, size);
  if (size == 0) return 0;
  const std::string whole = told(data, size, size);
  RN_ASSERT(told(data, size, 1) == whole, "pieces change nothing");
  RN_ASSERT(told(data, size, 1 + std::size_t{data[0]} % 16) == whole, "pieces change nothing");
  return 0;
}
