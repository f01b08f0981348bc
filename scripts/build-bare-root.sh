#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A bare Debian 12 as a folder's archive, for the test of the packages: Debian's smallest, with what the packages ask
# for and nothing of ours. Docker's engine in it is an empty package of that name, for it is 200 MiB, and is not started
# there; with --engine it is Debian's own, for bench/first_job.py. Prints the archive's path. Needs root; half a minute
# when not cached.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=lib/image.sh
source "$here/lib/image.sh"

include=(adduser apparmor e2fsprogs iproute2 mount nftables systemd-sysv tzdata
  libarchive13 libbpf1 libcurl4 libfmt9 libspdlog1.10 libsqlite3-0 libssl3 libxxhash0 libyaml-cpp0.7 libzstd1)

name=bare empty=(docker.io)
case ${1:-} in
  '') ;;
  --engine) name=engine-root empty=() ;;
  *) echo "build-bare-root: '$1' is not understood; next: scripts/build-bare-root.sh [--engine]" >&2; exit 2 ;;
esac

image_make() {
  local root=$1 work=$2
  ((${#empty[@]} == 0)) || image_dummies "$work/dummies" "${empty[@]}"
  { image_sources; ((${#empty[@]} == 0)) || echo "deb [trusted=yes] copy:$work/dummies ./"; } |
    mmdebstrap --quiet --variant=minbase --mode=root \
      --include="docker.io,$(IFS=,; echo "${include[*]}")" bookworm "$root" -
  rm -rf "${root:?}"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* "${root:?}"/dev/*
  # Its own repository is gone, and the mirror is out of reach.
  : >"$root/etc/apt/sources.list"
  rm -f "$root"/etc/apt/sources.list.d/*
}

image_check() { [[ $(chroot "$1" dpkg-query -W -f='${db:Status-Status}' docker.io) == installed ]]; }

image_build "$name" "${BASH_SOURCE[0]}"
