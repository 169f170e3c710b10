# What a network without packets does not have: raw sockets, packet sockets, groups. `limits.py
# listen` waits for a datagram to its own address on a socket that is in a group, too; `limits.py
# ask NAME` sends one to the group and one to NAME.
import errno
import socket
import sys

GROUP, PORT = "239.255.77.7", 7777


def tried(make):
    try:
        make()
        return "ok"
    except OSError as error:
        return errno.errorcode[error.errno]


with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    if sys.argv[1] == "listen":
        s.bind(("", PORT))
        member = socket.inet_aton(GROUP) + socket.inet_aton("0.0.0.0")
        # Without a route to groups the host has none.
        joined = tried(lambda: s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member))
        print("ready", joined in ("ok", "ENODEV"), flush=True)
        while True:
            word, place = s.recvfrom(64)
            print("got", word.decode(), flush=True)
            s.sendto(place[0].encode(), place)
    print("raw", tried(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)))
    print("packet", tried(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0x300)))
    print("group", tried(lambda: s.sendto(b"group", (GROUP, PORT))) in ("ok", "ENETUNREACH"))
    print("broadcast", tried(lambda: s.sendto(b"all", ("255.255.255.255", PORT))))
# Another socket, because a stranger on the host may answer the group.
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.settimeout(20)
    s.sendto(b"member", (sys.argv[2], PORT))
    seen, own = s.recv(64).decode(), socket.gethostbyname(socket.gethostname())
    print("answer", seen == own or f"{seen} for {own}")
