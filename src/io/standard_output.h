// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/error.h"

// What a command says on standard output (stdio's stdout) must arrive, or the command fails.
namespace rn::io {

/// Exit status of a command whose reader has gone, as a shell shows one that SIGPIPE ended.
inline constexpr int kReaderGone = 141;

/// At the start of a program, before it opens anything: standard files that are closed are taken,
/// so that no file or socket of ours gets their numbers and is written to as output. Writing to
/// them fails as before. SIGPIPE is ignored: a broken pipe is an error of the call.
void take_standard_files();

/// True when nobody can read any more what is written: the other end of the pipe or socket is
/// closed. Does not block; files and terminals have their reader always.
bool has_output_lost_its_reader();

/// Hands on what stdio holds; also what failed earlier is told. kUnavailable: the reader has gone;
/// kInternal: all else, as a full disk.
Status flush_output();

/// For a daemon after it has said something: nobody needs to hear it. What could not be handed on
/// is dropped, and finish_output() takes no notice of it. False: it was lost.
bool flush_output_or_drop();

/// The end of every command: flushes, and answers the program's exit status. That is `code` if all
/// was written or the command failed by itself; else kReaderGone without a word, or 1 with the
/// error on standard error.
int finish_output(const char* program, int code);

}  // namespace rn::io
