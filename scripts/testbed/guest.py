# SPDX-License-Identifier: Apache-2.0
"""A guest of the testbed: a chain of hashes and a state of some MiB, of which each step rewrites the next part.
What it writes follows from the chain. Nothing else decides anything, so that every run of the same words ends with the
same bytes, however often it was interrupted.

    guest.py NAME STEPS SAVE_EVERY STEP_MS STATE_MIB BLOCKS [PEER:PORT] [handles-term]

state.ckpt: "STEP CHAIN\\n", the state; by rename. Each step sends "NAME STEPS_DONE SEQUENCE" to the peer. Standard
output: `begin step=N from=checkpoint|nothing time=T`, `saved step=N time=T`. At the end `result` has the chain and the
state's hash. With handles-term it saves on SIGTERM and leaves with 85, which asks to be started again."""
import hashlib
import os
import signal
import socket
import sys
import time

BLOCK = 64 << 10


def next_chain(name, chain, step):
    return hashlib.sha256(f"{name} {chain} {step}".encode()).hexdigest()


def rewritten(step, blocks, of):
    """Indices of the blocks that a step rewrites: those that follow the ones of the step before, round and round."""
    return [((step - 1) * blocks + index) % of for index in range(blocks)]


def block_of(chain, index):
    return hashlib.shake_128(f"{chain} block {index}".encode()).digest(BLOCK)


def dirty_bytes(state_mib, blocks, first, last):
    """What of the state differs between its saves at two steps, first < last."""
    of = (state_mib << 20) // BLOCK
    return min(of, (last - first) * blocks) * BLOCK


class Guest:
    def __init__(self, name, state_mib, blocks, folder="."):
        self.name, self.blocks, self.folder = name, blocks, folder
        self.step, self.chain = 0, "start"
        self.state = bytearray(state_mib << 20)

    def path(self, name):
        return os.path.join(self.folder, name)

    def resume(self):
        if not os.path.exists(self.path("state.ckpt")):
            return "nothing"
        with open(self.path("state.ckpt"), "rb") as file:
            step, self.chain = file.readline().decode().split()
            self.step, state = int(step), file.read()
        if len(state) != len(self.state):
            sys.exit(f"state.ckpt is torn: {len(state)} bytes of {len(self.state)}")
        self.state[:] = state
        return "checkpoint"

    def do_step(self):
        self.step += 1
        self.chain = next_chain(self.name, self.chain, self.step)
        for index in rewritten(self.step, self.blocks, len(self.state) // BLOCK):
            self.state[index * BLOCK:(index + 1) * BLOCK] = block_of(self.chain, index)

    def save(self):
        with open(self.path("state.tmp"), "wb") as file:
            file.write(f"{self.step} {self.chain}\n".encode())
            file.write(self.state)
            file.flush()
            os.fsync(file.fileno())
        os.replace(self.path("state.tmp"), self.path("state.ckpt"))

    def finish(self):
        self.save()
        with open(self.path("result"), "w") as file:
            file.write(f"{self.chain} {hashlib.sha256(self.state).hexdigest()}\n")


def undisturbed(name, steps, state_mib, blocks, folder):
    """The whole job without a pause, in `folder`, which then has result and state.ckpt."""
    guest = Guest(name, state_mib, blocks, folder)
    while guest.step < steps:
        guest.do_step()
    guest.finish()


def tell(text):
    print(f"{text} time={time.time():.3f}", flush=True)


def main(name, steps, save_every, step_ms, state_mib, blocks, peer="", handler=""):
    guest = Guest(name, int(state_mib), int(blocks))
    told = []
    if handler:
        signal.signal(signal.SIGTERM, lambda *_: told.append(1))
    origin = guest.resume()
    tell(f"begin step={guest.step} from={origin}")
    steps, save_every, step_s = int(steps), int(save_every), float(step_ms) / 1000
    sender, sequence = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0
    address = (peer.split(":")[0], int(peer.split(":")[1])) if peer else None
    while True:
        sequence += 1
        if address:
            try:
                sender.sendto(f"{name} {guest.step} {sequence}".encode(), address)
            except OSError:
                pass
        if guest.step >= steps:
            break
        time.sleep(step_s)
        guest.do_step()
        if guest.step % save_every == 0 or told:
            guest.save()
            tell(f"saved step={guest.step}")
        if told:
            tell(f"leaves step={guest.step}")
            sys.exit(85)
    guest.finish()
    tell(f"done step={guest.step}")


if __name__ == "__main__":
    main(*sys.argv[1:])
