#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Python image for tests whose guests need the standard library and nothing else: a twelfth of the base image.
# Prints the archive's path.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=lib/image.sh
source "$here/lib/image.sh"
# shellcheck source=lib/image_python.sh
source "$here/lib/image_python.sh"

image_make() {
  python_make "$1"
}

image_check() {
  [[ $(image_run "$1" python -c 'import ctypes, os, socket, ssl; print(os.getuid())') == 10001 ]]
}

image_build python "${BASH_SOURCE[0]}" "$here/lib/image_python.sh"
