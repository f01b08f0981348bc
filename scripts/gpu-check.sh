#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What ReclaimNet does on a real NVIDIA GPU, checked and measured; leaves one result as JSON and as text.
# Needs PyTorch with CUDA, no network. docs/gpu-check.md says what it does and what each figure means.
#
#   scripts/gpu-check.sh [--out NAME] [--rounds N] [--ahead N] [--image IMAGE] [--confine docker|runc|plain]
#                        writes NAME.json and NAME.txt (default: gpu-check-HOST-DATE here)
#   scripts/gpu-check.sh --pack FILE.tgz     everything it needs but Python and PyTorch, with its libraries, to be
#                                            unpacked on a machine where nothing of ours is built
#   scripts/gpu-check.sh --device cpu --nvml LIBRARY    without a GPU, on a library that answers as NVML would (tests)
#
# The program tests/gpu/gpu_probe comes from RN_BUILD, else build/dev or build/ci, or lies beside this script unpacked.
# Exit code: 0 all good; 1 something is not as it must be (the result says what); 2 usage; 3 no GPU here, nothing done.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
checks=$root/tests/gpu
python=${RN_PYTHON:-python3}

die() { echo "gpu-check: $1" >&2; [[ -z ${2:-} ]] || echo "  next: $2" >&2; exit "${3:-1}"; }

build_folder() {
  local folder
  for folder in "$root/build/dev" "$root/build/ci"; do
    [[ -n ${RN_BUILD:-} || ! -x $folder/tests/gpu/gpu_probe ]] || { echo "$folder"; return; }
  done
  echo "${RN_BUILD:-$root/build/ci}"
}

no_probe() { # BUILD
  local preset=
  [[ -f $1/build.ninja || -n ${RN_BUILD:-} ]] || preset="cmake --preset ci && "
  die "there is no $1/tests/gpu/gpu_probe" "${preset}cmake --build $1 --target gpu_probe${2:-}"
}

# The built probe, or the unpacked one by its own loader: then the machine's libraries do not matter.
probe() {
  local build
  build=$(build_folder)
  if [[ -x $checks/lib/gpu_probe ]]; then
    echo "$checks/lib/ld.so --library-path $checks/lib $checks/lib/gpu_probe"
  elif [[ -x $build/tests/gpu/gpu_probe ]]; then
    echo "$build/tests/gpu/gpu_probe"
  else
    no_probe "$build" ", or unpack what --pack made"
  fi
}

# Our own program that overwrites a GPU's memory, where it is built; without it that row is not there.
scrub() {
  local program
  [[ " $* " != *" --device cpu "* ]] || return 0
  for program in "$checks/lib/reclaim-scrub" "$(build_folder)/apps/reclaim-scrub/reclaim-scrub"; do
    [[ ! -x $program ]] || { echo "$program"; return; }
  done
}

pack() {
  local out=$1 build lib
  build=$(build_folder)
  [[ -n $out ]] || die "--pack needs the name of a file" "scripts/gpu-check.sh --pack FILE.tgz" 2
  [[ -x $build/tests/gpu/gpu_probe ]] || no_probe "$build"
  folder=$(mktemp -d) || exit 1 # not local: the trap comes after this function's end
  trap 'rm -rf --one-file-system "$folder"' EXIT
  mkdir -p "$folder/gpu-check/scripts" "$folder/gpu-check/tests/gpu/lib"
  cp "$here/gpu-check.sh" "$folder/gpu-check/scripts/"
  cp "$checks"/{gpu_check,gpu_confinement,gpu_guest,record_nvml}.py "$folder/gpu-check/tests/gpu/"
  lib=$folder/gpu-check/tests/gpu/lib
  cp "$build/tests/gpu/gpu_probe" "$lib/" && strip "$lib/gpu_probe" 2>/dev/null
  cp "$build/apps/reclaim-scrub/reclaim-scrub" "$lib/" 2>/dev/null # runs with that machine's own libraries
  ldd "$build/tests/gpu/gpu_probe" | awk '$3 ~ /^\// { print $3 }' | xargs -I{} cp -L {} "$lib/" &&
    cp -L "$(ldd "$build/tests/gpu/gpu_probe" | awk '/ld-linux/ { print $1 }')" "$lib/ld.so" ||
    die "no library could be packed"
  git -C "$root" describe --always --dirty --abbrev=10 >"$folder/gpu-check/commit" 2>/dev/null
  tar -C "$folder" -czf "$out" gpu-check && echo "$out: unpack it, then gpu-check/scripts/gpu-check.sh"
}

case ${1:-} in
  -h | --help) sed -n '3,/^set /{/^set /!s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;;
  --pack) (($# < 3)) || die "--pack takes one file" "scripts/gpu-check.sh --pack FILE.tgz" 2; pack "${2:-}"; exit ;;
esac
# A flag that is wrong is wrong everywhere, GPU or none.
"$python" -B "$checks/gpu_check.py" --probe none --usage-only "$@" || exit
if [[ " $* " != *" --device cpu "* ]]; then
  # As our own reader finds it: by the loader.
  "$python" -c 'import ctypes; ctypes.CDLL("libnvidia-ml.so.1")' 2>/dev/null ||
    die "no NVIDIA GPU here: there is no libnvidia-ml.so.1 (no driver). Nothing was checked" \
      "run this on a machine with an NVIDIA GPU, its driver, and PyTorch with CUDA (--pack FILE.tgz: what to bring)" 3
  command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q GPU ||
    die "no NVIDIA GPU here: nvidia-smi shows none. Nothing was checked" \
      "look at \`nvidia-smi\`: after a driver's update the machine needs a reboot; in a container, give it the GPU" 3
  "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null ||
    die "there is a GPU, but $python has no PyTorch that sees it. Nothing was checked" \
      "install PyTorch with CUDA, or name the Python that has it: RN_PYTHON=/path/python3 scripts/gpu-check.sh" 3
fi
program=$(probe) || exit
exec "$python" -B "$checks/gpu_check.py" --probe "$program" --scrub "$(scrub "$@")" "$@"
