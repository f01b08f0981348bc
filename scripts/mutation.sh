#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Are the checkers any good? Switches every known bug of tests/scenarios/planted.txt on, one at a time, in
# reclaim-sim-planted, and demands that they catch it: swarm faults first, its own story where these take too long.
# Before, the same program without a bug must be clean. Prints for each bug the invariant that it breaks, the first one
# that a checker named, and how long that took: wall seconds, simulated hours, runs. Exit status 1 if one was not
# caught, if a planted bug is not in the list, or if an invariant of I1 to I15 has less than two.
#
#   scripts/mutation.sh [SECONDS [BUG…]]   swarm faults for at most so long for each bug (60); only these bugs
#   RN_BUILD=FOLDER                        the build folder (an absolute path; build/dev)
#   RN_JOBS=N                              so many bugs side by side (as many as there are processors)
set -euo pipefail
case ${1:-} in -h | --help) sed -n '3,/^set /{/^set /!s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;; esac
export seconds_each=${1:-60}
if ! [[ $seconds_each =~ ^[1-9][0-9]{0,5}$ ]]; then
  echo "mutation: '$seconds_each' is no number of seconds; see --help" >&2
  exit 2
fi
cd "$(dirname "$0")/.."
list=tests/scenarios/planted.txt
wanted=("${@:2}")
for bug in "${wanted[@]}"; do
  grep -qs "^$bug " "$list" && continue
  echo "mutation: there is no planted bug '$bug'; $list names them, see --help" >&2
  exit 2
done
jobs=${RN_JOBS:-$(nproc)}
if ! [[ $jobs =~ ^[1-9][0-9]{0,2}$ ]]; then
  echo "mutation: RN_JOBS: '$jobs' is no number of runs side by side; see --help" >&2
  exit 2
fi

# The list, the code and the invariants agree.
mapfile -t planted < <(grep -rhoE 'planted\("[a-z_.]+"\)' src | sed -E 's/.*"(.*)".*/\1/' | sort -u)
mapfile -t listed < <(grep -v '^#' "$list" | cut -d' ' -f1 | sort)
if [[ "${planted[*]}" != "${listed[*]}" ]]; then
  echo "mutation: $list and the code name different bugs:" >&2
  diff <(printf '%s\n' "${listed[@]}") <(printf '%s\n' "${planted[@]}") >&2 || true
  exit 1
fi
for i in {1..15}; do
  (($(grep -c " I$i " "$list") >= 2)) || { echo "mutation: less than two bugs break I$i" >&2; exit 1; }
done

build=${RN_BUILD:-$PWD/build/dev}
[[ -n ${RN_BUILD:-} || -f $build/build.ninja ]] || cmake --preset dev >/dev/null
[[ -f $build/build.ninja ]] || { echo "mutation: $build is no build folder; see RN_BUILD in --help" >&2; exit 2; }
ninja -C "$build" reclaim-sim-planted
export sim=$build/apps/reclaim-sim/reclaim-sim-planted
results=$(mktemp -d)
export results
trap 'rm -rf "$results"' EXIT

echo "without a bug:"
if ! "$sim" chaos --seeds 20 --hours 1 --wall-seconds "$seconds_each" >"$results/clean" 2>&1; then
  cat "$results/clean"
  echo "mutation: the checkers find something where no bug is planted" >&2
  exit 1
fi
grep 'simulated cluster-hours' "$results/clean"

# One line: bug, invariant, caught, by, where, seconds, simulated hours, runs; with tabs.
hunt() { # BUG INVARIANT STORY [SEED]
  local output began=${EPOCHREALTIME/./} by tenths where=swarm hours=- runs=- name=${3/#chaos/}
  if output=$("$sim" chaos --seeds 1000000 --hours 1 --wall-seconds "$seconds_each" --plant "$1" 2>/dev/null); then
    where=${name:-"chaos $4"}
    if [[ -n $name ]]; then
      output=$("$sim" scenario --seed "${4:-1}" --plant "$1" "tests/scenarios/$name.scn" 2>/dev/null || true)
    else
      output=$("$sim" chaos --seed "$4" --seeds 1 --hours 0.5 --jobs 4 --plant "$1" 2>/dev/null || true)
    fi
  fi
  by=$(grep -m1 -oE '(^ +|: )(I[0-9]+|evacuation|wire|journal|setup|transfers): ' <<<"$output" | tr -d ' :' || true)
  if [[ $output =~ $ended ]]; then runs=${BASH_REMATCH[1]} hours=${BASH_REMATCH[2]}; fi
  tenths=$(((${EPOCHREALTIME/./} - began) / 100000))
  printf '%s\t%s\t%s\t%s\t%s\t%d.%d\t%s\t%s\n' "$1" "$2" "$([[ -n $by ]] && echo yes || echo NO)" "${by:--}" "$where" \
    $((tenths / 10)) $((tenths % 10)) "$hours" "$runs" >"$results/$1.line"
  awk -F'\t' "$show" "$results/$1.line"
}
export -f hunt
export ended='run ([0-9]+), ([0-9.]+) simulated'
export show='{ printf "%-40s %-10s %-7s %-10s %8s %8s %5s  %s\n", $1, $2, $3, $4, $6, $7, $8, $5 }'

printf 'bug\tbreaks\tcaught\tfirst\twhere\twall s\tsim h\truns\n' | awk -F'\t' "$show"
grep -v '^#' "$list" | while read -r line; do
  if [[ ${#wanted[@]} == 0 || " ${wanted[*]} " == *" ${line%% *} "* ]]; then echo "$line"; fi
done | xargs -P "$jobs" -L 1 bash -c 'hunt "$@"' hunt
cat "$results"/*.line | sort -t$'\t' -k6 -n | awk -F'\t' '
  { if ($3 == "yes") { caught++; time[caught] = $6; if ($5 != "swarm") stories++ } else missed = missed " " $1 }
  END {
    printf "median %.1f s, slowest %.1f s, %d by their stories alone\n",
      time[int((caught + 1) / 2)], time[caught], stories
    if (missed != "") print "not caught:" missed
    printf "%d passed, %d failed\n", caught, NR - caught
    exit NR != caught
  }'
