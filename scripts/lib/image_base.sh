# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# What the images with PyTorch and scikit-learn have in common: build-image.sh, build-notebook-image.sh. For image.sh.

include=(base-files bash dash coreutils diffutils findutils grep gzip sed tar mawk libc-bin mount procps util-linux
  python3 python3-torch python3-sklearn libopenblas0-pthread)
# Dependencies of packages, not of anything that runs: a C++ translator, a test library, graphics drivers, icons.
dummies=(python3-pythran python3-sympy libllvm15 libgl1-mesa-dri python3-hypothesis iso-codes xkb-data shared-mime-info)
# Found by looking for what is large and never opened while training. NOTE: OpenCV, Qt, ffmpeg and GDAL must stay:
# they are mapped when torch is imported.
trash=(
  'usr/share/doc/*' 'usr/share/man' 'usr/share/info' 'usr/share/locale' 'usr/share/lintian' 'usr/share/bug'
  'usr/share/proj/*' 'usr/share/gdcm-3.0' 'usr/share/gdal' 'usr/share/fonts' 'usr/share/X11' 'usr/share/libwacom'
  'usr/share/libthai' 'usr/share/tesseract-ocr' 'usr/share/common-licenses' 'usr/share/gcc'
  'usr/lib/python3/dist-packages/torch/bin/*[tT]est*' 'usr/lib/python3/dist-packages/torch/bin/tutorial*'
  'usr/lib/libtorch-test'
  'usr/lib/x86_64-linux-gnu/mfx' 'usr/lib/x86_64-linux-gnu/qt5/plugins' 'usr/lib/x86_64-linux-gnu/libgphoto2'
  'usr/lib/x86_64-linux-gnu/gstreamer-1.0' 'usr/lib/ogdi' 'usr/lib/udev' 'usr/lib/systemd' 'usr/lib/valgrind'
  'var/cache/*' 'var/lib/apt' 'var/log/*' 'etc/apt' 'dev/*'
)

# Everything that a maintainer script would have done and that we need.
finish_root() {
  local root=$1 lib=$1/usr/lib/x86_64-linux-gnu
  local name
  for name in libblas.so.3 liblapack.so.3 libopenblas.so.0; do
    ln -sf "openblas-pthread/$name" "$lib/$name"
  done
  ln -s python3 "$root/usr/bin/python"
  ln -s mawk "$root/usr/bin/awk"
  image_accounts "$root"
  chroot "$root" ldconfig
  rm -f "$root/var/cache/ldconfig/aux-cache"
  # Byte code that is not compared with its source: the files never change. NOTE: compileall's own -j wants semaphores
  # in /dev/shm, which a chroot does not have. Some files are templates or for other versions: image_check looks.
  chroot "$root" python3 -m compileall -q --invalidation-mode unchecked-hash -x '/torch/' \
    /usr/lib/python3.11 /usr/lib/python3/dist-packages >/dev/null &
  chroot "$root" python3 -m compileall -q --invalidation-mode unchecked-hash /usr/lib/python3/dist-packages/torch \
    >/dev/null || true
  wait "$!" || true
}

# base_make ROOT WORK [PACKAGE…]: the base image, with further packages.
base_make() {
  local root=$1 work=$2 pattern
  shift 2
  image_dummies "$work/dummies" "${dummies[@]}"
  { image_sources; echo "deb [trusted=yes] copy:$work/dummies ./"; } |
    mmdebstrap --quiet --variant=extract --mode=root --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr \
      --include="$(IFS=,; echo "${include[*]}${*:+,$*}")" bookworm "$root" -
  for pattern in "${trash[@]}"; do
    # shellcheck disable=SC2086 # the pattern is to be expanded
    (cd "$root" && rm -rf $pattern)
  done
  find "$root/usr/lib/python3/dist-packages" -depth -type d \( -name tests -o -name test \) \
    \( -path '*/numpy/*' -o -path '*/scipy/*' -o -path '*/sklearn/*' -o -path '*/joblib/*' \) -exec rm -rf {} +
  finish_root "$root"
}
