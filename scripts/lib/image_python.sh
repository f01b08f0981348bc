# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# What the images with Python's standard library have in common: build-python-image.sh, and the small one of
# build-notebook-image.sh. For image.sh.

include=(base-files bash dash coreutils findutils grep sed libc-bin mount procps util-linux python3)
trash=('usr/share/doc/*' 'usr/share/man' 'usr/share/info' 'usr/share/locale' 'usr/share/lintian' 'var/cache/*'
  'var/lib/apt' 'var/log/*' 'etc/apt' 'dev/*')

# python_make ROOT [PACKAGE…]: the Python image, with further packages.
python_make() {
  local root=$1 pattern
  shift
  image_sources | mmdebstrap --quiet --variant=extract --mode=root \
    --include="$(IFS=,; echo "${include[*]}${*:+,$*}")" \
    --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr bookworm "$root" -
  for pattern in "${trash[@]}"; do
    # shellcheck disable=SC2086 # the pattern is to be expanded
    (cd "$root" && rm -rf $pattern)
  done
  ln -s python3 "$root/usr/bin/python"
  image_accounts "$root"
  chroot "$root" ldconfig
}
