#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A whole site on a machine with a real NVIDIA GPU: coordinator, nodes and container engine of this tree, and trainings
# with PyTorch on the card as guests, which their owner takes back. Leaves one result as JSON and as text
# (tests/gpu/site_check.py says what is looked at). Root. docs/gpu-check.md has what was seen.
#
#   scripts/gpu-site.sh [--out NAME] [--rounds N] [--from ROOT]
#                                    on Debian 12 with what scripts/install-deps.sh installs, and built programs
#                                    (RN_BUILD, else build/release or build/ci). --from: another root folder whose
#                                    python3 and PyTorch are used
#   scripts/gpu-site.sh --pack FOLDER
#                                    Debian 12 with all of that as FOLDER/site.tar.xz.NN, and this script, for a machine
#                                    that has PyTorch and a driver and none of ours
#   FOLDER/gpu-site.sh --enter [--out NAME] [--rounds N]
#                                    there: the pieces beside it are unpacked to /rn-gpu-site, which becomes the root of
#                                    this one program (a mount namespace of its own), and is left there
#
# Exit code: 0 all good; 1 something is not (the result says what); 2 usage; 3 no GPU here, nothing done.
set -euo pipefail
here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
root=$(dirname "$here")
place=/rn-gpu-site
piece=44M # what can be carried at a time may be bounded
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/nvidia/bin

die() { echo "gpu-site: $1" >&2; [[ -z ${2:-} ]] || echo "  next: $2" >&2; exit "${3:-1}"; }

programs=(reclaim reclaim-agent reclaim-coordinator reclaim-init reclaim-kill reclaim-scrub reclaim-warden)

build_folder() {
  local folder
  for folder in "${RN_BUILD:-}" "$root/build/release" "$root/build/ci"; do
    [[ -z $folder || ! -x $folder/apps/reclaim-scrub/reclaim-scrub ]] || { echo "$folder"; return; }
  done
  die "no programs are built" "cmake --preset release && cmake --build build/release --target ${programs[*]}"
}

# What a guest has for a machine: the programs and libraries of ROOT, and Python's own. PyTorch comes as a data set.
make_image() { # ROOT FILE
  local from=$1 file=$2 folder
  folder=$(mktemp -d)
  mkdir -p "$folder"/{dev,proc,sys,run,tmp,etc,usr/bin,usr/lib} && chmod 1777 "$folder/tmp"
  (cd "$from" && cp -a usr/bin/python3* usr/bin/{bash,sh,dash,env,cat,ls,sleep,id,uname,true} "$folder/usr/bin/")
  (cd "$from" && find usr/lib/x86_64-linux-gnu -maxdepth 1 -name '*.so*' -size -30M -print0 |
    tar --null -T - -cf - | tar -C "$folder" -xf -)
  cp -a "$from"/usr/lib/python3* "$folder/usr/lib/"
  cp -a "$from/usr/lib64" "$folder/usr/" 2>/dev/null || mkdir "$folder/usr/lib64"
  for name in bin lib lib64; do ln -s "usr/$name" "$folder/$name"; done
  printf '%s\n' 'root:x:0:0:root:/root:/bin/sh' 'guest:x:10001:10001:guest:/tmp:/bin/sh' >"$folder/etc/passwd"
  printf '%s\n' 'root:x:0:' 'guest:x:10001:' >"$folder/etc/group"
  tar --numeric-owner --owner=0 --group=0 -C "$folder" -cf "$file" .
  rm -rf --one-file-system "$folder"
}

# Where the Python of ROOT finds PyTorch: "FOLDER PACKAGES", of which FOLDER is what has to be lent with it.
torch_of() { # ROOT
  local python packages
  for python in /opt/torch/.venv/bin/python3 /usr/bin/python3; do
    packages=$(chroot "$1" "$python" -c 'import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))' \
      2>/dev/null) || continue
    echo "$python $packages"
    return
  done
  die "no Python of $1 has PyTorch" "install it there, or name another root with --from"
}

run() { # FROM OUT ROUNDS
  local from=$1 build work python packages said
  command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q GPU ||
    die "no NVIDIA GPU here: nvidia-smi shows none. Nothing was done" "run it where there is one (--pack)" 3
  build=$(build_folder) || exit
  said=$(torch_of "$from") || exit
  read -r python packages <<<"$said"
  work=$(mktemp -d)
  trap 'rm -rf --one-file-system "$work"' EXIT
  make_image "$from" "$work/machine.tar"
  mkdir -p "$work/torch"
  mount --bind -o ro "${from%/}$packages" "$work/torch"
  # shellcheck disable=SC2064
  trap "umount '$work/torch'; rm -rf --one-file-system '$work'" EXIT
  RN_BUILD=$build python3 -B "$root/tests/gpu/site_check.py" --image "$work/machine.tar" --torch "$work/torch" \
    --packages . --scrub "$build/apps/reclaim-scrub/reclaim-scrub" --owner-python "chroot $from $python" \
    --out "$2" --rounds "$3"
}

