# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0

# image_threads N: the variables by which a job that asked for N processors is told how many threads to start
# (src/agent/core_start.cc; system.job compares the two).
image_threads() {
  printf "%s=$1 " OMP_NUM_THREADS OPENBLAS_NUM_THREADS MKL_NUM_THREADS BLIS_NUM_THREADS NUMEXPR_NUM_THREADS \
    NUMBA_NUM_THREADS TF_NUM_INTRAOP_THREADS TF_NUM_INTEROP_THREADS RAYON_NUM_THREADS GOMAXPROCS PYTHON_CPU_COUNT
}

# image_run ROOT COMMAND…: runs COMMAND in the unpacked image ROOT as uid 10001 with a read-only root, a writable /tmp
# and no network; with IMAGE_LOOPBACK=1 its loopback is up, as a guest's is. IMAGE_WORK=FOLDER is mounted on /workspace,
# writable, and is where it starts. IMAGE_CPUS=N (default 1) starts as many threads as a job that asked for N
# processors: sums come out different in their last bits with another number. The mount namespace is private and the
# child dies with its parent: nothing is left behind however it ends.
image_run() {
  local root=$1 threads
  shift
  threads=$(image_threads "${IMAGE_CPUS:-1}")
  unshare --mount --net --pid --fork --kill-child -- bash -euc '
    root=$1
    work=$2
    threads=$3
    [[ -z $4 ]] || ip link set lo up
    shift 4
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
    # Not exec: who changes his uid loses the order to die with his parent, and with this shell the namespace dies.
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LANG=C.UTF-8 $threads \
      chroot --userspec=10001:10001 "$root" /bin/sh -c "cd $directory && exec \"\$@\"" sh "$@"
    exit "$?"
  ' image_run "$root" "${IMAGE_WORK:-}" "$threads" "${IMAGE_LOOPBACK:-}" "$@"
}
