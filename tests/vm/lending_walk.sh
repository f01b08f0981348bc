#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# docs/lending.md and docs/emergency.md, line by line, with systemd's units on pure cgroup v2: one machine is campus and
# laboratory. It changes the machine for good, so that it runs in tests/vm/debian12.sh and refuses any other. Programs
# and image come with it:
#
#   ninja -C build/ci reclaim reclaim-{coordinator,agent,warden,init}
#   cp "$(scripts/build-tiny-image.sh)" build/
#   packages=$(sed -n 's/^apt-get install --no-install-recommends//p' docs/lending.md | xargs)
#   tests/vm/debian12.sh --packages "$packages jq procps curl" --bring build/ci/apps --bring build/tiny… \
#     tests/vm/lending_walk.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
top=$PWD
[[ $(cat /etc/hostname) == debian12 && -e /usr/local/sbin/machine-job ]] ||
  { echo "lending_walk: this is no machine of tests/vm/debian12.sh; next: run it there" >&2; exit 2; }

step() { printf '\n--- %s\n' "$*"; }
fail() {
  echo "FAILED: $*"
  systemctl --no-pager --lines=40 status 'reclaim-*' || true
  dmesg | grep -i 'apparmor.*denied' | tail -n 20 || true
  ls -la /var/lib/reclaimnet /var/lib/reclaimnet/warden /var/lib/reclaimnet/warden/bin || true
  grep reclaim /proc/self/mountinfo || true
  journalctl --no-pager -n 60 -u reclaim-agent -u reclaim-warden -u reclaim-coordinator || true
  exit 1
}
trap 'fail "line $LINENO"' ERR
# until SECONDS COMMAND…
until_true() {
  local seconds=$1 end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < end)) || fail "not within $seconds s: $*"
    sleep 0.2
  done
}
state_of() { reclaim ps -a --json | jq -r --arg job "$1" '.jobs[]? // .[]? | select(.id == $job) | .state'; }
is_state() { [[ $(state_of "$1") == "$2" ]]; }
guests() { find /sys/fs/cgroup -path '*reclaim-lab-a*' -name cgroup.procs -exec cat {} +; }
is_clear() { [[ -z $(guests) ]]; }

# What an owner could find of us, or miss of theirs.
inventory() {
  echo "# links"; ip -o link | awk '{print $2}' | sort
  echo "# routes"; { ip route; ip -6 route; } | sed 's/expires [0-9]*sec//'
  echo "# rules"; nft list ruleset 2>/dev/null
  ls /proc/sys/fs/binfmt_misc >/dev/null # mounted by systemd when somebody looks
  echo "# mounts"; awk '{print $5}' /proc/self/mountinfo | grep -v '^/run/user\|/run/credentials\|/sys/kernel' | sort
  echo "# groups"; find /sys/fs/cgroup -type d -name '*reclaim*'
  echo "# sysctls"; sysctl -a 2>/dev/null | grep -E '^net\.ipv[46]\.(ip_forward|conf\.)|^kernel\.(core|unpriv)' | sort
  echo "# ports"; ss -Hltnu | awk '{print $1, $5}' | sort
  echo "# users"; cat /etc/passwd /etc/group
  echo "# programs"; bpftool prog list 2>/dev/null | grep -v cgroup_ | grep -c 'name rn' || true
  echo "# units"; systemctl list-unit-files --no-legend 'reclaim*' 'docker*' 'containerd*' || true
  echo "# files"; find /etc /usr/local /var/lib /run /srv -xdev \( -path /run/systemd -o -path /run/udev \
    -o -path /run/log -o -path /run/user -o -path /run/dbus -o -path /var/lib/systemd -o -path /var/lib/apt \
    -o -path /var/lib/dpkg \) -prune -o -print | sort
}

step "the libraries that docs/lending.md names; programs and image were built elsewhere"
sed -n 's/^apt-get install/apt-get -qq -y --no-download install/p' docs/lending.md >/root/install
[[ $(wc -l </root/install) == 2 ]]
bash -e /root/install >/dev/null
apt-get -qq -y --no-download install jq curl procps >/dev/null # of this walk; all were brought
tiny=$(echo "$top"/build/tiny*)
inventory >/root/before
for p in reclaim reclaim-coordinator reclaim-agent reclaim-warden reclaim-init reclaim-kill; do
  install -m 755 build/ci/apps/$p/$p /usr/local/bin/
done
install -D -m 755 build/ci/apps/reclaim-warden/whole/reclaim-warden /usr/local/lib/reclaimnet/reclaim-warden
uname -sr
stat -fc 'control groups: %T' /sys/fs/cgroup
systemd-analyze verify packaging/systemd/reclaim-coordinator.service || true

step "the coordinator, once"
useradd --system --shell /usr/sbin/nologin reclaim-coordinator
install -m 644 packaging/systemd/reclaim-coordinator.service /etc/systemd/system/
systemctl daemon-reload && systemctl enable --now reclaim-coordinator
until_true 60 test -s /var/lib/reclaimnet/coordinator/admin.token
reclaim login "https://$(hostname -f):7443" --token "$(cat /var/lib/reclaimnet/coordinator/admin.token)"
reclaim image add base "$tiny"
token=$(reclaim token create --lab lab-a)

