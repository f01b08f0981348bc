#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run_fuzzer.sh PROGRAM CORPUS: the whole corpus, then RN_FUZZ_SECONDS (2) of new inputs from a fixed seed. A finding
# fails and stays as build/.../findings/NAME-*; add it to the corpus together with the fix.
set -euo pipefail
program=$1 corpus=$2
name=$(basename "$program")
findings=$(dirname "$program")/findings
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
mkdir -p "$findings"
"$program" -max_total_time="${RN_FUZZ_SECONDS:-2}" -seed=1 -rss_limit_mb=4096 -timeout=20 \
  -artifact_prefix="$findings/$name-" "$fresh" "$corpus"
