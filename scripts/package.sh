#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes packages for Debian 12: reclaimnet (the command of who submits), reclaimnet-agent (agent, warden, kill switch
# and init, for a machine that lends) and reclaimnet-coordinator. docs/install.md says what they do and what they leave.
#
#   scripts/package.sh [--out FOLDER] [--build FOLDER] [--version VERSION] [--fast]
#
#   --out FOLDER       where they go (build/packages)
#   --build FOLDER     takes the programs of this build tree as they are; else build/release is built first
#   --version VERSION  else CMakeLists.txt's with the last commit's time and name, as 0.1.0~20261126T104100.0d5c062, or
#                      that version alone where the commit has the tag vVERSION
#   --fast             compresses less, for tests
#
# The same programs give the same bytes: all times are SOURCE_DATE_EPOCH, or the last commit's. Prints each package with
# its size and SHA-256, and the exposure of each unit as systemd-analyze sees it. Needs no root.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
programs=(reclaim reclaim-agent reclaim-coordinator reclaim-init reclaim-kill reclaim-scrub reclaim-warden)
out=$top/build/packages build='' version='' level=6

usage() { sed -n '3,/^set /{/^set /!s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; }
refuse() { # MESSAGE NEXT
  printf 'package: %s\n  next: %s\n' "$1" "$2" >&2
  exit 2
}

while (($# > 0)); do
  case $1 in
    --out | --build | --version)
      [[ -n ${2:-} ]] || refuse "$1 has no value" "see --help"
      declare "${1#--}=$2"
      shift ;;
    --fast) level=0 ;;
    -h | --help) usage; exit 0 ;;
    *) refuse "'$1' is not understood" "see --help" ;;
  esac
  shift
done
for tool in dpkg-deb dpkg-shlibdeps python3 strip; do
  command -v "$tool" >/dev/null || refuse "$tool is not there" "scripts/install-deps.sh (packages dpkg-dev, binutils)"
done
umask 022
mkdir -p "$out"
out=$(cd "$out" && pwd)

of_git() { git -C "$top" -c safe.directory='*' "$@"; }

# Of the tree: what it is called, and the time that all files get.
name_this() {
  local project
  if [[ -z ${SOURCE_DATE_EPOCH:-} ]]; then
    SOURCE_DATE_EPOCH=$(of_git log -1 --format=%ct 2>/dev/null) ||
      refuse "this tree has no commit whose time the files could get" "set SOURCE_DATE_EPOCH, seconds since 1970"
  fi
  export SOURCE_DATE_EPOCH
  [[ -z $version ]] || return 0
  project=$(sed -n 's/^project(reclaimnet VERSION \([0-9.]*\).*/\1/p' "$top/CMakeLists.txt")
  version=$project
  if ! of_git describe --exact-match --match "v$project" HEAD >/dev/null 2>&1; then
    version+="~$(TZ=UTC of_git log -1 --format=%cd.%h --abbrev=7 --date=format-local:%Y%m%dT%H%M%S 2>/dev/null)" ||
      refuse "this tree has no commit to be named after" "give --version"
  fi
}

build_programs() {
  if [[ -z $build ]]; then
    build=$top/build/release
    (cd "$top" && cmake --preset release) >&2
    ninja -C "$build" "${programs[@]}" >&2
  fi
  local name
  for name in "${programs[@]}"; do
    [[ -x $build/apps/$name/$name ]] ||
      refuse "$build/apps/$name/$name is not there" "ninja -C $build ${programs[*]}; or leave --build out"
  done
}

work=$(mktemp -d "${TMPDIR:-/tmp}/rn-package.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT

# put MODE FILE PLACE: into the package's tree, with the folders above it.
put() { install -D -m "$1" "$top/$2" "$tree$3"; }
put_program() { # NAME PLACE [FILE]
  install -D -m 755 "$build/apps/$1/${3:-$1}" "$tree$2"
  strip --strip-unneeded --remove-section=.comment "$tree$2"
}
# Units name /usr/local/bin for who copies by hand.
put_unit() {
  put 644 "packaging/systemd/$1.service" "/lib/systemd/system/$1.service"
  sed -i 's|/usr/local/bin/|/usr/bin/|' "$tree/lib/systemd/system/$1.service"
}

put_documents() { # FILE…
  local folder=/usr/share/doc/$package file
  for file in "$@"; do put 644 "docs/$file" "$folder/$file"; done
  put 644 packaging/debian/copyright "$folder/copyright"
  gzip -9n <"$top/CHANGELOG.md" >"$tree$folder/CHANGELOG.md.gz"
  printf '%s (%s) bookworm; urgency=medium\n\n  * CHANGELOG.md.gz says what has changed.\n\n -- %s  %s\n' \
    "$package" "$version" "$maintainer" "$(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")" |
    gzip -9n >"$tree$folder/changelog.gz"
}

