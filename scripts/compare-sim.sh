#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The simulator against the testbed: plays runs of scripts/testbed.sh once more by `reclaim-sim replay`, and prints for
# their migrations how far off it is: the time from the owner's word until the guest goes on elsewhere, the time and the
# bytes of its last copy. Needs neither root nor a network. docs/evaluation.md tells more.
#
#   compare-sim.sh RECORD.json... [--fit RECORD.json | --machine FILE] [--out FOLDER] [--sim PROGRAM]
#
#   --fit      the run that this machine's times (a container's start, a save, a message) are taken from; figures of
#              that run are no test of the simulator, those of others are
#   --machine  such times from a file: FOLDER/machine.json of a run before
#   --out      gets prediction.json, prediction.html (one page, nothing from elsewhere), machine.json
#   --sim      reclaim-sim (else RN_BUILD's, or of build/release, build/ci, build/dev)
#
# Exit codes: 0, 2 a record, a file or an option that cannot be.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
case ${1:-} in
  -h | --help | '')
    sed -n '3,/^set /{/^set /!s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
    [[ -n ${1:-} ]] || exit 2
    exit 0 ;;
esac
exec /usr/bin/python3 -B "$here/testbed/predict.py" "$@"
