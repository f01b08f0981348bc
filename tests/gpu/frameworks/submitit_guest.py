# SPDX-License-Identifier: Apache-2.0
"""What runs in a job of submitit's: its own `_submit`, on a pickle as its client leaves it. The client itself, which
needs sbatch where one is logged in, is not in this.

python3 submitit_guest.py FOLDER"""
import os
import pathlib
import sys
import time

import torch
import training


class Training:
    """Called again with what it was pickled with (submitit's checkpointing protocol)."""

    def __init__(self):
        self.step, self.saved = 0, None

    def checkpoint(self, *arguments):
        from submitit.helpers import DelayedSubmission
        training.say(f"saves step={self.step}")
        return DelayedSubmission(self, *arguments)

    def __call__(self):
        device = training.deterministic()
        network = training.network().to(device)
        optimizer = torch.optim.SGD(network.parameters(), 0.01)
        if self.saved is not None:
            network.load_state_dict(self.saved)
        training.say(f"begin step={self.step}")
        loss = torch.zeros(())
        while self.step < training.STEPS:
            inputs, targets = training.batch(self.step, device)
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(network(inputs), targets)
            loss.backward()
            optimizer.step()
            # One assignment each: submitit may pickle this between any two lines.
            self.__dict__.update(
                saved={name: one.detach().cpu().clone() for name, one in network.state_dict().items()},
                step=self.step + 1)
            training.say(f"step={self.step}")
            time.sleep(training.PACE_S)
        training.say_done(self.step, training.weights_of(network.state_dict()), loss)


if __name__ == "__main__":
    import submitit_guest  # under its own name in the pickle
    from submitit.core.utils import DelayedSubmission

    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    pickled = folder / f"{os.environ['SLURM_JOB_ID']}_submitted.pkl"
    if not pickled.exists():
        delayed = DelayedSubmission(submitit_guest.Training())
        delayed.set_timeout(24 * 60, 3)
        delayed.dump(pickled)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")]))
    os.execv(sys.executable, [sys.executable, "-u", "-m", "submitit.core._submit", str(folder)])
