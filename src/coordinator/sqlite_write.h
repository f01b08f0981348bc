// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/bytes.h"
#include "coordinator/rows.h"
#include "coordinator/sqlite_database.h"

namespace rn::coordinator {

/// Meta keys that the store itself keeps.
inline constexpr const char* kGenerationKey = "generation";
inline constexpr const char* kChainHeadKey = "store.chain_head";  ///< "SEQ:HASH" of the last event

/// What the writer remembers between transactions, so that it need not read it again.
struct WriterMemory {
  std::uint64_t next_seq = 1;
  Digest head{};
  std::optional<std::string> generation;  ///< the one that this process opened
};

/// SHA-256(previous ‖ body).
Digest chain_hash(const Digest& previous, std::string_view body);

/// Applies the writes inside the caller's transaction. `memory` is changed only on success.
Status apply_writes(SqliteDatabase& database, std::span<const Write> writes, WriterMemory& memory);

}  // namespace rn::coordinator
