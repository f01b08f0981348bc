#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How long the edit loop takes: a .cc file is touched, its module's unit test is built with preset dev, and run. Seconds
# on the wall clock, median and worst of ROUNDS (5). ccache is off while it is measured, because what was really changed
# is not in it. Without a FILE: one of a low module and one of a high module.
#
#   bench/edit_loop.sh [ROUNDS [FILE…]]
set -euo pipefail
export LC_ALL=C # a point in EPOCHREALTIME
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly tree=build/dev goal_s=10

rounds=${1:-5}
if ! [[ $rounds =~ ^[1-9][0-9]{0,2}$ ]]; then
  sed -n 's/^# \{0,1\}//; 3,7p' "${BASH_SOURCE[0]}" >&2
  exit 2
fi

fail() {
  printf '%s\n' "$@" >&2
  exit 1
}

# seconds COMMAND…: how long it took. What it says goes to $said, and is shown if it fails.
said=$(mktemp)
trap 'rm -f "$said"' EXIT
seconds() {
  local begun=$EPOCHREALTIME
  "$@" >"$said" 2>&1 || fail "$*: failed" "$(tail -n 40 "$said")"
  local ended=$EPOCHREALTIME
  awk -v a="$begun" -v b="$ended" 'BEGIN { printf "%.1f\n", b - a }'
}

median() {
  sort -n | awk '{ v[NR] = $1 } END { printf "%.1f", (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'
}

worst() {
  sort -n | tail -n 1
}

load() {
  cut -d' ' -f1 /proc/loadavg
}

loop() { # FILE
  local file=$1 module round taken ran build=() run=() both=()
  [[ -f $file && $file =~ ^src/([a-z_]+)/.*\.cc$ ]] || fail "$file: is no source file of a module (src/MODULE/….cc)"
  module=${BASH_REMATCH[1]}
  seconds ninja -C "$tree" "${module}_test" >/dev/null # then only the touched file is left to do
  for ((round = 0; round < rounds; round++)); do
    touch "$file"
    taken=$(CCACHE_DISABLE=1 seconds ninja -C "$tree" "${module}_test")
    grep -q "$(basename "$file")" "$said" || fail "$file is no part of ${module}_test: nothing was built"
    ran=$(seconds "$tree/src/$module/${module}_test" --gtest_brief=1)
    build+=("$taken") run+=("$ran") both+=("$(awk -v a="$taken" -v b="$ran" 'BEGIN { print a + b }')")
  done
  printf '%-24s build %s s, test %s s, both %s s (worst %s; goal %s), load %s; each: %s\n' "$file" \
    "$(printf '%s\n' "${build[@]}" | median)" "$(printf '%s\n' "${run[@]}" | median)" \
    "$(printf '%s\n' "${both[@]}" | median)" "$(printf '%s\n' "${both[@]}" | worst)" "$goal_s" "$(load)" "${both[*]}"
}

cmake --preset dev >"$said" 2>&1 || fail "cmake --preset dev: failed" "$(tail -n 40 "$said")"
changed=$(git status --porcelain --untracked-files=no)
printf 'machine: %s, %s cores, load %s; commit %s%s; n = %s, medians\n' \
  "$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)" "$(nproc)" "$(load)" \
  "$(git rev-parse --short HEAD)" "${changed:+ and changes}" "$rounds"
files=("${@:2}")
((${#files[@]})) || files=(src/model/yaml.cc src/agent/hands.cc)
for file in "${files[@]}"; do loop "$file"; done
