#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every C++ file is as clang-format 14 would write it. (BPF programs are in the kernel's style.)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
git -c safe.directory='*' ls-files -z '*.h' '*.cc' | xargs -0 clang-format --dry-run -Werror
echo "formatted"
