#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The tiny image for fast tests: a static busybox, its applets, the user `guest`. Prints the archive's path.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=lib/image.sh
source "$here/lib/image.sh"

image_make() {
  local root=$1 applet
  image_sources | mmdebstrap --quiet --variant=extract --mode=root --include=busybox-static bookworm "$root.deb" -
  mkdir -p "$root"/{bin,etc,root}
  cp "$root.deb/bin/busybox" "$root/bin/busybox"
  for applet in $("$root/bin/busybox" --list); do
    [[ $applet == busybox ]] || ln "$root/bin/busybox" "$root/bin/$applet"
  done
  image_accounts "$root"
}

image_check() {
  [[ $(image_run "$1" /bin/sh -c 'id -u; echo works | grep -c works' | tr '\n' ' ') == '10001 1 ' ]]
}

image_build tiny "${BASH_SOURCE[0]}"
