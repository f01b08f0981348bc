#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Chaos on real daemons, containers and namespaces of this machine. Faults for so many minutes, by a schedule that the
# seed gives: SIGKILL of coordinator, agents, wardens and engines, at named points (before a journal is durable, before
# a message leaves, …; by strace) and at random; SIGSTOP; cables pulled; disks filled; EIO at fsync (by strace, too:
# libfiu is not needed); owners who come and go; students who submit. Then all is let come to rest, every job's result,
# saved state and logs are compared with those of an undisturbed run, and the invariants are checked by database and
# disks.
#
#   scripts/chaos.sh --minutes M [--seed S] [--kills-per-minute N] [--result FILE]
#     --minutes M            how long faults happen, 0.5 to 10000; rest and checks take minutes to half an hour more
#     --seed S               a whole number; printed, and the same one gives the same schedule (one is drawn)
#     --kills-per-minute N   1 to 120 (30); 10,000 kills take 5 hours 40 minutes at 30
#     --result FILE          counts and faults as JSON; the same as text with .txt at its end (chaos-SEED.json)
#
# Prints how many SIGKILLs met each point. Exit status 0: nothing was wrong and nothing is left; 1: what is wrong, where
# the daemons' logs lie, and the command that repeats it. Root; needs the programs of RN_BUILD (an absolute path;
# build/ci or build/dev, whichever has them) and the packages of scripts/install-deps.sh; strace for named points.
set -euo pipefail
case ${1:-} in -h | --help) sed -n '3,/^set /{/^set /!s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;; esac
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
wrong() { echo "chaos: $*; see --help" >&2; exit 2; }

minutes='' seed='' rate=30 result=''
while (($# > 0)); do
  case $1 in
    --minutes | --seed | --kills-per-minute | --result) (($# > 1)) || wrong "$1 needs a value" ;;
    *) wrong "there is no option '$1'" ;;
  esac
  case $1 in
    --minutes) minutes=$2 ;;
    --seed) seed=$2 ;;
    --kills-per-minute) rate=$2 ;;
    --result) result=$2 ;;
  esac
  shift 2
done
[[ -n $minutes ]] || wrong "--minutes says how long"
[[ $minutes =~ ^[0-9]{1,5}(\.[0-9]{1,2})?$ ]] && awk "BEGIN { exit !($minutes >= 0.5 && $minutes <= 10000) }" ||
  wrong "--minutes '$minutes' is no number from 0.5 to 10000"
seed=${seed:-$((RANDOM * 32768 + RANDOM))}
[[ $seed =~ ^[0-9]{1,15}$ ]] || wrong "--seed '$seed' is no whole number of at most 15 digits"
[[ $rate =~ ^[1-9][0-9]{0,2}$ ]] && ((rate <= 120)) ||
  wrong "--kills-per-minute '$rate' is no whole number from 1 to 120"
[[ -z $result || -d $(dirname "$result") ]] || wrong "--result '$result' lies in no folder that exists"
[[ $(id -u) == 0 ]] || wrong "namespaces, disks and containers are made: run it as root"

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if [[ -z ${RN_BUILD:-} ]]; then
  for tree in ci dev; do [[ -x $here/build/$tree/apps/reclaim-coordinator/reclaim-coordinator ]] && break; done
  RN_BUILD=$here/build/$tree
fi
export RN_BUILD
for name in reclaim reclaim-agent reclaim-coordinator reclaim-init reclaim-warden; do
  [[ $RN_BUILD == /* && -x $RN_BUILD/apps/$name/$name ]] || {
    echo "chaos: no $RN_BUILD/apps/$name/$name: build it (cmake --preset ci && ninja -C build/ci $name)," \
      "or set RN_BUILD to a build folder's absolute path" >&2
    exit 2
  }
done
result=$(realpath -m "${result:-chaos-$seed.json}")
exec /usr/bin/python3 -B "$here/tests/system/chaos_test.py" --all --seed "$seed" --result "$result" \
  --seconds "$(awk "BEGIN { print $minutes * 60 }")" --kill-every "$(awk "BEGIN { print 60 / $rate }")"
