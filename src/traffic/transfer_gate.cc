// SPDX-License-Identifier: Apache-2.0
#include "traffic/transfer_gate.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include <bpf/bpf.h>
#include <unistd.h>

#include "traffic/transfer_edge_abi.h"

namespace rn::traffic {
namespace {

tl::unexpected<Error> gate_error(const std::string& what, int error) {
  const ErrorCode code = error == ENOENT                     ? ErrorCode::kNotFound
                         : error == EPERM || error == EACCES ? ErrorCode::kDenied
                                                             : ErrorCode::kInternal;
  return fail(code, what + ": " + std::strerror(error));
}

Status write_transfer_gate(int fd, std::uint64_t is_open) {
  const std::uint32_t key = 0;
  const rn_edge_gate gate{is_open};
  if (bpf_map_update_elem(fd, &key, &gate, BPF_ANY) == 0) return {};
  return gate_error("writing the transfers' gate", errno);
}

}  // namespace

TransferGate::TransferGate(TransferGate&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

TransferGate& TransferGate::operator=(TransferGate&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

TransferGate::~TransferGate() {
  if (fd_ >= 0) close(fd_);
}

Result<TransferGate> TransferGate::open_pinned(const std::string& folder) {
  const int fd = bpf_obj_get((folder + "/" RN_EDGE_MAP_GATE).c_str());
  if (fd < 0) return gate_error("opening the transfers' gate in " + folder, errno);
  return TransferGate(fd);
}

Status TransferGate::cut() {
  return write_transfer_gate(fd_, 0);
}

Status TransferGate::uncut() {
  return write_transfer_gate(fd_, 1);
}

Result<bool> TransferGate::is_open() const {
  const std::uint32_t key = 0;
  rn_edge_gate gate{};
  if (bpf_map_lookup_elem(fd_, &key, &gate) != 0)
    return gate_error("reading the transfers' gate", errno);
  return gate.is_open != 0;
}

}  // namespace rn::traffic
