# SPDX-License-Identifier: Apache-2.0
"""Small request-response flows: a connection each, timed from connect to the last byte. Runs in a host's namespace.

    flows.py serve PORT BYTES        answers each connection's line with BYTES
    flows.py ask HOST PORT EVERY_MS SEED    one after the other, with exponential gaps; a line "BEGUN_UNIX TOOK_S" each
"""
import random
import socket
import sys
import threading
import time

GIVE_UP_S = 10


def answer(connection, data):
    with connection:
        connection.settimeout(GIVE_UP_S)
        try:
            if connection.recv(64):
                connection.sendall(data)
        except OSError:
            pass


def serve(port, size):
    listener = socket.create_server(("", port), backlog=64)
    print("listening", flush=True)
    data = bytes(size)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=answer, args=(connection, data), daemon=True).start()


def ask(host, port, every_s, seed):
    rng = random.Random(seed)
    while True:
        time.sleep(rng.expovariate(1 / every_s))
        begun, clock = time.time(), time.monotonic()
        try:
            with socket.create_connection((host, port), GIVE_UP_S) as connection:
                connection.sendall(b"please\n")
                while connection.recv(1 << 16):
                    pass
            print(f"{begun:.4f} {time.monotonic() - clock:.6f}", flush=True)
        except OSError:
            print(f"{begun:.4f} failed", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(int(sys.argv[2]), int(sys.argv[3]))
    else:
        ask(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]) / 1000, sys.argv[5])
