#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The tenants of scripts/gpu-check.sh on the CPU, with the PyTorch of the base image. Root; a few seconds when the image
# is cached.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
((EUID == 0)) || { echo "skipped: needs root"; exit 77; }
image=$("$here/../../scripts/build-image.sh")
folder=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d) # 800 MB for seconds: a busy disk makes minutes of them
trap 'rm -rf --one-file-system "$folder"' EXIT
mkdir "$folder/root" "$folder/work"
tar -C "$folder/root" -xf "$image"
cp -t "$folder/work" "$here/gpu_guest.py"
chmod 711 "$folder" && chown -R 10001:10001 "$folder/work"
source "$here/../../scripts/lib/image_run.sh"
IMAGE_WORK=$folder/work image_run "$folder/root" python3 -B gpu_guest.py selftest --device cpu
