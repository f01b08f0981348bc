#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a command in a clone of this tree's last commit on a bare Debian 12: a virtual machine with Debian's own kernel,
# systemd, pure cgroup v2, two processors and nothing installed but git. What the machine of most owners looks like, and
# what a container of a build service is not. Root; fetches Debian's packages, nothing else. Without virtualization the
# machine is emulated: ten to twenty times slower.
#
#   tests/vm/debian12.sh [--from NAME] [--keep NAME] [--minutes N] [--bring PATH]… [--packages 'NAME…'] COMMAND…
#
#   --packages 'NAME…'  has these installed before the machine boots, which is quicker than by the machine
#   --from NAME    begins with the disk that a run before kept as NAME, not with a bare one
#   --keep NAME    keeps the disk as it is after the command
#   --minutes N    ends the machine after N minutes (60)
#   --bring PATH   a file or folder of this tree that is not in git, such as build/ci/apps; repeatable
#
# Prints what the command prints; the exit status is the command's, 124 when time was over. Disks lie in
# RN_VM_FOLDER, else in reclaimnet/vm of XDG_CACHE_HOME (~/.cache). The machine reaches Debian's mirror through
# user-mode networking; nothing reaches it.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=../../scripts/lib/image.sh
source "$top/scripts/lib/image.sh" # image_sources: Debian's packages as this machine has them
folder=${RN_VM_FOLDER:-$image_cache/vm}
from=bare keep='' minutes=60 bring=() packages=()
usage() { sed -n '3,/^set /{/^set /!s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; }
while (($# > 0)); do
  case $1 in
    --from) from=$2 ;;
    --keep) keep=$2 ;;
    --minutes) minutes=$2 ;;
    --packages)
      read -ra packages <<<"$2"
      from=with-$(sha256sum <<<"$2" | head -c 8)
      ;;
    --bring) bring+=("$2") ;;
    -h | --help) usage; exit 0 ;;
    -*) usage >&2; exit 2 ;;
    *) break ;;
  esac
  shift 2
