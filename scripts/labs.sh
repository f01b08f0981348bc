#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Several laboratories on one machine: for each a network namespace with its own address, a cable to a common switch
# (a bridge in a namespace of its own), a disk, and the name of its cgroup. A command, and a library to be sourced.
#
#   labs.sh up [--run ID] [--rate 100mbit] [--disk 8G] [--guard PID] LAB…   prints the run's id; interrupted before
#                                    that it undoes what it has done
#   labs.sh down ID                    stops and removes everything of the run, whatever state it is in
#   labs.sh with [options of up] LAB… -- COMMAND…    up, COMMAND with RN_RUN and RN_DIR set, down
#   labs.sh env ID                     the run's addresses and folders as shell variables
#   labs.sh exec ID LAB COMMAND…       runs COMMAND on the lab's network
#   labs.sh spawn ID LAB NAME COMMAND… the same in the background, output to the lab's NAME.log; prints the pid
#   labs.sh link ID LAB up|down        plugs or pulls the lab's cable
#   labs.sh rate ID LAB RATE|none      limits the lab's cable in both directions (HTB)
#   labs.sh sweep                      takes down runs whose guard was killed too, also killed suites of C++;
#                                      `up --guard` does it first
#   labs.sh residue ID                 prints what is left of a run; exit 1 if anything is
#   labs.sh snapshot FILE; labs.sh changes FILE     what the whole machine has more or less than then
#
# Everything is tagged by the run's id: namespaces rn-ID-…, the host's one interface rn-ID, folder /tmp/rn-ID, cgroups
# /rn-ID-LAB and /reclaim-ID-LAB (a warden started with --lab ID-LAB), BPF pins in folders rn-ID, rn-ID-… or on file
# systems below /tmp/rn-ID, and RN_RUN=ID in the environment of every process. The host gets one interface with a route
# for the run's own subnet 10.77.X.0/24; no existing interface, route or rule is touched.
# LAB is at most eleven characters of a-z, 0-9 and -. The first lab has address 10.77.X.11, the host 10.77.X.1.

rn_labs_root=${RN_LABS_ROOT:-/tmp}
rn_labs_lock=/tmp/.rn-labs.lock
rn_ids_list=/var/lib/reclaimnet.guest-ids
rn_labs_script=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/$(basename "${BASH_SOURCE[0]}")

rn_die() { echo "labs: $*" >&2; return 1; }

rn_dir() { echo "$rn_labs_root/rn-$1"; }

rn_switch() { echo "rn-$1-switch"; }

rn_namespace() { echo "rn-$1-$2"; }

# rn_labs_of RUN: the names of its labs, in order.
rn_labs_of() { cat "$(rn_dir "$1")/labs" 2>/dev/null || true; }

rn_subnet() { cat "$(rn_dir "$1")/subnet"; }

# rn_address RUN LAB
rn_address() {
  local number=11 lab
  for lab in $(rn_labs_of "$1"); do
    if [[ $lab == "$2" ]]; then
      echo "10.77.$(rn_subnet "$1").$number"
      return 0
    fi
    number=$((number + 1))
  done
  rn_die "run $1 has no lab $2"
}

# --- up ---------------------------------------------------------------------------------------------------------

# A third octet that no route and no other run uses. Call with the lock held.
rn_free_subnet() {
  local octet
  for octet in $(shuf -i 1-250); do
    if ! ip -4 route show | grep -q "^10\.77\.$octet\." && ! grep -qsx "$octet" "$rn_labs_root"/rn-*/subnet; then
      echo "$octet"
      return 0
    fi
  done
  rn_die "no free subnet in 10.77.0.0/16"
}

# rn_make_switch RUN: the bridge in its namespace, and the host's one cable to it.
rn_make_switch() {
  local run=$1 switch subnet
  switch=$(rn_switch "$run") &&
    subnet=$(rn_subnet "$run") &&
    ip netns add "$switch" &&
    ip -n "$switch" link set lo up &&
    ip -n "$switch" link add br0 type bridge forward_delay 0 &&
    ip -n "$switch" link set br0 up &&
    ip link add "rn-$run" type veth peer name p-host netns "$switch" &&
    ip -n "$switch" link set p-host master br0 up &&
    ip addr add "10.77.$subnet.1/24" dev "rn-$run" &&
    ip -6 addr add "fd77:0:0:$subnet::1/64" dev "rn-$run" nodad &&
    ip link set "rn-$run" up
}

