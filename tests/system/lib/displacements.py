# SPDX-License-Identifier: Apache-2.0
"""What a displacement cost a guest, seen from outside: by the packets that it sends to a peer all the time. A packet
says how many steps were done ("cnn STEP SEQUENCE"), so the peer knows the last step before the cut, which no file of
the guest can tell: files travel with the checkpoint and forget what came after it. Times are the capture's stamps."""
import dataclasses


@dataclasses.dataclass
class Start:
    """One start of a guest: packets from one source with rising sequence numbers."""

    guest: str
    source: str
    packets: list  # (time, step) in order of time

    @property
    def first(self):
        return self.packets[0][0]

    @property
    def restored(self):
        """Steps done in the state from which it went on: its first packet is sent before any step of its own."""
        return self.packets[0][1]


@dataclasses.dataclass(frozen=True)
class Displacement:
    last: float  # last packet of the start before
    step: int  # steps that it had done by then
    silence_s: float = None  # from there to the first packet of any later start
    downtime_s: float = None  # from there to the first packet with a step that had not been done before
    restored: int = None  # steps in the state from which the start that did it went on, or the newest so far
    lost_steps: int = None  # done before and done again
    lost_s: float = None  # time that the start before had spent on them


class Starts:
    """The starts of one guest, from packets as they come."""

    def __init__(self, guest):
        self.guest, self.found, self.newest, self.taken = guest, [], {}, 0

    def take(self, packets):
        """All packets so far, of which those taken before are skipped; answers the starts, oldest first. Packets with
        other texts are left out."""
        for packet in packets[self.taken:]:
            words = packet.text.split(" ")
            if len(words) == 3 and words[0] == self.guest and words[1].isdigit() and words[2].isdigit():
                self._take(packet, int(words[1]), int(words[2]))
        self.taken = len(packets)
        return self.found

    def _take(self, packet, step, sequence):
        start, last = self.newest.get(packet.source, (None, 0))
        if start is None or sequence <= last:
            start = Start(self.guest, packet.source, [])
            self.found.append(start)
        start.packets.append((packet.time, step))
        self.newest[packet.source] = (start, sequence)


def displacement(found, since, until=float("inf"), cut=None):
    """Of the guest's start that was under way at `since`; None if there was none. `found` as Starts gives it.
    Packets of that start after `cut` do not count: they are those of a zombie whose cable was plugged in again."""
    before = [start for start in found if start.first < since]
    if not before:
        return None
    old = before[-1]
    after = [start for start in found if since <= start.first < until]
    end = cut if cut is not None else min((start.first for start in after), default=float("inf"))
    seen = [packet for packet in old.packets if packet[0] <= end]
    last, step = seen[-1][0], max(step for _, step in seen)
    if not after:
        return Displacement(last, step)
    is_new = [any(done > step for _, done in start.packets) for start in after]
    going_on = after[is_new.index(True)] if True in is_new else after[-1]
    downtime_s = next((time - last for time, done in going_on.packets if done > step), None)
    lost = max(0, step - going_on.restored)
    kept = next((time for time, done in seen if done >= going_on.restored), seen[0][0])
    return Displacement(
        last, step, after[0].first - last, downtime_s, going_on.restored, lost, last - kept if lost else 0.0)