pages() { "$top/scripts/lib/help_pages.py" "$@"; }
# put_manual NAME SECTION PROGRAM [COMMAND]: what its --help says; the command of it that NAME is by itself.
put_manual() {
  local name=$1 section=$2 program=$3
  shift 3
  mkdir -p "$tree/usr/share/man/man$section"
  pages man "$build/apps/$program/$program" "$@" --name "$name" --section "$section" --version "$version" |
    gzip -9n >"$tree/usr/share/man/man$section/$name.$section.gz"
}
# A script's own words at its top.
put_script_manual() { # NAME FILE WHAT
  mkdir -p "$tree/usr/share/man/man8"
  {
    printf '.TH %s 8 %s "ReclaimNet %s"\n.SH NAME\n%s \\- %s\n.SH DESCRIPTION\n.nf\n' "${1^^}" \
      "$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%d)" "$version" "$1" "$3"
    sed -n '3,/^set /{/^set /!s/^# \{0,1\}//p}' "$top/$2" | sed 's/-/\\-/g'
  } | gzip -9n >"$tree/usr/share/man/man8/$1.8.gz"
}
# What the command prints, which asks for jobs and nodes, too.
put_own_completions() {
  local own=$build/apps/reclaim/reclaim share=$tree/usr/share
  mkdir -p "$share"/{bash-completion/completions,zsh/vendor-completions,fish/vendor_completions.d}
  "$own" completion bash >"$share/bash-completion/completions/reclaim"
  "$own" completion zsh >"$share/zsh/vendor-completions/_reclaim"
  "$own" completion fish >"$share/fish/vendor_completions.d/reclaim.fish"
}
put_completion() { # PROGRAM
  mkdir -p "$tree/usr/share/bash-completion/completions"
  pages bash "$build/apps/$1/$1" >"$tree/usr/share/bash-completion/completions/$1"
}

# The libraries of all programs in the tree, as a list of packages with their least versions.
libraries() {
  local files
  mkdir -p "$work/shlibs/debian"
  printf 'Source: reclaimnet\n\nPackage: %s\nArchitecture: any\n' "$package" >"$work/shlibs/debian/control"
  mapfile -t files < <(find "$tree/usr" -type f -perm -u+x -exec sh -c 'head -c 4 "$1" | grep -q ELF' sh {} \; -print)
  (cd "$work/shlibs" && dpkg-shlibdeps -O "${files[@]/#/-e}" 2>"$work/shlibs.log") | sed -n 's/^shlibs:Depends=//p' ||
    { cat "$work/shlibs.log" >&2; return 1; }
}

# close DEPENDS RECOMMENDS DESCRIPTION: the tree becomes a package.
close() {
  local control=$tree/DEBIAN shlibs name
  shlibs=$(libraries)
  [[ -n $shlibs ]] || refuse "no libraries were found for $package" "see that its programs are linked for this machine"
  mkdir -p "$control"
  for name in postinst prerm postrm; do
    [[ ! -e $top/packaging/debian/$package/$name ]] ||
      install -m 755 "$top/packaging/debian/$package/$name" "$control/$name"
  done
  if [[ -d $tree/etc ]]; then (cd "$tree" && find etc -type f -printf '/%p\n' | LC_ALL=C sort) >"$control/conffiles"; fi
  (cd "$tree" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | LC_ALL=C sort -z | xargs -0 md5sum) \
    >"$control/md5sums"
  {
    printf '%s: %s\n' Package "$package" Source reclaimnet Version "$version" Section "$section" Priority optional \
      Architecture "$architecture" Maintainer "$maintainer" Installed-Size "$(installed_kib)" \
      Depends "$shlibs${1:+, $1}"
    [[ -z $2 ]] || printf 'Recommends: %s\n' "$2"
    printf 'Description: %s\n' "$3"
  } >"$control/control"
  chmod 644 "$control"/{control,md5sums}
  find "$tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
  # One thread: more cut the stream elsewhere, so that the number of processors would be in the bytes.
  dpkg-deb --root-owner-group -Zxz "-z$level" --threads-max=1 --build "$tree" "$work/made.deb" >/dev/null
  mv "$work/made.deb" "$out/${package}_${version}_$architecture.deb"
  made+=("$out/${package}_${version}_$architecture.deb")
}

