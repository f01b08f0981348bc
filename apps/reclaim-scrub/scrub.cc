// SPDX-License-Identifier: Apache-2.0
#include "scrub.h"

#include <algorithm>
#include <array>
#include <vector>

namespace rn {
namespace {

constexpr std::size_t kLargestPiece = std::size_t{1} << 30;
constexpr std::size_t kSmallestPiece = std::size_t{2}
                                       << 20;  ///< what the driver gives out at least
constexpr std::size_t kMostPieces = 4096;      ///< 1 TiB and what is left over
constexpr std::size_t kLookEvery = std::size_t{64} << 20;
constexpr std::size_t kLookBytes = 4096;

struct Piece {
  CudaDriver::Address address;
  std::size_t bytes;
};

/// Of the piece of that number: never zero, and no two the same.
std::uint32_t word_of(std::uint32_t seed, std::size_t number) {
  return (seed & ~std::uint32_t{kMostPieces * 2 - 1}) | 1U |
         (static_cast<std::uint32_t>(number) << 1U);
}

bool take_all(CudaDriver& driver, std::vector<Piece>& pieces) {
  for (std::size_t bytes = kLargestPiece; bytes >= kSmallestPiece; bytes /= 2) {
    while (pieces.size() < kMostPieces) {
      Piece piece{0, bytes};
      if (!driver.allocate(bytes, piece.address)) break;
      pieces.push_back(piece);
    }
    if (!driver.problem().empty()) return false;
  }
  return true;
}

/// Some of each piece: 4 KiB of every 64 MiB, and its end.
bool holds(CudaDriver& driver, const Piece& piece, std::uint32_t word) {
  std::array<std::uint32_t, kLookBytes / sizeof(std::uint32_t)> seen{};
  std::vector<std::size_t> places;
  for (std::size_t at = 0; at < piece.bytes; at += kLookEvery) places.push_back(at);
  places.push_back(piece.bytes - kLookBytes);
  return std::all_of(places.begin(), places.end(), [&](std::size_t at) {
    return driver.read(seen.data(), piece.address + at, kLookBytes) &&
           std::all_of(seen.begin(), seen.end(), [&](std::uint32_t one) { return one == word; });
  });
}

/// Fills all, then looks at all.
template <typename WordOf>
bool overwrite(CudaDriver& driver, const std::vector<Piece>& pieces, const WordOf& word_of_piece) {
  for (std::size_t i = 0; i < pieces.size(); ++i)
    if (!driver.fill(pieces[i].address, word_of_piece(i), pieces[i].bytes)) return false;
  if (!driver.finish()) return false;
  for (std::size_t i = 0; i < pieces.size(); ++i)
    if (!holds(driver, pieces[i], word_of_piece(i))) return false;
  return true;
}

}  // namespace

bool scrub(CudaDriver& driver, std::uint32_t seed, Scrubbed& done, std::string& problem) {
  std::vector<Piece> pieces;
  const bool is_overwritten =
      take_all(driver, pieces) &&
      overwrite(driver, pieces, [&](std::size_t number) { return word_of(seed, number); }) &&
      overwrite(driver, pieces, [](std::size_t) { return std::uint32_t{0}; });
  Scrubbed now;
  now.pieces = pieces.size();
  for (const Piece& piece : pieces) now.overwritten_bytes += piece.bytes;
  if (!is_overwritten || !driver.memory(now.left_bytes, now.all_bytes)) {
    problem = driver.problem().empty() ? "memory does not hold what was written" : driver.problem();
    return false;
  }
  if (pieces.empty()) {
    problem = "no memory is free on it";
    return false;
  }
  done = now;
  return true;
}

}  // namespace rn
