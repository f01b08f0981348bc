#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The base image: Debian 12's Python with PyTorch 1.13 (CPU) and scikit-learn, trimmed, with the user `guest` (uid
# 10001). Made without a registry or an engine, from Debian packages alone, and cached by its recipe. Prints the
# archive's path, fit for `docker import`; its SHA-256 lies beside it. Needs root; about a minute when not cached.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=lib/image.sh
source "$here/lib/image.sh"
# shellcheck source=lib/image_base.sh
source "$here/lib/image_base.sh"

image_make() {
  base_make "$@"
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

image_build base "${BASH_SOURCE[0]}" "$here/lib/image_base.sh"