# Of bytes and not of blocks, which are the file system's.
installed_kib() {
  find "$tree" -path "$tree/DEBIAN" -prune -o -type f -printf '%s\n' |
    awk '{ bytes += $1 } END { print int(bytes / 1024) + 1 }'
}

begin() { # PACKAGE SECTION
  package=$1 section=$2 tree=$work/$1
  mkdir -p "$tree"
}

make_cli() {
  begin reclaimnet science
  put_program reclaim /usr/bin/reclaim
  put_manual reclaim 1 reclaim
  put_own_completions
  put_documents guests.md commands.md slurm-scripts.md htcondor-files.md notebooks.md
  close '' '' "run work on a campus's lent GPUs
 The command reclaim sends a folder and a command to a ReclaimNet site,
 follows its log, says why it waits, and brings its results home, however
 often owners take their machines back meanwhile."
}

make_agent() {
  begin reclaimnet-agent admin
  put_program reclaim-agent /usr/bin/reclaim-agent
  put_program reclaim-warden /usr/bin/reclaim-warden
  put_program reclaim-warden /usr/lib/reclaimnet/reclaim-warden whole/reclaim-warden
  put_program reclaim-kill /usr/bin/reclaim-kill
  put_program reclaim-init /usr/lib/reclaimnet/reclaim-init
  put_program reclaim-scrub /usr/lib/reclaimnet/reclaim-scrub
  put 755 packaging/bin/reclaim-join /usr/sbin/reclaim-join
  put_manual reclaim-agent 8 reclaim-agent
  put_manual reclaim-warden 8 reclaim-warden
  put_manual reclaim-kill 8 reclaim-warden kill
  put_script_manual reclaim-join packaging/bin/reclaim-join 'have this machine join a site and lend'
  put_completion reclaim-agent
  put_completion reclaim-warden
  put_unit reclaim-agent
  put_unit reclaim-warden
  put 644 packaging/etc/agent.yaml /etc/reclaimnet/agent.yaml
  put 644 packaging/etc/warden.env /usr/share/reclaimnet-agent/warden.env
  put_documents install.md lending.md emergency.md kill-switch.md
  close 'adduser, apparmor, docker.io | docker-ce, e2fsprogs, iproute2, nftables, tzdata' bpftool \
    "lend this machine to other laboratories, and take it back at once
 Agent, warden and kill switch of a ReclaimNet node. Guests run in
 containers of an engine of their own. Installing lends nothing:
 reclaim-join does, once the owner says so."
}

make_coordinator() {
  begin reclaimnet-coordinator admin
  put_program reclaim-coordinator /usr/bin/reclaim-coordinator
  put_manual reclaim-coordinator 8 reclaim-coordinator
  put_completion reclaim-coordinator
  put_unit reclaim-coordinator
  put 644 packaging/etc/coordinator.yaml /etc/reclaimnet/coordinator.yaml
  put 644 packaging/prometheus/alerts.yml /usr/share/reclaimnet-coordinator/prometheus/alerts.yml
  put 644 packaging/prometheus/prometheus.yml /usr/share/reclaimnet-coordinator/prometheus/prometheus.yml
  put 644 packaging/grafana/site.json /usr/share/reclaimnet-coordinator/grafana/site.json
  put 644 packaging/grafana/machines.json /usr/share/reclaimnet-coordinator/grafana/machines.json
  put 644 packaging/grafana/owner.json /usr/share/reclaimnet-coordinator/grafana/owner.json
  put_documents install.md coordinator.md topology.md metrics.md monitoring.md dashboard.md notebooks.md
  close adduser reclaimnet "server of a site whose laboratories lend each other machines
 Queue, database, certificates, REST and dashboard of a ReclaimNet campus.
 Installing starts nothing."
}

main() {
  local unit file
  architecture=$(dpkg --print-architecture) maintainer='ReclaimNet <reclaimnet@localhost>' made=()
  name_this
  build_programs
  make_cli
  make_agent
  make_coordinator
  for file in "${made[@]}"; do
    printf '%s  %s  %s KiB\n' "$(sha256sum <"$file" | cut -d' ' -f1)" "$file" $(($(stat -c %s "$file") / 1024))
  done
  command -v systemd-analyze >/dev/null || return 0
  for unit in coordinator agent warden; do
    systemd-analyze security --no-pager --offline=yes "$top/packaging/systemd/reclaim-$unit.service" 2>/dev/null |
      sed -n "s/.*exposure level for \(.*\): \([0-9.]*\) .*/exposure \1 \2/p"
  done
}

main