done
(($# > 0)) || { usage >&2; exit 2; }
accelerator=(-accel "tcg,thread=multi" -cpu max)
if [[ -w /dev/kvm ]] && grep -qE '^flags.* (vmx|svm)( |$)' /proc/cpuinfo; then accelerator=(-accel kvm -cpu host); fi
for tool in qemu-system-x86_64 qemu-img mmdebstrap mke2fs; do
  command -v "$tool" >/dev/null && continue
  apt-get install -y --no-install-recommends qemu-system-x86 qemu-utils mmdebstrap e2fsprogs >/dev/null
  break
done

mkdir -p "$folder"
scratch=$(mktemp -d "$folder/run.XXXXXX")
trap 'rm -rf --one-file-system "$scratch"' EXIT
trap 'exit 130' INT TERM

# What the machine does after its boot: the job's archive is its second disk, and its second serial line says all.
machine_job() {
  cat <<'JOB'
#!/bin/bash
stty -F /dev/ttyS1 raw
exec >/dev/ttyS1 2>&1 </dev/null
export HOME=/root LC_ALL=C.UTF-8
rm -rf /root/job
mkdir /root/job && tar -xf /dev/vdb -C /root/job && bash /root/job/run
echo "debian12: exit $?"
sync
systemctl --no-block poweroff
JOB
}

make_disk() { # NAME PACKAGE…
  local root=$scratch/root include=linux-image-amd64,systemd-sysv,udev,dbus,iproute2,git,ca-certificates name=$1
  shift
  echo "debian12: making the disk $name" >&2
  (($# == 0)) || include+=$(printf ',%s' "$@")
  image_sources | mmdebstrap --quiet --variant=minbase --include="$include" bookworm "$root" -
  echo debian12 >"$root/etc/hostname"
  printf '127.0.0.1 localhost\n127.0.1.1 debian12\n::1 localhost\n' >"$root/etc/hosts"
  echo '/dev/vda / ext4 rw 0 1' >"$root/etc/fstab"
  rm -f "$root/etc/resolv.conf"
  echo 'nameserver 10.0.2.3' >"$root/etc/resolv.conf"
  printf '[Match]\nName=en* eth*\n[Network]\nDHCP=ipv4\n' >"$root/etc/systemd/network/10-wired.network"
  machine_job >"$root/usr/local/sbin/machine-job"
  chmod 755 "$root/usr/local/sbin/machine-job"
  printf '%s\n' '[Unit]' Wants=network-online.target 'After=network-online.target multi-user.target' \
    '[Service]' Type=oneshot ExecStart=/usr/local/sbin/machine-job TimeoutStartSec=infinity \
    '[Install]' WantedBy=default.target >"$root/etc/systemd/system/machine-job.service"
  systemctl --quiet --root="$root" enable systemd-networkd systemd-networkd-wait-online machine-job
  cp "$root"/boot/vmlinuz-* "$folder/$name.vmlinuz"
  cp "$root"/boot/initrd.img-* "$folder/$name.initrd"
  truncate -s 48G "$scratch/disk.raw"
  mke2fs -q -t ext4 -d "$root" "$scratch/disk.raw"
  qemu-img convert -O qcow2 "$scratch/disk.raw" "$scratch/made.qcow2"
  rm -rf --one-file-system "$root" "$scratch/disk.raw"
  mv "$scratch/made.qcow2" "$folder/$name.qcow2"
}

[[ $from != bare && ${#packages[@]} == 0 || -e $folder/$from.qcow2 ]] || make_disk "$from" "${packages[@]}"
[[ -e $folder/$from.qcow2 ]] ||
  { echo "debian12: no disk $from in $folder; next: --keep $from makes one" >&2; exit 2; }

git clone --quiet "$top" "$scratch/job/reclaimnet"
for path in "${bring[@]}"; do (cd "$top" && cp -a --parents "$path" "$scratch/job/reclaimnet/"); done
{
  echo 'cd /root/job/reclaimnet'
  printf '%q ' "$@"
  echo
} >"$scratch/job/run"
tar -C "$scratch/job" -cf "$scratch/job.tar" .
truncate -s %1M "$scratch/job.tar"
qemu-img create -q -f qcow2 -F qcow2 -b "$folder/$from.qcow2" "$scratch/disk.qcow2"

said=$scratch/said
: >"$said"
tail -n +1 -f --pid=$$ "$said" > >(stdbuf -o0 tr -d '\r') &
reader=$!
status=0
timeout --signal=KILL "$((minutes * 60))" qemu-system-x86_64 "${accelerator[@]}" -smp 2 -m "${RN_VM_MIB:-8192}" \
  -kernel "$folder/$from.vmlinuz" -initrd "$folder/$from.initrd" \
  -append "root=/dev/vda rw console=ttyS0 net.ifnames=0 edd=off" \
  -drive "file=$scratch/disk.qcow2,if=virtio,cache=unsafe" -drive "file=$scratch/job.tar,if=virtio,format=raw" \
  -nic user,model=virtio-net-pci -display none -monitor none -no-reboot \
  -serial "file:$scratch/console" -serial "file:$said" || status=$?
sleep 1 # for what was said last
kill "$reader" 2>/dev/null || true
if ! grep -qa '^debian12: exit ' "$said"; then
  echo "debian12: the machine ended without an answer (qemu: $status); the end of its console:" >&2
  tail -n 30 "$scratch/console" >&2
  ((status != 137)) || exit 124
  exit 1
fi
# An overlay holds what is other than in the disk that it began with, which has to stay beside it.
if [[ -n $keep ]]; then
  mv "$scratch/disk.qcow2" "$folder/$keep.qcow2"
  cp "$folder/$from.vmlinuz" "$folder/$keep.vmlinuz"
  cp "$folder/$from.initrd" "$folder/$keep.initrd"
fi
exit "$(grep -a '^debian12: exit ' "$said" | tail -n 1 | tr -dc '0-9 ' | awk '{print $NF}')"
