#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs by apt, on Debian 12 and as root, everything that building, testing and the demo need. Idempotent: when all
# packages are there it only asks dpkg and takes well under a second. Starts and enables no service: the engines that
# the tests need are private ones, and an engine or a Prometheus that the machine had before is left as it is.
#
#   scripts/install-deps.sh           install what is missing
#   scripts/install-deps.sh --check   print what is missing; exit 1 if anything is
#   scripts/install-deps.sh --slurm   instead of all that: what scripts/compare-slurm.sh needs beside it
set -euo pipefail

packages=(
  # compilers and build
  ca-certificates ccache clang clang-format clang-tidy cmake dpkg-dev g++ git libclang-rt-14-dev lld llvm ninja-build
  pkg-config
  # libraries
  libarchive-dev libbenchmark-dev libboost1.81-dev libcli11-dev libcurl4-openssl-dev libelf-dev libexpected-dev
  libfmt-dev libgmock-dev libgtest-dev libnl-route-3-dev libspdlog-dev libsqlite3-dev libsqlitecpp-dev libssl-dev
  libxxhash-dev libyaml-cpp-dev libzstd-dev nlohmann-json3-dev prometheus-cpp-dev zlib1g-dev
  # BPF
  bpftool libbpf-dev linux-libc-dev
  # engine, network and images for the laboratories on one machine
  apparmor busybox-static docker.io e2fsprogs iperf3 iproute2 iptables iputils-ping jq kmod mmdebstrap nftables procps
  tcpdump uidmap zstd
  # test programs
  chromium curl dbconfig-sqlite3 fish glewlwyd libfaketime openssl prometheus python3 python3-aiosmtpd python3-yaml
  sqlite3 zsh
  # the dashboard
  nodejs npm
)
# Units that these packages would start or enable by themselves.
units=(apparmor.service docker.service docker.socket containerd.service glewlwyd.service prometheus.service)

slurm_packages=(munge slurm-client slurmctld slurmd)
slurm_units=(munge.service slurmctld.service slurmd.service)

missing_packages() {
  local -A have=()
  local name state
  while read -r name state; do
    [[ $state == installed ]] && have[$name]=1
  done < <(dpkg-query -W -f='${Package} ${db:Status-Status}\n' "${packages[@]}" 2>/dev/null)
  # Another distribution's nodejs may bring npm with it, and refuse Debian's.
  [[ -z ${have[nodejs]:-} || ! -x /usr/bin/npm ]] || have[npm]=1
  for name in "${packages[@]}"; do
    [[ -n ${have[$name]:-} ]] || echo "$name"
  done
}

policy=/usr/sbin/policy-rc.d
policy_saved=

# Forbids service starts while packages are configured; undone by restore_policy, whatever happens in between.
forbid_services() {
  if [[ -e $policy ]]; then
    policy_saved=$(mktemp)
    cp -p "$policy" "$policy_saved"
  fi
  trap restore_policy EXIT
  printf '#!/bin/sh\nexit 101\n' >"$policy.rn"
  chmod 755 "$policy.rn"
  mv -f "$policy.rn" "$policy"
}

restore_policy() {
  if [[ -n $policy_saved ]]; then
    cp -p "$policy_saved" "$policy"
    rm -f "$policy_saved"
  else
    rm -f "$policy"
  fi
}

disable_unit() { # UNIT, for systemd and for the older start links alike
  [[ -e /lib/systemd/system/$1 ]] || return 0
  if command -v systemctl >/dev/null; then
    systemctl --quiet disable "$1" 2>/dev/null || true
  else
    DPKG_MAINTSCRIPT_PACKAGE=reclaimnet deb-systemd-helper disable "$1" >/dev/null 2>&1 || true # wants a package
  fi
  [[ ! -e /etc/init.d/${1%.service} ]] || update-rc.d "${1%.service}" disable
}

main() {
  local missing new_units=() unit
  case "$#${1:-}" in
    0 | 1--check) ;;
    1--slurm) packages=("${slurm_packages[@]}") units=("${slurm_units[@]}") ;;
    1-h | 1--help) sed -n '3,/^set /{/^set /!s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    *)
      echo "install-deps: '$*' is not understood" >&2
      echo "  next: scripts/install-deps.sh installs what is missing, with --check it only prints it, --slurm is for" \
        "compare-slurm.sh" >&2
      exit 2 ;;
  esac
  mapfile -t missing < <(missing_packages)
  if [[ ${1:-} == --check ]]; then
    ((${#missing[@]} == 0)) || { printf '%s\n' "${missing[@]}"; exit 1; }
    exit 0
  fi
  if ((${#missing[@]} == 0)); then
    echo "dependencies: all ${#packages[@]} packages are installed"
    exit 0
  fi
  if [[ $(id -u) != 0 ]]; then
    echo "install-deps: missing packages (${missing[*]}) and not root: run it as root" >&2
    exit 1
  fi
  if [[ $(. /etc/os-release && echo "${VERSION_CODENAME:-}") != bookworm ]]; then
    echo "install-deps: this is not Debian 12 (bookworm); package names may differ" >&2
  fi
  echo "dependencies: installing ${#missing[@]} packages: ${missing[*]}"
  # Units that exist already belong to the machine: their enablement is not ours to change.
  for unit in "${units[@]}"; do
    [[ -e /lib/systemd/system/$unit || -e /etc/systemd/system/$unit ]] || new_units+=("$unit")
  done
  forbid_services
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends -o Dpkg::Use-Pty=0 -o Dpkg::Options::=--force-confold \
    "${missing[@]}" >/dev/null
  for unit in "${new_units[@]}"; do
    disable_unit "$unit"
  done
  mapfile -t missing < <(missing_packages)
  if ((${#missing[@]} > 0)); then
    echo "install-deps: still missing after apt-get: ${missing[*]}" >&2
    exit 1
  fi
  echo "dependencies: done"
}

main "$@"
