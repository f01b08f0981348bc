// SPDX-License-Identifier: Apache-2.0
#include "order.h"

#include <cstddef>

// NOTE: reclaim-kill reads its words before its C library is ready, so nothing here calls it.

namespace rn {
namespace {

/// What follows `begin` in `text`; null: it begins otherwise.
const char* behind(const char* begin, const char* text) {
  for (; *begin != '\0'; ++begin, ++text) {
    if (*begin != *text) return nullptr;
  }
  return text;
}

bool is_same(const char* one, const char* other) {
  const char* const rest = behind(one, other);
  return rest != nullptr && *rest == '\0';
}

/// The value of "--NAME VALUE" or "--NAME=VALUE" at `at`, which is moved to its last word; null:
/// another word, or without a value.
const char* value_of(const char* name, int count, const char* const* words, int& at) {
  const char* const rest = behind(name, words[at]);
  if (rest == nullptr) return nullptr;
  const char* value = nullptr;
  if (*rest == '=') value = rest + 1;
  if (*rest == '\0' && at + 1 < count) value = words[++at];
  return value == nullptr || *value == '\0' || *value == '-' ? nullptr : value;
}

/// The bit of a GPU's index, from 0 to 63; 0: no such index.
std::uint64_t gpu_of(const char* text) {
  unsigned index = 0;
  const char* at = text;
  for (; *at >= '0' && *at <= '9' && at - text < 2; ++at)
    index = index * 10 + static_cast<unsigned>(*at - '0');
  return *at == '\0' && at != text && index < 64 ? std::uint64_t{1} << index : 0;
}

}  // namespace

EarlyOrder read_early_order(int count, const char* const* words) {
  EarlyOrder order;
  const char* ignored = nullptr;

  struct {
    const char* name;
    const char** value;
    bool is_given = false;
  } valued[] = {
      {"--state", &order.state},
      {"--run", &order.run},
      {"--lab", &order.lab},
      {"--engine", &ignored},
      {"--guest-addresses", &ignored},
  };

  bool is_cut_only = false;
  bool is_for_less = false;
  bool is_for_gpus = false;
  for (int at = 0; at < count; ++at) {
    bool is_known = is_same(words[at], "--cut-only");
    is_cut_only = is_cut_only || is_known;
    if (is_same(words[at], "--transfers")) {
      is_known = true;
      order.cut = EarlyOrder::Cut::kTransfers;
    }
    if (is_same(words[at], "--allow-transfers")) is_known = is_for_less = true;
    if (const char* const gpu = is_known ? nullptr : value_of("--gpu", count, words, at)) {
      is_known = is_for_gpus = true;
      const std::uint64_t bit = gpu_of(gpu);
      order.gpus |= bit;
      is_for_less = is_for_less || bit == 0;
    }
    for (auto& flag : valued) {
      if (is_known) break;
      const char* const value = value_of(flag.name, count, words, at);
      if (value == nullptr) continue;
      if (flag.is_given) break;
      flag.is_given = true;
      *flag.value = value;
      is_known = true;
    }
    const bool is_for_transfers = order.cut == EarlyOrder::Cut::kTransfers;
    if (!is_known || (is_for_transfers && (is_cut_only || is_for_less || is_for_gpus))) {
      order.is_understood = false;
      break;
    }
  }
  if (is_for_gpus) order.cut = EarlyOrder::Cut::kGuestsOfGpus;
  if (is_for_less || !order.is_understood) order.cut = EarlyOrder::Cut::kNothing;
  return order;
}

bool is_served_lab(const char* lab, const char* settings) {
  if (*lab == '\0') return true;
  const char* const rest = behind(lab, settings);
  return rest != nullptr && (*rest == '\0' || *rest == ' ' || *rest == '\n');
}

}  // namespace rn
