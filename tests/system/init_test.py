# SPDX-License-Identifier: Apache-2.0
"""reclaim-init tells an own end from a vanished container, whatever the guest does to its disk.

Runs it in mount and PID namespaces of its own, its root a small scratch tmpfs."""

import os
import subprocess
import tempfile
import unittest

INIT = os.path.join(os.environ.get("RN_BUILD", "build/ci"), "apps/reclaim-init/reclaim-init")
SETUP = """set -e
mount -t tmpfs -o size=4m,nr_inodes=60 none "$1"
cd "$1"
mkdir usr reclaim dev
mount --rbind -o ro /usr usr
mount -o remount,bind,ro usr
for i in bin lib lib64; do ln -s usr/$i $i; done
touch dev/null
mount --bind /dev/null dev/null
cp "$2" init
printf t > reclaim/go
rc=0
unshare --pid --fork chroot "$1" /init 1000 5 t /bin/sh -c "$3" || rc=$?
echo "rc $rc"
[ ! -f reclaim/exit ] || echo "exit $(cat reclaim/exit)"
"""
CAN = subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True)


@unittest.skipUnless(CAN.returncode == 0, "needs the right to make namespaces")
class Init(unittest.TestCase):
    def end_of(self, command):
        with tempfile.TemporaryDirectory() as root:
            done = subprocess.run(
                ["unshare", "--mount", "--propagation", "private", "sh", "-c", SETUP, "sh", root,
                 os.path.abspath(INIT), command],
                capture_output=True, text=True, timeout=30, check=True)
        return done.stdout.split("\n")[:-1]

    def test_a_command_that_used_up_the_inodes_ended_by_itself(self):
        fill = "i=0; while : 2>/dev/null >/reclaim/f$i; do i=$((i+1)); [ $i -lt 99 ] || break; done;"
        self.assertEqual(self.end_of("(%s) 2>/dev/null; exit 255" % fill), ["rc 255", "exit 255"])

    def test_a_folder_in_the_place_of_the_code_hides_nothing(self):
        self.assertEqual(
            self.end_of("mkdir -p /reclaim/exit/full; exit 0"), ["rc 0", "exit 0"])

    def test_an_end_that_cannot_be_written_has_a_code_that_no_engine_makes_up(self):
        block = "rm /reclaim/.exit.new; mkdir -p /reclaim/.exit.new/full;"
        self.assertEqual(self.end_of(block + " exit 0"), ["rc 124"])
        self.assertEqual(self.end_of(block + " exit 7"), ["rc 7"])


if __name__ == "__main__":
    unittest.main()