# rn_make_lab RUN LAB: its namespace, cable, addresses and folders.
rn_make_lab() {
  local run=$1 lab=$2 namespace switch address
  namespace=$(rn_namespace "$run" "$lab") &&
    switch=$(rn_switch "$run") &&
    address=$(rn_address "$run" "$lab") &&
    ip netns add "$namespace" &&
    ip -n "$namespace" link set lo up &&
    ip -n "$switch" link add "p-$lab" type veth peer name eth0 netns "$namespace" &&
    ip -n "$switch" link set "p-$lab" master br0 up &&
    ip -n "$namespace" addr add "$address/24" dev eth0 &&
    ip -n "$namespace" -6 addr add "fd77:0:0:$(rn_subnet "$run")::${address##*.}/64" dev eth0 nodad &&
    ip -n "$namespace" link set eth0 up &&
    mkdir -p "$(rn_dir "$run")/$lab"/{disk,run,log}
}

# rn_make_disk RUN LAB SIZE: a file system of its own, so that a lab can fill only its own disk. The file is sparse.
rn_make_disk() {
  local folder
  folder=$(rn_dir "$1")/$2 &&
    truncate -s "$3" "$folder/disk.img" &&
    mkfs.ext4 -q -m 0 -E lazy_itable_init=1,lazy_journal_init=1 "$folder/disk.img" &&
    mount -o loop,noatime "$folder/disk.img" "$folder/disk"
}

# rn_set_rate RUN LAB RATE|none: HTB on both ends of the cable, with a queue of 50 ms as a cheap switch has.
rn_set_rate() {
  local run=$1 lab=$2 rate=$3 namespace device
  for namespace in "$(rn_namespace "$run" "$lab")" "$(rn_switch "$run")"; do
    device=eth0
    [[ $namespace != "$(rn_switch "$run")" ]] || device=p-$lab
    tc -n "$namespace" qdisc del dev "$device" root 2>/dev/null || true
    [[ $rate == none ]] || {
      tc -n "$namespace" qdisc add dev "$device" root handle 1: htb default 10 &&
        tc -n "$namespace" class add dev "$device" parent 1: classid 1:10 htb rate "$rate" burst 32k quantum 15140 &&
        tc -n "$namespace" qdisc add dev "$device" parent 1:10 handle 10: pfifo limit 1000
    } || return 1
  done
}

rn_set_link() { ip -n "$(rn_switch "$1")" link set "p-$2" "$3"; }

# Takes down the run that this shell has made, rn_made, once; a second signal does not stop it in the middle.
rn_undo() {
  trap '' INT TERM HUP
  local run=$rn_made
  rn_made=
  [[ -z $run ]] || rn_labs_down "$run"
}