step "a machine joins"
useradd --system --shell /usr/sbin/nologin reclaim-agent
install -d -m 755 /var/lib/reclaimnet /etc/reclaimnet
install -d -o reclaim-agent -g reclaim-agent -m 750 /var/lib/reclaimnet/agent
echo "WARDEN_FLAGS=\"--lab lab-a --agent-uid $(id -u reclaim-agent)\"" >/etc/reclaimnet/warden.env
setpriv --reuid reclaim-agent --regid reclaim-agent --clear-groups \
  reclaim-agent join "https://$(hostname -f):7443" --token "$token"
install -m 644 packaging/systemd/reclaim-{warden,agent}.service /etc/systemd/system/
systemctl daemon-reload && systemctl enable --now reclaim-warden reclaim-agent
until_true 180 bash -c "reclaim nodes --json | grep -q '\"lending\": *\"open\"'"
reclaim nodes
reclaim-agent doctor || echo "(doctor: exit $?)"
reclaim-agent status --why
systemctl --no-pager is-active reclaim-{coordinator,warden,agent}

step "a job, its output and its exit code"
mkdir -p /root/student && cd /root/student
cat >look.sh <<'GUEST'
echo "uid $(id -u), $(cat /proc/self/cgroup)"
grep -E 'CapEff|NoNewPrivs|Seccomp:' /proc/self/status
ls /sys/fs/cgroup 2>&1 | head -n 3
echo mine >result.txt
GUEST
bounded=(timeout "${RN_RUN_S:-400}")
"${bounded[@]}" reclaim run --stateless --cpus 0.5 --memory 64MB --disk 64MB --output result.txt -- sh look.sh
[[ $(cat result.txt) == mine ]]

step "a guest that takes more memory than it asked for dies alone"
status=0
"${bounded[@]}" reclaim run --stateless --cpus 0.5 --memory 32MB --disk 64MB -- sh -c 'tail /dev/zero' || status=$?
echo "exit status $status"
((status != 0))

# shellcheck disable=SC2016 # the guest's own
work='i=0; while [ $i -lt 3600 ]; do i=$((i+1)); echo step $i; sleep 1; done'
start_job() {
  job=$(reclaim run --detach --stateless --cpus 0.5 --memory 64MB --disk 64MB -- sh -c "$work")
  until_true 180 is_state "$job" running
  until_true 60 bash -c "reclaim logs $job | grep -q 'step 2'"
}

step "the daemons are restarted, killed, and the guest lives on"
start_job
before=$(guests | sort -n | head -n 1)
systemctl restart reclaim-warden
systemctl restart reclaim-agent
systemctl restart reclaim-coordinator
sleep 3
systemctl kill --signal=KILL --kill-who=main reclaim-warden reclaim-agent reclaim-coordinator
sleep 6
[[ $(guests | sort -n | head -n 1) == "$before" ]] || fail "the guest did not outlive its daemons"
systemctl --no-pager is-active reclaim-{coordinator,warden,agent}
until_true 180 is_state "$job" running

step "the owner takes the machine back this instant"
reclaim-agent reclaim --now
is_clear || fail "a guest is left: $(guests)"
reclaim-warden verify
reclaim-agent release
until_true 180 is_state "$job" running

step "kill by hand: warden stopped, engine frozen"
systemctl stop reclaim-warden
mapfile -t engine < <(pgrep -f '/run/reclaimnet|/var/lib/reclaimnet' | while read -r p; do
  grep -qaE '(dockerd|containerd)' "/proc/$p/cmdline" && echo "$p"; done)
echo "engine: ${engine[*]}"
((${#engine[@]} > 0))
kill -STOP "${engine[@]}"
reclaim-kill
is_clear || fail "a guest is left: $(guests)"
kill -CONT "${engine[@]}"
systemctl start reclaim-warden
until_true 60 reclaim-warden verify
sleep 3
is_clear || fail "a guest came back before the owner said so"
reclaim-agent release
until_true 180 is_state "$job" running

step "the line of docs/emergency.md for a root shell"
line=$(grep -m 1 '^for g in ' "$top/docs/emergency.md")
echo "$line"
systemctl stop reclaim-agent reclaim-warden
bash -c "$line"
sleep 0.2
is_clear || fail "a guest is left: $(guests)"
systemctl start reclaim-warden reclaim-agent
until_true 180 is_state "$job" running
reclaim stop "$job"

step "a notice: guests are told, and gone before the deadline"
start_job
reclaim-agent reclaim --in 10s
until_true 30 is_clear
reclaim-warden verify
reclaim-agent release

step "gone again"
reclaim stop "$job" || true
reclaim-agent leave --purge
systemctl disable --now reclaim-agent reclaim-warden
reclaim-warden leave
systemctl disable --now reclaim-coordinator
rm -rf /etc/systemd/system/reclaim-{agent,warden,coordinator}.service /etc/reclaimnet /usr/local/bin/reclaim{,-*}
rm -rf /usr/local/lib/reclaimnet
userdel reclaim-agent && userdel reclaim-coordinator
rm -rf /var/lib/reclaimnet/coordinator /var/lib/private/reclaimnet
rmdir --ignore-fail-on-non-empty /var/lib/reclaimnet
systemctl daemon-reload
inventory >/root/after
if diff /root/before /root/after; then echo "the machine is as it was"; else fail "something was left"; fi
