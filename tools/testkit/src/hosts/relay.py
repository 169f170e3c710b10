"""Passes frames between two interfaces, loses some and delays all.

Usage: relay.py ONE OTHER LOSS DELAY, with LOSS as a part of one and DELAY in seconds. Frames keep
their offload header (PACKET_VNET_HDR), so large ones and partial checksums pass as they are. The
kernels of these tests have no netem, which would do the same.
"""

import heapq
import itertools
import random
import select
import socket
import sys
import time

SOL_PACKET, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING = 263, 15, 23
ETH_P_ALL = 3
LONGEST = 70000
# A link holds so many frames, as a queue of a real one does.
ROOM = 4000


def open_end(name):
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    end.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    end.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    end.bind((name, ETH_P_ALL))
    end.setblocking(False)
    return end


def main():
    one, other = (open_end(name) for name in sys.argv[1:3])
    loss, delay = (float(word) for word in sys.argv[3:5])
    across = {one: other, other: one}
    waiting, numbers = [], itertools.count()
    print("ready", flush=True)
    while True:
        pause = max(0, waiting[0][0] - time.monotonic()) if waiting else None
        ready, _, _ = select.select([one, other], [], [], pause)
        now = time.monotonic()
        for end in ready:
            for _ in range(64):
                try:
                    frame = end.recv(LONGEST)
                except BlockingIOError:
                    break
                except OSError:
                    # The interface is down.
                    break
                if random.random() >= loss and len(waiting) < ROOM:
                    heapq.heappush(waiting, (now + delay, next(numbers), across[end], frame))
        while waiting and waiting[0][0] <= now:
            _, _, end, frame = heapq.heappop(waiting)
            try:
                end.send(frame)
            except OSError:
                # A full queue, or an interface that is down.
                pass


main()
