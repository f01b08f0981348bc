// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/error.h"
#include "coordinator/sqlite_database.h"

namespace rn::coordinator {

/// Version that this build writes. A database of a newer one is refused, of an older one migrated.
inline constexpr std::int64_t kSchemaVersion = 4;

/// Brings the schema up to kSchemaVersion, one transaction for each step; a crash between two steps
/// continues with the next. kUnsupported if the database is newer than this build.
Status migrate(SqliteDatabase& database);

}  // namespace rn::coordinator
