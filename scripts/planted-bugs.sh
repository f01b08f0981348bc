#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Hunts every planted bug with swarm faults: switches them on one at a time in reclaim-sim-planted, and demands that the
# checkers catch each. First the same build without a bug must be clean. Prints a table: bug, caught or not, seconds,
# by what.
#
#   scripts/planted-bugs.sh [SECONDS]   at most so long for each bug (60)
set -euo pipefail
case ${1:-} in -h | --help) sed -n '3,/^set /{/^set /!s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;; esac
seconds_each=${1:-60}
if (($# > 1)) || ! [[ $seconds_each =~ ^[1-9][0-9]{0,5}$ ]]; then
  echo "planted-bugs: '$*' is no number of seconds; see --help" >&2
  exit 2
fi
cd "$(dirname "$0")/.."
[[ -f build/dev/build.ninja ]] || cmake --preset dev >/dev/null
ninja -C build/dev reclaim-sim-planted
sim=build/dev/apps/reclaim-sim/reclaim-sim-planted
mapfile -t bugs < <(grep -rhoE 'planted\("[a-z_.]+"\)' src | sed -E 's/.*"(.*)".*/\1/' | sort -u)

echo "clean build first:"
"$sim" chaos --seeds 20 --hours 1 --wall-seconds "$seconds_each" | tail -1

missed=0
printf '%-36s %-8s %8s  %s\n' bug caught seconds by
for bug in "${bugs[@]}"; do
  began=${EPOCHREALTIME/./}
  if output=$("$sim" chaos --seeds 100000 --hours 1 --wall-seconds "$seconds_each" --plant "$bug"); then
    printf '%-36s %-8s %8s\n' "$bug" NO "$seconds_each"
    missed=$((missed + 1))
    continue
  fi
  by=$(grep -m1 -oE '^ +(I[0-9]+|wire|journal|setup): .*' <<<"$output" | cut -c7-110 || true)
  tenths=$(((${EPOCHREALTIME/./} - began) / 100000))
  printf '%-36s %-8s %6d.%d  %s\n' "$bug" yes $((tenths / 10)) $((tenths % 10)) "$by"
done
echo "$((${#bugs[@]} - missed)) passed, $missed failed"
[ "$missed" -eq 0 ]
