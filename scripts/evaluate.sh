#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Regenerates the evaluation's figures: plays ReclaimNet's own cores and other systems on the same sites, owners and
# jobs (`reclaim-sim evaluate`, docs/evaluation.md), and writes one page with plots and the numbers beside it as CSV and
# JSON.
# Needs no root and no network; two simulations at a time.
#
#   scripts/evaluate.sh [--quick] [--out FOLDER] [--seeds N] [--seed S] [--nodes N] [--days D] [--minutes M]
#                       [--owners FILE…] [--gaps-end] [--jobs FILE…] [--spot FILE] [--baselines-only]
#
#   --quick            a smaller site, fewer seeds, under 5 minutes; without it under 60
#   --out FOLDER       where the page goes (default: the repository's report); replaced as a whole, and only if an
#                      evaluation made it
#   --seeds N          seeds of the main comparison (quick: 8, full: 20); the others play some of the same
#   --seed S           the first of them (1)
#   --nodes N --days D size of the site and simulated days (quick: 16 and 3, full: 54 and 7)
#   --minutes M        nothing begins after that (quick: 4, full: 50), what still runs is ended a tenth of it later; the
#                      page says which runs are missing
#   --owners FILE…     recorded owners in place of generated ones, --gaps-end: nothing is lent where minutes are missing
#   --jobs FILE…       recorded jobs in place of generated ones; of several each seed plays one, in turn
#   --spot FILE        a section more: recorded spot machines in place of owners
#   --baselines-only   without ReclaimNet, in seconds: to see what the baselines do
#
# The program is RN_BUILD's, else that of build/release, build/ci or build/dev. FOLDER gets index.html, figures.csv and
# figures.json (each figure with seeds, commit, n and confidence interval), runs.csv and runs.json (each run).
# Exit codes: 0, 1 a run failed or a recount differs, 2 usage or a file that cannot be read, 130 interrupted.
set -euo pipefail
here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
for word in "$@"; do
  case $word in
    -h | --help) sed -n '3,/^set /{/^set /!s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;;
  esac
done
exec /usr/bin/python3 -B "$here/evaluate/main.py" "$@"
