# Prints the name of the interface that has the address given, as programs find it.
import fcntl
import socket
import struct
import sys

SIOCGIFADDR = 0x8915

with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    for _, name in socket.if_nameindex():
        try:
            answer = fcntl.ioctl(s, SIOCGIFADDR, struct.pack("256s", name.encode()))
        except OSError:
            continue
        if socket.inet_ntoa(answer[20:24]) == sys.argv[1]:
            print(name)
