#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fault simulation for a fixed time: seeded runs of whole sites on the daemons' own cores, every fault at every crash
# point, checkers after every event (docs/faults.md). Builds reclaim-sim with optimization, uses all processors, and
# prints the coverage table, the faults, and the simulated cluster-hours that were reached. Exit status 1: an invariant
# was violated; the command that repeats that seed is printed.
#
#   scripts/chaos-sim.sh [SECONDS [SEED]]   so long (180), from this seed on (1)
#   RN_BUILD=FOLDER                         a build folder, an absolute path (build/release)
#
# Long runs are the same command: 86400 for a day. The same by hours: reclaim-sim chaos --hours H --seed S --threads N.
set -euo pipefail
case ${1:-} in -h | --help) sed -n '3,/^set /{/^set /!s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;; esac
seconds=${1:-180} seed=${2:-1}
if (($# > 2)) || ! [[ $seconds =~ ^[1-9][0-9]{0,6}$ && $seed =~ ^[0-9]{1,18}$ ]]; then
  echo "chaos-sim: '$*' is not a number of seconds and a seed; see --help" >&2
  exit 2
fi
cd "$(dirname "$0")/.."
build=${RN_BUILD:-$PWD/build/release}
[[ -n ${RN_BUILD:-} || -f $build/build.ninja ]] || cmake --preset release >/dev/null
[[ -f $build/build.ninja ]] || { echo "chaos-sim: $build is no build folder; see RN_BUILD in --help" >&2; exit 2; }
ninja -C "$build" reclaim-sim
exec "$build/apps/reclaim-sim/reclaim-sim" chaos --seed "$seed" --hours 1e9 --wall-seconds "$seconds" \
  --threads "$(nproc)"
