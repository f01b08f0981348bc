#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The base image: Debian 12's Python with PyTorch 1.13 (CPU) and scikit-learn, trimmed, with the user `guest` (uid
# 10001). Made without a registry or an engine, from Debian packages alone, and cached by its recipe. Prints the
# archive's path, fit for `docker import`; its SHA-256 lies beside it. Needs root; about a minute when not cached.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=lib/image.sh
source "$here/lib/image.sh"

include=(base-files bash dash coreutils diffutils findutils grep gzip sed tar mawk libc-bin mount procps util-linux
  python3 python3-torch python3-sklearn libopenblas0-pthread)
# Dependencies of packages, not of anything that runs: a C++ translator, a test library, graphics drivers, icons.
dummies=(python3-pythran python3-sympy libllvm15 libgl1-mesa-dri python3-hypothesis iso-codes xkb-data shared-mime-info)
# Found by looking for what is large and never opened while training. NOTE: OpenCV, Qt, ffmpeg and GDAL must stay:
# they are mapped when torch is imported.
trash=(
  'usr/share/doc/*' 'usr/share/man' 'usr/share/info' 'usr/share/locale' 'usr/share/lintian' 'usr/share/bug'
  'usr/share/proj/*' 'usr/share/gdcm-3.0' 'usr/share/gdal' 'usr/share/fonts' 'usr/share/X11' 'usr/share/libwacom'
  'usr/share/libthai' 'usr/share/tesseract-ocr' 'usr/share/common-licenses' 'usr/share/gcc'
  'usr/lib/python3/dist-packages/torch/bin/*[tT]est*' 'usr/lib/python3/dist-packages/torch/bin/tutorial*'
  'usr/lib/libtorch-test'
  'usr/lib/x86_64-linux-gnu/mfx' 'usr/lib/x86_64-linux-gnu/qt5/plugins' 'usr/lib/x86_64-linux-gnu/libgphoto2'
  'usr/lib/x86_64-linux-gnu/gstreamer-1.0' 'usr/lib/ogdi' 'usr/lib/udev' 'usr/lib/systemd' 'usr/lib/valgrind'
  'var/cache/*' 'var/lib/apt' 'var/log/*' 'etc/apt' 'dev/*'
)

# Everything that a maintainer script would have done and that we need.
finish_root() {
  local root=$1 lib=$1/usr/lib/x86_64-linux-gnu
  local name
  for name in libblas.so.3 liblapack.so.3 libopenblas.so.0; do
    ln -sf "openblas-pthread/$name" "$lib/$name"
  done
  ln -s python3 "$root/usr/bin/python"
  ln -s mawk "$root/usr/bin/awk"
  image_accounts "$root"
  chroot "$root" ldconfig
  rm -f "$root/var/cache/ldconfig/aux-cache"
  # Byte code that is not compared with its source: the files never change. NOTE: compileall's own -j wants semaphores
  # in /dev/shm, which a chroot does not have. Some files are templates or for other versions: image_check looks.
  chroot "$root" python3 -m compileall -q --invalidation-mode unchecked-hash -x '/torch/' \
    /usr/lib/python3.11 /usr/lib/python3/dist-packages >/dev/null &
  chroot "$root" python3 -m compileall -q --invalidation-mode unchecked-hash /usr/lib/python3/dist-packages/torch \
    >/dev/null || true
  wait "$!" || true
}

image_make() {
  local root=$1 work=$2 pattern
  image_dummies "$work/dummies" "${dummies[@]}"
  { image_sources; echo "deb [trusted=yes] copy:$work/dummies ./"; } |
    mmdebstrap --quiet --variant=extract --mode=root --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr \
      --include="$(IFS=,; echo "${include[*]}")" bookworm "$root" -
  for pattern in "${trash[@]}"; do
    # shellcheck disable=SC2086 # the pattern is to be expanded
    (cd "$root" && rm -rf $pattern)
  done
  find "$root/usr/lib/python3/dist-packages" -depth -type d \( -name tests -o -name test \) \
    \( -path '*/numpy/*' -o -path '*/scipy/*' -o -path '*/sklearn/*' -o -path '*/joblib/*' \) -exec rm -rf {} +
  finish_root "$root"
}

# Read-only, as the guest, without network: what a training does.
image_check() {
  image_run "$1" python - <<'PYTHON'
import io, os, sys
import numpy, scipy.linalg, sklearn.datasets, sklearn.linear_model, torch
assert os.getuid() == 10001
# A guest compiles nothing itself: it would for each of its starts.
missing = [name for name, module in sys.modules.items()
           if (compiled := getattr(module, "__cached__", None)) and not os.path.exists(compiled)]
assert not missing, f"not compiled: {missing}"
try:
    open("/usr/probe", "w")
    raise SystemExit("the root is writable")
except OSError:
    pass
torch.manual_seed(1)
torch.use_deterministic_algorithms(True)
digits = sklearn.datasets.load_digits()
x = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
y = torch.tensor(digits.target)
model = torch.nn.Sequential(torch.nn.Conv2d(1, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(),
                            torch.nn.Linear(512, 10))
optimizer = torch.optim.Adam(model.parameters())
losses = []
for _ in range(5):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x[:256]), y[:256])
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0], losses
layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
assert layer(torch.rand(4, 8, 16)).shape == (4, 8, 16)
buffer = io.BytesIO()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, buffer)
buffer.seek(0)
torch.load(buffer)
torch.fft.fft(torch.rand(8)), torch.linalg.svd(torch.rand(4, 4)), torch.jit.script(model)(x[:2])
assert numpy.allclose(scipy.linalg.inv(numpy.eye(3)), numpy.eye(3))
fit = sklearn.linear_model.LogisticRegression(max_iter=500).fit(digits.data[:500] / 16, digits.target[:500])
assert fit.score(digits.data[500:] / 16, digits.target[500:]) > 0.8
for batch in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x[:64], y[:64]), batch_size=32, num_workers=1):
    assert batch[0].shape[0] == 32
print("image: torch", torch.__version__, "scikit-learn", sklearn.__version__, "train as uid", os.getuid())
PYTHON
}

image_build base "${BASH_SOURCE[0]}"
