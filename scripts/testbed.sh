#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A site of real kernels on this machine: each node a network namespace with an agent, a warden and a private container
# engine; bridges as switches; lines of the declared speeds (HTB or TBF); a coordinator that reads the same topology.
# docs/testbed.md tells more. Root, Debian 12, built programs (RN_BUILD, else build/dev or build/ci).
#
#   testbed.sh up --topology FILE [--nodes N] [--shaper htb|tbf]   prints the bed's id; the first N nodes of the file
#                             get daemons, those after them are plain hosts, for other people's traffic (default: all)
#   testbed.sh status [ID]    what is up, with its lines
#   testbed.sh down [ID]      removes everything, also what a killed `up` left; without ID: every bed of this machine
#   testbed.sh residue [ID]   prints what is left; exit code 1 if anything is
#   testbed.sh run SCENARIO [--seed S] [--minutes M] [--traces FOLDER] [--out FOLDER] [--keep] [--discipline NAME,…]
#                             a bed of the scenario's own: owners, guests, traffic; writes result.json and result.txt;
#                             once by each discipline, of ours (default), fair, priority and edf, or all
#
# Exit codes: 0, 1 failed (run: a guest's result was wrong, or something was left), 2 usage, 130 interrupted.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
case ${1:-} in
  -h | --help | '')
    sed -n '3,/^set /{/^set /!s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
    [[ -n ${1:-} ]] || exit 2
    exit 0 ;;
esac
exec /usr/bin/python3 -B "$here/testbed/main.py" "$@"
