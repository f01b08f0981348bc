#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The same owners and the same checkpointing guests, one play through a real Slurm (preempt and requeue) and one through
# ReclaimNet, on this machine and at an accelerated clock: work lost, downtime, and how long owners wait.
# docs/compare-slurm.md tells more. Root, Debian 12, built programs (RN_BUILD, else build/dev or build/ci). Slurm and
# munge are installed from Debian's packages where they are missing; their services are neither started nor enabled.
#
#   compare-slurm.sh [--nodes N] [--reclaims N] [--reps N] [--seed S] [--out FOLDER] [--save-s N]
#                    [--variants s1,s2] [--only slurm|reclaimnet] [--quick]
#   compare-slurm.sh --judge FOLDER    judges the records of an earlier run again
#
#   --nodes N      machines that are lent (5); guests at once: half of them
#   --reclaims N   owners' reclaims in a play (24)
#   --save-s N     seconds between two saves of a guest (30)
#   --reps N       repetitions, each with a seed of its own (3): a play for each side and each variant
#   --variants     s1: guests save at a fixed interval; s2: and once more on SIGTERM (s1,s2)
#   --quick        four reclaims a play, one repetition: shows that it works, and no more
#   --out FOLDER   record-*.json (all that was seen), result.json, result.txt, result.html with a plot, two CSV files
#
# Exit codes: 0, 1 failed (a fault, a guest's result was wrong, or something was left), 2 usage, 130 interrupted.
set -euo pipefail
# Debian's programs, whatever a user's own profile puts before them.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
case ${1:-} in
  -h | --help) sed -n '3,/^set /{/^set /!s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;;
esac
exec /usr/bin/python3 -B "$here/compare_slurm/compare.py" "$@"
