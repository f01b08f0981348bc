#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Python image for tests whose guests need the standard library and nothing else: a twelfth of the base image.
# Prints the archive's path.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=lib/image.sh
source "$here/lib/image.sh"

include=(base-files bash dash coreutils findutils grep sed libc-bin mount procps util-linux python3)
trash=('usr/share/doc/*' 'usr/share/man' 'usr/share/info' 'usr/share/locale' 'usr/share/lintian' 'var/cache/*'
  'var/lib/apt' 'var/log/*' 'etc/apt' 'dev/*')

image_make() {
  local root=$1 pattern
  image_sources | mmdebstrap --quiet --variant=extract --mode=root --include="$(IFS=,; echo "${include[*]}")" \
    --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr bookworm "$root" -
  for pattern in "${trash[@]}"; do
    # shellcheck disable=SC2086 # the pattern is to be expanded
    (cd "$root" && rm -rf $pattern)
  done
  ln -s python3 "$root/usr/bin/python"
  image_accounts "$root"
  chroot "$root" ldconfig
}

image_check() {
  [[ $(image_run "$1" python -c 'import ctypes, os, socket, ssl; print(os.getuid())') == 10001 ]]
}

image_build python "${BASH_SOURCE[0]}"
