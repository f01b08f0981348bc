// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace rn::init {

// What a child of PID 1 does for `reclaim cp`, as a process of the guest like any other: it may
// read and write what the guest may. It blocks, and its words go to standard error. Answers its
// exit code.

/// Writes the file or folder to standard output as a copy stream (model/copy_stream.h). Links,
/// devices, pipes, sockets and other file systems below a folder are left out, with why.
int send_path(const char* path);

/// Reads a copy stream from standard input to the path: into it if it is a folder, and named so
/// else. A file is written beside its place and renamed into it.
int take_path(const char* path);

}  // namespace rn::init