pack() { # FOLDER
  local out=$1 build name
  build=$(build_folder) || exit
  # shellcheck source=lib/image.sh
  source "$here/lib/image.sh"
  work=$(mktemp -d) # not local: the trap comes after this function's end
  trap 'rm -rf --one-file-system "$work"' EXIT
  chmod 755 "$work"
  image_sources | mmdebstrap --quiet --variant=minbase --mode=root --include="docker.io,e2fsprogs,iproute2,jq,kmod,\
nftables,procps,python3,util-linux,libarchive13,libbpf1,libcurl4,libfmt9,libspdlog1.10,libsqlite3-0,libssl3,libxxhash0,\
libyaml-cpp0.7,libzstd1" bookworm "$work/root" -
  (cd "$work/root" && rm -rf var/cache/apt/* var/lib/apt/lists/* usr/share/{doc,man,locale,info} dev/* \
    usr/bin/docker usr/lib/x86_64-linux-gnu/perl* usr/share/perl*)
  mkdir -p "$work/root/opt/reclaimnet/build" "$work/root/usr/local/nvidia" "$work/root/old"
  for name in "${programs[@]}"; do
    install -D -s -m 755 "$build/apps/$name/$name" "$work/root/opt/reclaimnet/build/ci/apps/$name/$name"
  done
  name=apps/reclaim-warden/whole/reclaim-warden
  install -D -s -m 755 "$build/$name" "$work/root/opt/reclaimnet/build/ci/$name"
  mkdir -p "$work/root/opt/reclaimnet/tests/system"
  cp -r "$root/scripts" "$work/root/opt/reclaimnet/"
  cp -r "$root/tests/gpu" "$work/root/opt/reclaimnet/tests/"
  cp -r "$root/tests/system/lib" "$work/root/opt/reclaimnet/tests/system/"
  git -C "$root" describe --always --dirty --abbrev=10 >"$work/root/opt/reclaimnet/commit" 2>/dev/null || true
  mkdir -p "$out"
  rm -f "$out"/site.tar.xz.*
  tar --numeric-owner -C "$work/root" -cf - . | xz -T2 -2 | split -d -b "$piece" - "$out/site.tar.xz."
  cp "${BASH_SOURCE[0]}" "$out/gpu-site.sh"
  ls -l "$out"
}

# On the machine with the GPU. The old root is at /old then; the driver's own folder stays where it was.
enter() { # OUT ROUNDS
  local out
  out=$(readlink -f "$(dirname "$1")")/$(basename "$1")
  mkdir -p "$place"
  [[ -e $place/etc/debian_version ]] || cat "$here"/site.tar.xz.* | tar -C "$place" -xJf -
  RN_OUT=$out RN_ROUNDS=$2 RN_PLACE=$place exec unshare --mount --propagation private bash -euc '
    mount --bind "$RN_PLACE" "$RN_PLACE"
    cd "$RN_PLACE"
    for name in proc sys dev; do mount --rbind "/$name" "$name"; done
    mount -t tmpfs none run
    [[ ! -d /usr/local/nvidia ]] || mount --rbind /usr/local/nvidia usr/local/nvidia
    mount --make-rprivate /
    pivot_root . old
    cd /
    printf "%s\n" /usr/local/nvidia/lib64 >/etc/ld.so.conf.d/nvidia.conf
    ldconfig
    exec /opt/reclaimnet/scripts/gpu-site.sh --from /old --out "/old$RN_OUT" --rounds "$RN_ROUNDS"'
}

out=gpu-site rounds=3 from=/ what=run
while (($# > 0)); do
  case $1 in
    -h | --help) sed -n '3,/^set /{/^set /!s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    --out | --rounds | --from)
      [[ -n ${2:-} ]] || die "$1 has no value" "scripts/gpu-site.sh --help" 2
      declare "${1#--}=$2"
      shift ;;
    --pack)
      [[ -n ${2:-} ]] || die "--pack needs a folder" "scripts/gpu-site.sh --help" 2
      pack "$2"
      exit ;;
    --enter) what=enter ;;
    *) die "'$1' is not understood" "scripts/gpu-site.sh --help" 2 ;;
  esac
  shift
done
[[ $rounds =~ ^[1-9][0-9]?$ ]] || die "--rounds is 1 to 99" "scripts/gpu-site.sh --help" 2
[[ $(id -u) == 0 ]] || die "must be root" "sudo scripts/gpu-site.sh" 2
if [[ $what == enter ]]; then enter "$out" "$rounds"; else run "$from" "$out" "$rounds"; fi
