# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Shared by build-image.sh and build-tiny-image.sh: a root file system from Debian packages, cached by its recipe.
#
# Published is CACHE/NAME-KEY.tar (uncompressed, so that chunks of two versions match) and beside it the same name with
# .sha256. KEY is a hash of the scripts that make it: a changed recipe is a new file, and old ones are removed.

# shellcheck source=image_run.sh
source "$(dirname "${BASH_SOURCE[0]}")/image_run.sh"

image_cache="${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/reclaimnet" # cron and units have no HOME; all this needs root
image_epoch=1700000000 # every file's time in the archive: same packages, same bytes

image_say() { echo "image: $*" >&2; }

# image_key SCRIPT…: what the cached file is named after.
image_key() { cat "$@" | sha256sum | cut -c1-16; }

# apt sources of this host (its mirror, its pinned snapshot), as lines for mmdebstrap.
image_sources() {
  local lines
  # shellcheck disable=SC2016 # apt's own variables
  lines=$(apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 2>/dev/null |
    grep -E ' bookworm(-security|-updates)? main$' | sort -u || true)
  [[ -n $lines ]] || { echo "image: apt knows no bookworm source here; run apt-get update first" >&2; return 1; }
  echo "$lines"
}

# image_dummies FOLDER PACKAGE…: an apt repository of empty packages, for dependencies that nothing here loads.
image_dummies() {
  local folder=$1 package tree
  shift
  mkdir -p "$folder"
  for package in "$@"; do
    tree=$folder/$package.tree
    mkdir -p "$tree/DEBIAN"
    printf '%s\n' "Package: $package" "Version: 99:0" "Architecture: all" "Multi-Arch: foreign" \
      "Maintainer: ReclaimNet <reclaimnet@localhost>" "Description: empty stand-in, left out of the image" \
      >"$tree/DEBIAN/control"
    SOURCE_DATE_EPOCH=$image_epoch dpkg-deb -b -Znone "$tree" "$folder/$package.deb" >/dev/null
    rm -rf "$tree"
    {
      dpkg-deb -f "$folder/$package.deb"
      echo "Filename: ./$package.deb"
      echo "Size: $(stat -c %s "$folder/$package.deb")"
      echo "SHA256: $(sha256sum "$folder/$package.deb" | cut -d' ' -f1)"
      echo
    } >>"$folder/Packages"
  done
}

# image_accounts ROOT: passwd and group with root, nobody and the guest (uid 10001).
image_accounts() {
  local root=$1
  printf '%s\n' 'root:x:0:0:root:/root:/bin/sh' 'guest:x:10001:10001:guest:/tmp:/bin/sh' \
    'nobody:x:65534:65534:nobody:/nonexistent:/bin/false' >"$root/etc/passwd"
  printf '%s\n' 'root:x:0:' 'guest:x:10001:' 'nogroup:x:65534:' >"$root/etc/group"
  printf '127.0.0.1 localhost\n' >"$root/etc/hosts"
  printf 'passwd: files\ngroup: files\nhosts: files dns\n' >"$root/etc/nsswitch.conf"
  mkdir -p "$root"/{dev,proc,sys,run,tmp,workspace}
  chmod 1777 "$root/tmp"
}

# image_publish ROOT FILE.tar: deterministic archive and its SHA-256, both appearing at once or not at all.
image_publish() {
  local root=$1 file=$2
  tar --sort=name --mtime="@$image_epoch" --numeric-owner --format=gnu -C "$root" -cf "$file.part" .
  (cd "$(dirname "$file")" && sha256sum "$(basename "$file").part" | sed 's/\.part$//') >"$file.sha256.part"
  mv -f "$file.sha256.part" "$file.sha256"
  mv -f "$file.part" "$file"
}

# image_build NAME SCRIPT [FILE…]: the whole of it. SCRIPT, with what FILEs it is made from, defines image_make ROOT
# WORK (fills ROOT) and image_check ROOT (fails if the image would not do). Prints the archive's path on standard
# output; everything else goes to stderr.
image_build() {
  local name=$1 file work started=$SECONDS
  shift
  file=$image_cache/$name-$(image_key "$@" "${BASH_SOURCE[0]}").tar
  mkdir -p "$image_cache"
  exec 9>"$image_cache/.$name.lock"
  flock 9
  if [[ -s $file && -s $file.sha256 ]]; then
    image_say "$name is cached ($(du -m "$file" | cut -f1) MiB)"
    echo "$file"
    return
  fi
  if [[ $(id -u) != 0 ]]; then
    image_say "must be root to build $name"
    return 1
  fi
  # NOTE: not a local of the trap: it runs when the function is gone. apt's sandbox user must be able to read it.
  work=$(mktemp -d "${TMPDIR:-/tmp}/rn-image.XXXXXX")
  # shellcheck disable=SC2064
  trap "rm -rf --one-file-system '$work' '$file.part' '$file.sha256.part'" EXIT
  chmod 755 "$work"
  image_say "building $name from Debian packages"
  image_make "$work/root" "$work" >&2
  image_check "$work/root" >&2
  image_publish "$work/root" "$file"
  find "$image_cache" -maxdepth 1 -name "$name-*" ! -name "$(basename "$file")*" -delete
  image_say "$name: $(du -m "$file" | cut -f1) MB in $((SECONDS - started)) s, sha256 $(cut -d' ' -f1 "$file.sha256")"
  echo "$file"
}
