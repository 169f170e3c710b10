# Accepts connections on port 7000. When the file /NAME appears, it sends the line NAME to all, and
# prints which answers came and how many of each.
import collections
import os
import selectors
import socket
import sys
import time

listener = socket.create_server(("", 7000), backlog=200)
want = int(sys.argv[1])
ends = [listener.accept()[0].makefile("rw") for _ in range(want)]
print("all are connected", flush=True)
asked = set()
while True:
    for name in ("first", "second"):
        if name not in asked and os.path.exists(f"/{name}"):
            asked.add(name)
            for end in ends:
                end.write(f"{name}\n")
                end.flush()
            answers = collections.Counter(end.readline().strip() for end in ends)
            print(name, dict(answers), flush=True)
    time.sleep(0.05)
