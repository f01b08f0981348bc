#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The image of `reclaim notebook` (docs/notebooks.md): the base image with Debian's Jupyter, our page's notice, the
# magics and the program that looks after it; with --small without PyTorch and scikit-learn, for tests. Prints the
# archive's path. Needs root; some minutes when not cached.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=lib/image.sh
source "$here/lib/image.sh"

case "$#,${1:-}" in
  0,) kind=base name=notebook ;;
  1,--small) kind=python name=jupyter ;; # no name begins with another one: caches are cleared by name
  *)
    echo "usage: build-notebook-image.sh [--small]" >&2
    exit 2
    ;;
esac
# shellcheck source=lib/image_base.sh
source "$here/lib/image_$kind.sh"

python=$here/../python
ours=("$python"/notebook/*.py "$python"/notebook/custom/custom.js "$python"/reclaimnet/*.py)

# Mathematics in a page has fonts of its own.
keep_fonts() {
  local kept=() pattern
  for pattern in "${trash[@]}"; do
    [[ $pattern == usr/share/fonts ]] || kept+=("$pattern")
  done
  trash=("${kept[@]}")
}

image_make() {
  local root=$1 packages=/usr/lib/python3/dist-packages
  keep_fonts
  case $kind in
    base) base_make "$root" "$2" jupyter-notebook ;;
    python) python_make "$root" jupyter-notebook ;;
  esac
  install -D -m 755 "$python/notebook/reclaim_notebook.py" "$root/usr/bin/reclaim-notebook"
  install -D -m 644 "$python/notebook/custom/custom.js" "$root/usr/share/reclaimnet/notebook/custom/custom.js"
  install -D -m 644 "$python/notebook/ipython_config.py" "$root/etc/ipython/ipython_config.py"
  install -D -m 644 -t "$root$packages/reclaimnet" "$python"/reclaimnet/*.py
  # Byte code that is not compared with its source: a guest compiles nothing itself. Some files are templates.
  case $kind in
    base) chroot "$root" python3 -m compileall -q --invalidation-mode unchecked-hash "$packages/reclaimnet" ;;
    python)
      chroot "$root" python3 -m compileall -q --invalidation-mode unchecked-hash /usr/lib/python3.11 "$packages" \
        >/dev/null || true
      ;;
  esac
}

# Read-only, as the guest, without a network but its loopback: the pages come, and a kernel keeps variables.
image_check() {
  IMAGE_LOOPBACK=1 image_run "$1" env RECLAIM_CHECKPOINT_DIR=/tmp RECLAIM_JOB_NUMBER=7 NOTEBOOK_PORT=8888 python - \
    <<'PYTHON'
import http.client, os, subprocess, time
import jupyter_client

def get(path):
    connection = http.client.HTTPConnection("127.0.0.1", 8888, timeout=30)
    connection.request("GET", "/notebooks/7/" + path)
    answer = connection.getresponse()
    return answer.status, answer.read()

guest = subprocess.Popen(["reclaim-notebook"])
for _ in range(120):
    try:
        if get("api")[0] == 200:
            break
    except OSError:
        pass
    assert guest.poll() is None, "reclaim-notebook has ended"
    time.sleep(0.5)
for path, part in (("tree", b"data-base-url"), ("custom/custom.js", b"reclaim-notice"), ("api/kernelspecs", b"python3"),
                   ("static/components/requirejs/require.js", b"require"),
                   ("static/components/jquery/jquery.min.js", b"jQuery")):
    status, body = get(path)
    assert status == 200 and part in body, (path, status, body[:200])
guest.terminate()
assert guest.wait(30) == 0, guest.returncode

manager = jupyter_client.KernelManager()
manager.start_kernel()
client = manager.client()
client.start_channels()
client.wait_for_ready(timeout=120)
said = []
def hear(message):
    said.append(str(message["content"].get("text", "")))
client.execute_interactive("kept = 6 * 7\n%reclaim_save kept\ndel kept\n%reclaim_load\nprint('kept is', kept)",
                           timeout=60, output_hook=hear)
client.stop_channels()
del client
manager.shutdown_kernel(now=True)
assert "kept is 42" in "".join(said), said
assert os.path.exists("/tmp/reclaim-variables.pickle")
print("image: Jupyter answers, and a kernel keeps its variables, as uid", os.getuid())
PYTHON
}

files=("${ours[@]}" "$here/lib/image_$kind.sh")
image_build "$name" "${BASH_SOURCE[0]}" "${files[@]}"
