// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"

namespace rn::checkpoint {

/// Writes archives as torch.save does (stored entries, sequentially, directory at the end). For
/// tests.
class ZipBuilder {
 public:
  void add(const std::string& name, const std::string& data) {
    entries_.push_back({name, bytes_.size(), data.size()});
    put(0x04034b50, 4);
    put(20, 2);      // version
    put(0x0800, 2);  // UTF-8
    for (int i = 0; i < 3; ++i) put(0, 2);
    put(0, 4);  // crc: nobody checks it
    put(data.size(), 4);
    put(data.size(), 4);
    put(name.size(), 2);
    put(0, 2);
    text(name);
    text(data);
  }

  Blob finish(bool with_zip64, const std::string& comment = {}) {
    const std::uint64_t start = bytes_.size();
    for (const Entry& entry : entries_) {
      put(0x02014b50, 4);
      put(20, 2);
      put(20, 2);
      put(0x0800, 2);
      for (int i = 0; i < 3; ++i) put(0, 2);
      put(0, 4);
      put(with_zip64 ? 0xffffffff : entry.size, 4);
      put(with_zip64 ? 0xffffffff : entry.size, 4);
      put(entry.name.size(), 2);
      put(with_zip64 ? 28 : 0, 2);  // extra
      put(0, 2);
      put(0, 2);
      put(0, 2);
      put(0, 4);
      put(with_zip64 ? 0xffffffff : entry.offset, 4);
      text(entry.name);
      if (!with_zip64) continue;
      put(1, 2);
      put(24, 2);
      put(entry.size, 8);
      put(entry.size, 8);
      put(entry.offset, 8);
    }
    const std::uint64_t length = bytes_.size() - start;
    if (with_zip64) {
      const std::uint64_t record = bytes_.size();
      put(0x06064b50, 4);
      put(44, 8);
      put(45, 2);
      put(45, 2);
      put(0, 4);
      put(0, 4);
      put(entries_.size(), 8);
      put(entries_.size(), 8);
      put(length, 8);
      put(start, 8);
      put(0x07064b50, 4);
      put(0, 4);
      put(record, 8);
      put(1, 4);
    }
    put(0x06054b50, 4);
    put(0, 2);
    put(0, 2);
    put(with_zip64 ? 0xffff : entries_.size(), 2);
    put(with_zip64 ? 0xffff : entries_.size(), 2);
    put(with_zip64 ? 0xffffffff : length, 4);
    put(with_zip64 ? 0xffffffff : start, 4);
    put(comment.size(), 2);
    text(comment);
    return bytes_;
  }

 private:
  struct Entry {
    std::string name;
    std::uint64_t offset;
    std::uint64_t size;
  };

  void put(std::uint64_t value, int width) {
    for (int i = 0; i < width; ++i) bytes_.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
  }

  void text(const std::string& s) { bytes_.insert(bytes_.end(), s.begin(), s.end()); }

  Blob bytes_;
  std::vector<Entry> entries_;
};

/// A small archive with the layout of a torch checkpoint.
inline Blob torch_like_zip(bool with_zip64 = false, std::size_t tensor_bytes = 1000) {
  ZipBuilder zip;
  zip.add("archive/data.pkl", "\x80\x02}q.");
  zip.add("archive/byteorder", "little");
  zip.add("archive/data/0", std::string(tensor_bytes, 'w'));
  zip.add("archive/version", "3\n");
  return zip.finish(with_zip64);
}

}  // namespace rn::checkpoint
