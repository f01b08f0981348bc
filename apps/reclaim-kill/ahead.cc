// SPDX-License-Identifier: Apache-2.0
#include "ahead.h"

#include <fcntl.h>
#include <sys/syscall.h>

#include "traffic/shut_gate.h"

namespace rn {

using traffic::as_argument;
using traffic::ask_kernel;

constinit CutAhead ahead_of_all;

namespace {

constexpr std::size_t kPath = 512;

bool is_of_served_lab(const EarlyOrder& order) {
  if (*order.lab == '\0') return true;
  char path[kPath];
  char settings[256];
  settings[0] = '\0';
  if (traffic::join_path(path, order.state, "warden/settings")) {
    const long fd =
        ask_kernel(SYS_openat, AT_FDCWD, as_argument(path), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0) {
      const long size = ask_kernel(SYS_read, fd, as_argument(settings), sizeof settings - 1);
      settings[size > 0 ? size : 0] = '\0';
      ask_kernel(SYS_close, fd, 0, 0);
    }
  }
  return is_served_lab(order.lab, settings);
}

/// False: the order means nobody here.
bool shut(const EarlyOrder& order, int& result) {
  char gates[kPath];
  char masks[kPath];
  if (!traffic::join_path(gates, order.run, "gates") ||
      !traffic::join_path(masks, order.run, RN_CUT_SLOT_GPUS_FILE)) {
    result = -ENAMETOOLONG;
    return true;
  }
  if (order.cut == EarlyOrder::Cut::kGuestsOfGpus) {
    const traffic::SlotsShut shut = traffic::shut_slots_of_gpus(gates, masks, order.gpus);
    result = shut.result;
    return shut.count > 0;
  }
  const bool is_of_guests = order.cut == EarlyOrder::Cut::kGuests;
  result = traffic::shut_pinned_gate(gates, is_of_guests ? RN_CUT_MAP_NODE_GATE : RN_EDGE_MAP_GATE);
  return true;
}

}  // namespace

void cut_ahead(int count, const char* const* words) {
  const EarlyOrder order = read_early_order(count, words);
  int result = 0;
  const bool is_meant =
      order.cut != EarlyOrder::Cut::kNothing && is_of_served_lab(order) && shut(order, result);
  ahead_of_all.is_over = true;
  ahead_of_all.is_meant = is_meant;
  ahead_of_all.result = result;
  ahead_of_all.order = order;
}

}  // namespace rn
