#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints the figures of docs/results.md about one job's life, on this machine: builds with preset release and runs each
# bench, one after the other. Half an hour on a quiet machine of two cores; root, as scripts/test.sh. Every figure comes
# with n, median and p99; none fails anything.
#
#   bench/figures.sh            all of them
#   bench/figures.sh FIGURE…    only these: build start idle step checkpoint durable placement kill engine cut wire sim
#                               dashboard edit
#
# `build` builds from nothing, with the compiler's cache switched off, and deletes build/release for it.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
readonly tree=build/release
all_figures=(build start idle step checkpoint durable placement kill engine cut wire sim dashboard edit)
export RN_BUILD=$PWD/$tree
scratch=$(mktemp -d)
trap 'rm -rf --one-file-system "$scratch"' EXIT
trap 'exit 130' INT TERM

programs() {
  [[ -f $tree/build.ninja ]] || cmake --preset release >"$scratch/configure.log" 2>&1 || {
    cat "$scratch/configure.log"
    return 1
  }
  ninja -C "$tree" reclaim reclaim-{agent,coordinator,init,warden,sim} cut_on_the_wire kill_without_engine bench/all \
    >"$scratch/build.log" 2>&1 || { tail -n 40 "$scratch/build.log"; return 1; }
}

figure_build() {
  rm -rf --one-file-system "$tree"
  CCACHE_DISABLE=1 programs
}

figure_start() { bench/site_figures.py start --rounds 160; }
figure_idle() { bench/site_figures.py idle --seconds 60; }
figure_step() { bench/site_figures.py step --rounds 120; }

# First a file of random numbers with the statistics of weights and Adam's moments, then what a real training saved.
figure_checkpoint() {
  local image
  "$tree/bench/bench_checkpoint" - 20 "$scratch" || return 1
  image=$(scripts/build-image.sh) && mkdir "$scratch/root" "$scratch/run" && tar -C "$scratch/root" -xf "$image" &&
    cp bench/real_checkpoint.py "$scratch/run/" && chmod 711 "$scratch" && chown -R 10001:10001 "$scratch/run" &&
    (source scripts/lib/image_run.sh && IMAGE_WORK=$scratch/run image_run "$scratch/root" python real_checkpoint.py) ||
    return 1
  ls -l "$scratch/run"
  "$tree/bench/bench_checkpoint" "$scratch/run/two.pt" 20 "$scratch"
}

figure_durable() { bench/durable_ack.py --rounds 20; }
figure_placement() { "$tree/bench/bench_placement" "$tree/apps/reclaim-coordinator/reclaim-coordinator" 1000 500 30; }
figure_kill() { "$tree/bench/bench_kill" 100 idle && "$tree/bench/bench_kill" 100 busy; }

figure_engine() {
  local round
  for ((round = 0; round < 8; round++)); do "$tree/tests/system/kill_without_engine" | grep -a ' ms' || return 1; done
}

figure_cut() { RN_ROUNDS=1000 "$tree/tests/system/cut_on_the_wire" | grep -av '^\[\|^Note\|^$'; }
# The owner's command with nearly everything dead or stopped; an hour and a half with 1,000 rounds in each of 12 cases.
figure_wire() {
  bench/kill_on_the_wire.py kill && bench/kill_on_the_wire.py deadman && bench/kill_on_the_wire.py wire
}

figure_sim() {
  "$tree/apps/reclaim-sim/reclaim-sim" chaos --seed 30000 --seeds 100000 --hours 0.5 --jobs 4 --wall-seconds 120
}
figure_dashboard() { bench/dashboard.py; }
figure_edit() { bench/edit_loop.sh 5; }

case ${1:-} in -h | --help) sed -n '3,/^set /{/^set /!s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;; esac
figures=("$@")
((${#figures[@]} > 0)) || figures=("${all_figures[@]}")
for name in "${figures[@]}"; do
  [[ " ${all_figures[*]} " != *" $name "* ]] || continue
  echo "figures: no figure $name; there are: ${all_figures[*]}" >&2
  exit 2
done
failed=()
printf 'machine: %s x %s, %s\ncommit: %s\n' "$(nproc)" "$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)" \
  "$(uname -sr)" "$(git describe --always --dirty --abbrev=10)"
[[ ${figures[0]} == build ]] || programs || exit 1
for name in "${figures[@]}"; do
  begun=$SECONDS
  printf '\n=== %s, load %s ===\n' "$name" "$(cut -d' ' -f1 /proc/loadavg)"
  "figure_$name" || { failed+=("$name"); echo "$name: FAILED"; }
  printf '(%s: %d s)\n' "$name" $((SECONDS - begun))
done
((${#failed[@]} == 0)) || { echo "failed: ${failed[*]}"; exit 1; }
