#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Proves, without ReclaimNet, that the guests can be interrupted: a training that is killed (SIGKILL) at random moments
# and resumed each time from its newest readable checkpoint ends with the same loss curve and the same weights, bit for
# bit, as an undisturbed one. Between two kills it keeps a copy of the last complete checkpoint, as a platform would:
# the guest that writes in place leaves a torn file when the kill falls into its save.
#
#   tests/guests/check_determinism.sh [--steps N] [--kills N] [--seed N]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../../scripts/lib/image_run.sh
source "$here/../../scripts/lib/image_run.sh"

steps=150 kills=4 seed=$(date +%s)
while (($# > 0)); do
  case $1 in
    --steps) steps=$2 ;;
    --kills) kills=$2 ;;
    --seed) seed=$2 ;;
    *) echo "check_determinism: unknown argument $1" >&2; exit 2 ;;
  esac
  shift 2
done
RANDOM=$seed
echo "check_determinism: seed $seed, $steps steps, $kills kills (repeat with --seed $seed)"

work=$(mktemp -d "${TMPDIR:-/tmp}/rn-determinism.XXXXXX")
child=
cleanup() {
  [[ -z $child ]] || kill -KILL "$child" 2>/dev/null || true
  rm -rf --one-file-system "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

image=$("$here/../../scripts/build-image.sh")
mkdir "$work/root"
tar -C "$work/root" -xf "$image"

prepare() { # FOLDER
  mkdir -p "$1"
  cp "$here"/*.py "$1/"
  chown -R 10001:10001 "$1"
}

# Starts the guest in the background; its pid is in `child`.
start() { # FOLDER GUEST
  IMAGE_WORK=$1 image_run "$work/root" python "train_$2.py" --steps "$steps" --save-every 10 >>"$1/output.txt" 2>&1 &
  child=$!
}

is_complete() { # FILE: a zip archive that can be read to its end
  python3 - "$1" <<'PYTHON'
import sys, zipfile
try:
    with zipfile.ZipFile(sys.argv[1]) as archive:
        sys.exit(0 if archive.testzip() is None else 1)
except (OSError, zipfile.BadZipFile):
    sys.exit(1)
PYTHON
}

last_step() { # FOLDER: of the newest line of the guest's own log
  { grep -a '^step=' "$1/steps.log" 2>/dev/null || true; } | tail -1 | sed 's/^step=\([0-9]*\).*/\1/'
}

# Lets the guest run for a random number of steps, then kills it. Fails when the guest ended by itself.
run_and_kill() { # FOLDER GUEST
  local from target deadline=$((SECONDS + 300))
  from=$(last_step "$1")
  target=$((${from:-0} + 5 + RANDOM % (steps / (kills + 1))))
  start "$1" "$2"
  while :; do
    from=$(last_step "$1")
    if ((${from:-0} >= target && ${from:-0} < steps)); then break; fi
    if ! kill -0 "$child" 2>/dev/null || ((SECONDS > deadline)); then
      wait "$child" || { cat "$1/output.txt"; return 1; }
      child=
      return 0
    fi
    sleep 0.0$((1 + RANDOM % 9))
  done
  kill -KILL "$child"
  wait "$child" 2>/dev/null || true
  child=
  if [[ -e $1/checkpoint.pt ]]; then
    if is_complete "$1/checkpoint.pt"; then
      cp "$1/checkpoint.pt" "$1/../kept.pt"
    elif [[ -e $1/../kept.pt ]]; then
      echo "  torn checkpoint: the one before is put back"
      cp "$1/../kept.pt" "$1/checkpoint.pt"
    else
      echo "  torn checkpoint, the first one: from the start again"
      rm -f "$1/checkpoint.pt"
    fi
  fi
  echo "  killed after step $(last_step "$1")"
}

failed=0
for guest in cnn transformer; do
  echo "$guest: undisturbed"
  prepare "$work/$guest/plain"
  start "$work/$guest/plain" "$guest"
  wait "$child" || { cat "$work/$guest/plain/output.txt"; exit 1; }
  child=
  echo "$guest: killed and resumed"
  folder=$work/$guest/killed
  prepare "$folder"
  for ((kill_number = 0; kill_number < kills; kill_number++)); do
    run_and_kill "$folder" "$guest"
  done
  start "$folder" "$guest"
  wait "$child" || { cat "$folder/output.txt"; exit 1; }
  child=
  starts=$(grep -ac '^begin ' "$folder/steps.log")
  resumed=$(grep -ac '^begin .*from=checkpoint' "$folder/steps.log" || true)
  verdict=identical
  /usr/bin/python3 "$here/compare_runs.py" "$work/$guest/plain" "$folder" || { verdict=DIFFERENT failed=1; }
  echo "$guest: $starts starts, $resumed from a checkpoint: $verdict"
  ((resumed > 0)) || { echo "$guest: never resumed: this run proves nothing, give it more steps"; failed=1; }
done
exit "$failed"