# rn_labs_up RUN RATE DISK LAB…: RATE and DISK may be empty. On failure nothing is left. What it makes is rn_made's from
# before its first step on; another one's run never is.
rn_labs_up() {
  local run=$1 rate=$2 disk=$3 lab folder
  shift 3
  [[ $run =~ ^[a-z0-9]{1,8}$ ]] || { rn_die "a run's id is one to eight of a-z and 0-9, not '$run'"; return 1; }
  for lab in "$@"; do
    [[ $lab =~ ^[a-z0-9-]{1,11}$ && $lab != switch ]] || { rn_die "bad lab name '$lab'"; return 1; }
  done
  (($# > 0)) || { rn_die "no labs named"; return 1; }
  folder=$(rn_dir "$run")
  exec 8>"$rn_labs_lock"
  flock 8
  if [[ ! -e $folder ]]; then # whoever makes one holds the lock
    rn_made=$run
  fi
  if [[ ${rn_made:-} != "$run" ]] || ! mkdir -m 711 "$folder"; then
    exec 8>&-
    rn_die "run $run exists already ($folder)"
    return 1
  fi
  printf '%s\n' "$@" >"$folder/labs"
  # NOTE: errexit does not hold inside a function called from a condition, so the steps are chained by hand.
  if ! { rn_free_subnet >"$folder/subnet" && rn_make_switch "$run"; }; then
    exec 8>&-
    rn_labs_down "$run"
    return 1
  fi
  exec 8>&-
  for lab in "$@"; do
    if ! { rn_make_lab "$run" "$lab" && { [[ -z $disk ]] || rn_make_disk "$run" "$lab" "$disk"; } &&
      { [[ -z $rate ]] || rn_set_rate "$run" "$lab" "$rate"; }; }; then
      rn_labs_down "$run"
      return 1
    fi
  done
}

# --- processes --------------------------------------------------------------------------------------------------

# rn_exec RUN LAB COMMAND…: replaces this shell. NOTE: not `ip netns exec`, which mounts another /sys, without cgroups.
rn_exec() {
  local run=$1 lab=$2
  shift 2
  RN_RUN=$run exec nsenter --net="/run/netns/$(rn_namespace "$run" "$lab")" -- "$@"
}

# rn_spawn RUN LAB NAME COMMAND…: in the background, a session of its own; prints the pid of COMMAND itself.
rn_spawn() {
  local run=$1 lab=$2 log
  log=$(rn_dir "$1")/$2/log/$3.log
  shift 3
  RN_RUN=$run setsid nsenter --net="/run/netns/$(rn_namespace "$run" "$lab")" -- "$@" </dev/null >>"$log" 2>&1 8>&- &
  echo $!
}

# rn_pids RUN: every live process of the run: by namespace, by environment, by cgroup. Never this shell's own line.
rn_pids() {
  local run=$1 namespace pid entry entries=(/proc/[0-9]*) # before this function's own children are born
  {
    for namespace in $(ip netns list 2>/dev/null | awk -v run="rn-$run-" 'index($1, run) == 1 { print $1 }'); do
      ip netns pids "$namespace" 2>/dev/null || true
    done
    # One grep for all: a process for each would take seconds on a busy machine.
    grep -lsz "^RN_RUN=$run\$" "${entries[@]/%//environ}" | cut -d/ -f3 || true
    for entry in $(rn_cgroups "$run"); do
      cat "$entry/cgroup.procs" 2>/dev/null || true
    done
  } | sort -un | rn_without_our_own_and_the_dead
}

# Of the pids on standard input those that live, less this shell and the programs above it (whoever calls `down` may
# carry the tag itself). Without a process for each: on a busy machine that would take a second.
rn_without_our_own_and_the_dead() {
  local pid=$BASHPID line own=' '
  while [[ -n $pid && $pid != 0 ]]; do
    own+="$pid "
    line=
    read -r line 2>/dev/null <"/proc/$pid/stat" || true
    read -r _ pid _ <<<"${line##*) }"
  done
  while read -r pid; do
    line=
    read -r line 2>/dev/null <"/proc/$pid/stat" || true
    line=${line##*) }
    [[ $own == *" $pid "* || -z $line || $line == Z* ]] || echo "$pid"
  done
}

# rn_cgroups RUN: its cgroups in every hierarchy, deepest first.
rn_cgroups() {
  local type mount depth found=()
  while read -r _ mount type _; do
    [[ $type == cgroup || $type == cgroup2 ]] || continue
    for depth in "$mount" "$mount"/*; do
      found+=("$depth/rn-$1-"*/ "$depth/reclaim-$1-"*/ "$depth/reclaim-$1"/)
    done
  done </proc/mounts
  # A name without a match stands for itself, and is not there.
  { find "${found[@]%/}" -depth -type d 2>/dev/null || true; } | awk '!seen[$0]++'
}

# rn_stop_all RUN: first asks, after a second kills, thawing what is frozen or stopped; gives up after 20 seconds.
rn_stop_all() {
  local run=$1 pid pids round group
  for round in $(seq 100); do
    for group in $(rn_cgroups "$run"); do
      if [[ -w $group/freezer.state ]]; then echo THAWED >"$group/freezer.state" 2>/dev/null || true; fi
      if [[ -w $group/cgroup.freeze ]]; then echo 0 >"$group/cgroup.freeze" 2>/dev/null || true; fi
    done
    pids=$(rn_pids "$run")
    [[ -n $pids ]] || return 0
    for pid in $pids; do
      if ((round == 1)); then
        kill -TERM "$pid" 2>/dev/null || true
      elif ((round > 4)); then
        kill -KILL "$pid" 2>/dev/null || true
      fi
      kill -CONT "$pid" 2>/dev/null || true
    done
    sleep 0.2
  done
  rn_die "processes of run $run would not die: $(rn_pids "$run" | tr '\n' ' ')"
}

# --- down -------------------------------------------------------------------------------------------------------

# rn_mounts RUN: mount points of the run, the newest first. NOTE: mountinfo writes blanks as \040; ours have none.
rn_mounts() {
  awk -v a="$(rn_dir "$1")/" '{ if (index($5, a) == 1) print $5 }' /proc/self/mountinfo | tac
}

# rn_pins RUN: folders of pinned BPF objects named after the run.
rn_pins() {
  local mount
  awk '$3 == "bpf" { print $2 }' /proc/mounts | sort -u | while read -r mount; do
    find "$mount" -mindepth 1 -maxdepth 3 \( -name "rn-$1" -o -name "rn-$1-*" \) -prune 2>/dev/null || true
  done
}

# rn_forget_ids RUN: takes from the machine's list what its killed wardens have left there; the folder is the lock.
rn_forget_ids() {
  [[ -e $rn_ids_list ]] || return 0
  flock -w 10 "$(dirname "$rn_ids_list")" sh -c '
    [ -e "$0" ] || exit 0
    sed -i "\\# $1/#d" "$0" && { [ -s "$0" ] || rm "$0"; }' "$rn_ids_list" "$(rn_dir "$1")"
}

# rn_labs_down RUN: idempotent; goes on after a failed step, so that one thing left does not leave the rest.
rn_labs_down() {
  local run=$1 path namespace failed=0 _
  rn_stop_all "$run" || failed=1
  for _ in 1 2 3; do # mounts upon mounts; a just killed engine may need a moment
    for path in $(rn_mounts "$run"); do
      umount "$path" 2>/dev/null || umount -l "$path" 2>/dev/null || true
    done
    [[ -n $(rn_mounts "$run") ]] || break
    sleep 0.2
  done
  for _ in $(seq 100); do # a loop device goes when the last user of its unmounted disk has gone
    losetup -l -n -O BACK-FILE 2>/dev/null | grep -qF "$(rn_dir "$run")/" || break
    sleep 0.2
  done
  for path in $(rn_pins "$run"); do rm -rf "$path" || failed=1; done
  # Before its namespace, with which it would vanish at some moment of the kernel's choice.
  if ip link show "rn-$run" >/dev/null 2>&1; then ip link del "rn-$run" || failed=1; fi
  for namespace in $(ip netns list | awk -v run="rn-$run-" 'index($1, run) == 1 { print $1 }'); do
    ip netns del "$namespace" || failed=1
  done
  for path in $(rn_cgroups "$run"); do
    # What was named twice, or has gone by itself, is no failure. A process that was killed is in its group until a
    # processor has ended it.
    for _ in $(seq 50); do
      rmdir "$path" 2>/dev/null || true
      [[ -d $path ]] || break
      sleep 0.2
    done
    [[ ! -d $path ]] || rmdir "$path" || failed=1
  done
  rm -rf --one-file-system "$(rn_dir "$run")" || failed=1
  rn_forget_ids "$run" || failed=1
  return "$failed"
}

# rn_residue RUN: one line for each thing that is left; true when there is none.
rn_residue() {
  local run=$1 found
  found=$(
    for pid in $(rn_pids "$run"); do
      echo "process $pid $({ tr '\0' ' ' <"/proc/$pid/cmdline"; } 2>/dev/null | cut -c1-100)"
    done
    ip netns list | awk -v run="rn-$run-" 'index($1, run) == 1 { print "namespace " $1 }'
    ip -o link | awk -F'[:@ ]+' -v name="rn-$run" '$2 == name { print "interface " $2 }'
    rn_mounts "$run" | sed 's/^/mount /'
    rn_cgroups "$run" | sed 's/^/cgroup /'
    rn_pins "$run" | sed 's/^/bpf pin /'
    losetup -l -n -O BACK-FILE 2>/dev/null | grep -F "$(rn_dir "$run")/" | sed 's/^/loop device of /'
    grep -F " $(rn_dir "$run")/" "$rn_ids_list" 2>/dev/null | sed 's/^/user ids /'
    [[ ! -e $(rn_dir "$run") ]] || echo "folder $(rn_dir "$run")"
  )
  [[ -n $found ]] || return 0
  echo "$found"
  return 1
}

# rn_born PID: when it was started, in ticks since boot; nothing once it has ended, also as a zombie.
rn_born() {
  awk '{ sub(/.*\) /, ""); if ($1 != "Z") print $20 }' "/proc/$1/stat" 2>/dev/null || true
}

# What a pid is worth comparing in: this start of the machine, and this namespace of pids.
rn_pid_world() { echo "$(cat /proc/sys/kernel/random/boot_id) $(readlink /proc/self/ns/pid)"; }

# rn_guards_are_gone RECORD: true only for a whole record of this world, both of whose processes have ended.
rn_guards_are_gone() {
  local lines=() line
  mapfile -t lines 2>/dev/null <"$1" || return 1
  [[ ${#lines[@]} == 3 && ${lines[0]} == "$(rn_pid_world)" ]] || return 1
  for line in "${lines[@]:1}"; do
    [[ $line =~ ^[0-9]+\ [0-9]+$ && $(rn_born "${line% *}") != "${line#* }" ]] || return 1
  done
}

# rn_sweep: takes down the runs whose guard was killed together with the one that it watched. A run without that record,
# with one of the two alive, or of another world of pids is left alone. A suite of C++ (tests/system/warden_node_fake.h)
# is a run without labs that is its own guard: its record names it twice.
rn_sweep() {
  local record run failed=0
  for record in "$rn_labs_root"/rn-*/guard; do
    [[ -s $record && -O $record ]] || continue
    run=$(basename "$(dirname "$record")")
    run=${run#rn-}
    [[ $run =~ ^[a-z0-9]{1,12}$ ]] || continue
    { exec 7<"$record"; } 2>/dev/null || continue
    if flock -n 7 && rn_guards_are_gone "$record"; then # one sweeper at a time
      echo "$run"
      rn_labs_down "$run" 7<&- || failed=1
    fi
    exec 7<&-
  done
  return "$failed"
}

# rn_guard RUN PID: takes the run down when process PID has ended, however it ended. Runs until then.
#
# NOTE: it starts no program while it waits: a dozen of these run beside the tests, and each process costs milliseconds.
rn_guard() {
  local run_folder born='' quiet
  run_folder=$(rn_dir "$1")
  exec {quiet}<> <(:) # nothing ever comes of it: `read -t` on it is a sleep
  rn_read_stat "$2" && born=${rn_stat[19]}
  while [[ -n $born && -d $run_folder ]]; do
    rn_read_stat "$2" && [[ ${rn_stat[19]} == "$born" && ${rn_stat[0]} != Z ]] || break
    read -r -t 0.5 -u "$quiet" || true
  done
  [[ ! -d $run_folder ]] || rn_labs_down "$1"
}

# rn_read_stat PID: what /proc/PID/stat says behind the name, as array rn_stat: state first, start time in [19].
rn_read_stat() {
  local line
  { read -r line <"/proc/$1/stat"; } 2>/dev/null || return 1
  read -r -a rn_stat <<<"${line##*) }"
}

# --- the whole machine ------------------------------------------------------------------------------------------

rn_watched_sysctls='^net\.(ipv4|ipv6)\.(ip_forward|conf\.(all|default)\.(forwarding|rp_filter|disable_ipv6))'
rn_watched_sysctls+='|^kernel\.(unprivileged|apparmor|yama)|^fs\.(inotify|protected)'

# Everything that a node may have touched, one sorted line each. Processes are those of our and the engine's programs.
rn_machine_state() {
  ip netns list | awk '{ print "namespace " $1 }'
  ip -o link | awk -F': ' '{ split($2, part, "@"); print "interface " part[1] }'
  ip -4 route show table all | sed 's/^/route /; s/ *$//'
  ip -6 route show table all | grep -v ' proto ra ' | sed 's/ expires [0-9]*sec//; s/^/route6 /; s/ *$//'
  ip rule show | sed 's/^/rule /'
  awk '{ print "mount " $2 " " $3 }' /proc/mounts
  awk '$3 == "cgroup" || $3 == "cgroup2" { print $2 }' /proc/mounts | sort -u | while read -r mount; do
    find "$mount" -type d 2>/dev/null | sed 's/^/cgroup /'
  done
  awk '$3 == "bpf" { print $2 }' /proc/mounts | sort -u | while read -r mount; do
    find "$mount" -mindepth 1 2>/dev/null | sed 's/^/bpf pin /'
  done
  bpftool -j prog show 2>/dev/null | jq -r '.[] | "bpf program \(.name // "") \(.type) \(.tag)"' 2>/dev/null
  nft list ruleset 2>/dev/null | sed 's/counter packets [0-9]* bytes [0-9]*//; s/^/nft /'
  { tc qdisc show; tc filter show; } 2>/dev/null | sed 's/^/tc /; s/ *$//'
  losetup -l -n -O BACK-FILE 2>/dev/null | sed 's/^/loop /'
  sysctl -a 2>/dev/null | grep -E "$rn_watched_sysctls" | sed 's/^/sysctl /'
  cut -d: -f1,3 /etc/passwd | sed 's/^/user /'
  cut -d: -f1,3 /etc/group | sed 's/^/group /'
  ss -Hltun 2>/dev/null | awk '{ print "port " $1 " " $5 }'
  find /run/containerd /run/docker /run/docker.sock /var/lib/docker /run/reclaimnet /var/lib/reclaimnet \
    -maxdepth 2 2>/dev/null | sed 's/^/path /'
  for entry in /proc/[0-9]*; do
    name=
    read -r name 2>/dev/null <"$entry/comm" || true
    case $name in
      dockerd | containerd | containerd-shim* | runc* | reclaim* | tcpdump | iperf3)
        echo "process $name $(tr '\0' ' ' 2>/dev/null <"$entry/cmdline" | cut -c1-80)" ;;
    esac
  done
}

# NOTE: without errexit: a tool that is missing or finds nothing must not end the list early.
rn_snapshot() { (set +e; rn_machine_state 2>/dev/null; true) | sort >"$1"; }

# rn_changes FILE: lines with + for what came and - for what went since the snapshot; true when there are none.
rn_changes() {
  local now
  now=$(mktemp)
  rn_snapshot "$now"
  if diff --unchanged-line-format= --old-line-format='- %L' --new-line-format='+ %L' "$1" "$now"; then
    rm -f "$now"
    return 0
  fi
  rm -f "$now"
  return 1
}

rn_env() {
  local run=$1 lab
  echo "RN_RUN=$run"
  echo "RN_DIR=$(rn_dir "$run")"
  echo "RN_HOST=10.77.$(rn_subnet "$run").1"
  for lab in $(rn_labs_of "$run"); do
    echo "RN_ADDRESS_${lab//-/_}=$(rn_address "$run" "$lab")"
  done
}

# --- command ----------------------------------------------------------------------------------------------------

rn_usage() { sed -n '3,/^$/s/^# \{0,1\}//p' "$rn_labs_script" >&2; exit 2; }

# Parses the options of `up` into run, rate, disk, guard and the rest into labs and command.
rn_command_up() { # up|with ARGUMENT…
  local verb=$1 run rate='' disk='' guard='' labs=()
  run=$(printf '%06x' $((RANDOM * 32768 + RANDOM)) | cut -c1-6)
  shift
  while (($# > 0)); do
    case $1 in
      --run) run=$2; shift ;;
      --rate) rate=$2; shift ;;
      --disk) disk=$2; shift ;;
      --guard) guard=$2; shift ;;
      --) shift; break ;;
      -*) rn_usage ;;
      *) labs+=("$1") ;;
    esac
    shift
  done
  rn_made=
  trap rn_undo EXIT
  trap 'rn_undo; exit 130' INT TERM HUP # here, too: it may come while an error already ends the shell
  if [[ $verb == with ]]; then
    rn_labs_up "$run" "$rate" "$disk" "${labs[@]}"
    # NOTE: waited for in the background, because bash would run its trap only after the command's own end.
    RN_RUN=$run RN_DIR=$(rn_dir "$run") "$@" <&0 &
    wait $!
    return
  fi
  [[ -z $guard ]] || rn_sweep >/dev/null 2>&1 || true
  rn_labs_up "$run" "$rate" "$disk" "${labs[@]}"
  if [[ -n $guard ]]; then
    # NOTE: without the tag, so that `down` does not take its own guard for a process of the run.
    env -u RN_RUN setsid "$rn_labs_script" guard "$run" "$guard" </dev/null >/dev/null 2>&1 8>&- &
    { rn_pid_world; printf '%s %s\n' "$guard" "$(rn_born "$guard")" "$!" "$(rn_born "$!")"; } >"$(rn_dir "$run")/guard"
  fi
  echo "$run"
  rn_made= # its caller's now
}

rn_main() {
  set -euo pipefail
  local verb=${1:-}
  shift || true
  case $verb in
    up | with) rn_command_up "$verb" "$@" ;;
    down) rn_labs_down "$@" ;;
    env) rn_env "$@" ;;
    exec) rn_exec "$@" ;;
    spawn) rn_spawn "$@" ;;
    link) rn_set_link "$@" ;;
    rate) rn_set_rate "$@" ;;
    guard) rn_guard "$@" ;;
    sweep) rn_sweep ;;
    residue) rn_residue "$@" ;;
    snapshot) rn_snapshot "$@" ;;
    changes) rn_changes "$@" ;;
    *) rn_usage ;;
  esac
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then rn_main "$@"; fi
