# A container that reaches a server of the host's, and one that is reached through published ports.
import errno
import hashlib
import socket
import sys
import threading


def say(*words):
    print(*words, flush=True)


def outcome(work):
    try:
        return work()
    except OSError as error:
        return errno.errorcode.get(error.errno, repr(error))


BLOCK = bytes(range(251)) * 256


def pieces(size):
    while size > 0:
        yield BLOCK[:min(size, len(BLOCK))]
        size -= len(BLOCK)


def connect(port=None):
    return socket.create_connection((HOST, port or PORT), 20)


def transfer(size):
    """Both ways at once; the end of one direction comes before the other's."""
    with connect() as end:
        end.sendall(b"both %d\n" % size)
        sent, got, count = hashlib.sha256(), hashlib.sha256(), 0

        def send():
            for piece in pieces(size):
                sent.update(piece)
                end.sendall(piece)
            end.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        while count < size:
            piece = end.recv(min(1 << 18, size - count))
            if not piece:
                break
            got.update(piece)
            count += len(piece)
        sender.join()
        # What the server has received, which it says after it has seen the end.
        told = end.makefile().readline().strip()
        say("there and back", count, sent.digest() == got.digest(), told == str(size))


def half_closed():
    with connect() as end:
        end.sendall(b"end\n")
        say("the host's end:", end.recv(10))
        end.sendall(b"still open\n")
        end.shutdown(socket.SHUT_WR)
    with connect() as end:
        end.sendall(b"reset\n")
        say("the host's reset:", outcome(lambda: end.recv(10)))


def many(count):
    ends = [connect() for _ in range(count)]
    for number, end in enumerate(ends):
        end.sendall(b"echo\n%d\n" % number)
    right = [end.makefile().readline() == f"{number}\n" for number, end in enumerate(ends)]
    say(len(ends), "connections at once", all(right))


def datagrams():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        end.settimeout(20)
        end.connect((HOST, PORT))
        for size in (0, 1, 1400, 9000, 65000):
            end.send(bytes(size))
            say("datagram", len(end.recv(1 << 16)))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        end.settimeout(20)
        end.connect((HOST, FREE))
        end.send(b"anybody?")
        say("no datagrams", outcome(lambda: end.recv(10)))


def client():
    say("refused", outcome(lambda: connect(FREE)))
    say("gateway", outcome(lambda: socket.create_connection((GATEWAY, PORT), 20)))
    half_closed()
    datagrams()
    many(200)
    transfer(SIZE)


def listener(port):
    server = socket.create_server(("0.0.0.0", port))
    while True:
        end, peer = server.accept()
        with end:
            end.sendall(b"%s %d\n" % (peer[0].encode(), port))


def answers(port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        end.bind(("0.0.0.0", port))
        say("ready")
        while True:
            text, peer = end.recvfrom(1 << 16)
            end.sendto(b"%s %d\n" % (peer[0].encode(), len(text)), peer)


if sys.argv[1] == "client":
    HOST, GATEWAY = sys.argv[2:4]
    PORT, FREE, SIZE = map(int, sys.argv[4:7])
    client()
else:
    for port in (80, 81):
        threading.Thread(target=listener, args=(port,), daemon=True).start()
    answers(54)
