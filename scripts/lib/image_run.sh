# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0

# image_run ROOT COMMAND…: runs COMMAND in the unpacked image ROOT as uid 10001 with a read-only root, a writable /tmp
# and no network. IMAGE_WORK=FOLDER is mounted on /workspace, writable, and is where it starts. The mount namespace is
# private and the child dies with its parent: nothing is left behind however it ends.
image_run() {
  local root=$1
  shift
  unshare --mount --net --pid --fork --kill-child -- bash -euc '
    root=$1
    work=$2
    shift 2
    mount --bind "$root" "$root"
    mount -o remount,ro,bind "$root"
    mount -t proc proc "$root/proc"
    mount -t tmpfs tmpfs "$root/tmp"
    mount -t tmpfs tmpfs "$root/dev"
    mknod -m 666 "$root/dev/null" c 1 3
    mknod -m 666 "$root/dev/urandom" c 1 9
    mkdir -m 1777 "$root/dev/shm"
    directory=/
    if [[ -n $work ]]; then
      mount --bind "$work" "$root/workspace"
      directory=/workspace
    fi
    exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LANG=C.UTF-8 \
      chroot --userspec=10001:10001 "$root" /bin/sh -c "cd $directory && exec \"\$@\"" sh "$@"
  ' image_run "$root" "${IMAGE_WORK:-}" "$@"
}
