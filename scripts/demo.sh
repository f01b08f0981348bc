#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The whole story of ReclaimNet on this machine: a coordinator and three laboratories in network namespaces, two real
# PyTorch trainings, owners who take their machines back in every way, and the proof that no work was harmed. Installs
# what is missing, builds, makes the base image, plays, prints a table, and leaves nothing behind. Root, Debian 12.
#
#   scripts/demo.sh [--keep] [--steps N] [--seed N]
#
#   --keep     leaves the site running after the story, says whether it passed, prints commands to paste; Ctrl-C ends it
#   --steps N  length of the trainings (default 1500, at least 500: they must outlast the acts)
#   --seed N   varies the moments of the story (default: by the clock; printed)
set -euo pipefail
umask 022 # the daemons' own users read what is written here, whatever the caller's mask
unset CDPATH
here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
# Before anything is installed or built.
words=("$@")
while (($# > 0)); do
  case $1 in
    -h | --help) sed -n '3,/^set /{/^set /!s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    --keep) shift ;;
    --steps | --seed)
      digits=10 # of the clock, which is the default seed
      [[ $1 == --seed ]] || digits=6
      if ! [[ ${2:-} =~ ^[0-9]{1,$digits}$ ]]; then
        echo "demo: $1 wants a whole number of at most $digits digits, not \"${2:-}\"; see --help" >&2
        exit 2
      fi
      if [[ $1 == --steps ]] && ((10#$2 < 500)); then
        echo "demo: --steps $2 would end before the last act; give 500 or more" >&2
        exit 2
      fi
      shift 2 ;;
    *) echo "demo: no argument \"$1\"; there are --keep, --steps N and --seed N" >&2; exit 2 ;;
  esac
done
[[ $(id -u) == 0 ]] || { echo "demo: needs root: it makes network namespaces and disks; run it as root" >&2; exit 2; }

"$here/install-deps.sh"
cd "$here/.."
echo "building what is not built yet (the first time takes some minutes)"
[[ -f build/ci/build.ninja ]] || cmake --preset ci >/dev/null
log=
trap '[[ -z $log ]] || rm -f "$log"' EXIT
log=$(mktemp)
programs=(reclaim reclaim-coordinator reclaim-agent reclaim-warden reclaim-init)
if ! ninja -C build/ci -j "$(nproc)" "${programs[@]}" >"$log" 2>&1; then
  tail -40 "$log"
  exit 1
fi
"$here/build-image.sh" >/dev/null
rm -f "$log"
RN_BUILD=$PWD/build/ci exec /usr/bin/python3 -B "$here/demo/story.py" "${words[@]}"
