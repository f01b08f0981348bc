#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# PyTorch Lightning, Hugging Face's Trainer, accelerate, torchrun, Orbax and submitit themselves as guests of ours: each
# is told of a notice midway, has to save and leave by its own code, and to go on elsewhere. Checks those that are
# installed here; leaves one result as JSON and as text. No network. docs/gpu-check.md says what each check is.
#
#   scripts/frameworks-check.sh [--out NAME] [--only CHECK...] [--jobs N] [--root IMAGE]
#                        writes NAME.json and NAME.txt (default: frameworks-check-HOST-DATE here). Root; six minutes at
#                        most. --root: an unpacked image whose Python and frameworks are used
#   scripts/frameworks-check.sh --pack FILE.tgz     everything it needs but Python and the frameworks, to be unpacked on
#                                                   a machine where nothing of ours is built
#
# The programs reclaim-init and catchers come from RN_BUILD, else build/dev or build/ci, or lie beside this script
# unpacked; without catchers the same rule of whom to signal is used in Python. RN_PYTHON: the guests' Python.
# Exit code: 0 all that is there is good; 1 something is not (the result says what); 2 usage; 3 nothing was checked.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
checks=$root/tests/gpu
python=${RN_PYTHON:-python3}
init=apps/reclaim-init/reclaim-init

die() { echo "frameworks-check: $1" >&2; [[ -z ${2:-} ]] || echo "  next: $2" >&2; exit "${3:-1}"; }

build_folder() {
  local folder
  for folder in "$root/build/dev" "$root/build/ci"; do
    [[ -n ${RN_BUILD:-} || ! -x $folder/$init ]] || { echo "$folder"; return; }
  done
  echo "${RN_BUILD:-$root/build/ci}"
}

no_init() { # BUILD
  die "there is no $1/$init" "cmake --build $1 --target reclaim-init catchers${2:-}"
}

pack() {
  local out=$1 build lib
  build=$(build_folder)
  [[ -n $out ]] || die "--pack needs the name of a file" "scripts/frameworks-check.sh --pack FILE.tgz" 2
  [[ -x $build/$init ]] || no_init "$build"
  folder=$(mktemp -d) || exit 1 # not local: the trap comes after this function's end
  trap 'rm -rf --one-file-system "$folder"' EXIT
  lib=$folder/frameworks-check/tests/gpu/lib
  mkdir -p "$folder/frameworks-check/scripts" "$lib"
  cp "$here/frameworks-check.sh" "$folder/frameworks-check/scripts/" &&
    cp "$checks"/{frameworks_check,framework_guests,guest_box}.py "$folder/frameworks-check/tests/gpu/" &&
    cp -r "$checks/frameworks" "$folder/frameworks-check/tests/gpu/" &&
    cp "$build/$init" "$lib/" || die "not all could be packed"
  if [[ -x $build/tests/system/catchers ]]; then
    cp "$build/tests/system/catchers" "$lib/" && strip "$lib/catchers" 2>/dev/null
    ldd "$build/tests/system/catchers" | awk '$3 ~ /^\// { print $3 }' | xargs -I{} cp -L {} "$lib/" &&
      cp -L "$(ldd "$build/tests/system/catchers" | awk '/ld-linux/ { print $1 }')" "$lib/ld.so" ||
      die "no library could be packed"
  fi
  git -C "$root" describe --always --dirty --abbrev=10 >"$folder/frameworks-check/commit" 2>/dev/null
  tar -C "$folder" -czf "$out" frameworks-check || die "$out cannot be written"
  echo "$out: unpack it, then frameworks-check/scripts/frameworks-check.sh"
}

case ${1:-} in
  -h | --help) sed -n '3,/^set /{/^set /!s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;;
  --pack) (($# < 3)) || die "--pack takes one file" "scripts/frameworks-check.sh --pack FILE.tgz" 2
    pack "${2:-}"; exit ;;
esac
build=$(build_folder)
catchers=()
if [[ -x $checks/lib/reclaim-init ]]; then # unpacked: by its own loader the machine's libraries do not matter
  program=$checks/lib/reclaim-init
  [[ ! -x $checks/lib/catchers ]] ||
    catchers=(--catchers "$checks/lib/ld.so --library-path $checks/lib $checks/lib/catchers")
else
  program=$build/$init
  [[ -x $program ]] || no_init "$build" ", or unpack what --pack made"
  [[ ! -x $build/tests/system/catchers ]] || catchers=(--catchers "$build/tests/system/catchers")
fi
[[ ${RN_CATCHERS:-} != none ]] || catchers=()
exec "$python" -B "$checks/frameworks_check.py" --init "$program" "${catchers[@]}" "$@"
