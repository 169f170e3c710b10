# Servers and clients of Python's library in two members of a network: the same facts as the C
# programs print, through getaddrinfo, asyncio, multiprocessing and http.
import asyncio
import http.server
import multiprocessing
import multiprocessing.connection
import multiprocessing.managers
import os
import socket
import socketserver
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

ROLE = sys.argv[1]
OTHER = "two" if ROLE == "one" else "one"
ADDRESS = {"one": "100.80.0.2", "two": "100.80.0.3"}
OWN = ADDRESS[ROLE]
PLACE = os.environ.get("MEETINGS", ".")
LIMIT = 15


def say(*words):
    print(*words, flush=True)


def meet(what):
    open(f"{PLACE}/{what}.{ROLE}", "w").close()
    end = time.monotonic() + LIMIT
    while not os.path.exists(f"{PLACE}/{what}.{OTHER}"):
        if time.monotonic() > end:
            say(f"{OTHER} never came to {what}")
            os._exit(4)
        time.sleep(0.002)


def shown(name):
    port = name[1] if name[1] < 20000 else "ephemeral"
    return f"{name[0]}:{port}"


def names():
    say("-- names")
    for name in ("one", "two", "localhost"):
        say(name, socket.gethostbyname(name))
        found = subprocess.run(["getent", "ahostsv4", name], stdout=subprocess.PIPE, text=True)
        say(name, found.returncode, found.stdout.split()[:1])
    for address, name in (("100.80.0.2", "one"), ("100.80.0.3", "two")):
        first, others, _ = socket.gethostbyaddr(address)
        say(address, "is", name, name in [first, *others])
    for name in ("one", "two"):
        found = socket.getaddrinfo(name, 80, type=socket.SOCK_STREAM)
        say(name, sorted({(family.name, where[:2]) for family, _, _, _, where in found}))


async def echo(reader, writer):
    say("peer", shown(writer.get_extra_info("peername")))
    say("self", shown(writer.get_extra_info("sockname")))
    while line := await reader.readline():
        writer.write(line.upper())
        await writer.drain()
    writer.close()


async def echo_server():
    server = await asyncio.start_server(echo, "0.0.0.0", 7000)
    # Without a host: one socket for each version, on one port.
    both = await asyncio.start_server(echo, None, 7001)
    shared = [await asyncio.start_server(echo, OWN, 7002, reuse_port=True) for _ in range(2)]
    for each in (server, both, *shared):
        say("sockets", sorted(shown(s.getsockname()) for s in each.sockets))
    await asyncio.to_thread(meet, "echo")
    await asyncio.to_thread(meet, "echoed")
    for each in (server, both, *shared):
        each.close()


async def echo_client():
    await asyncio.to_thread(meet, "echo")
    for port in (7000, 7001, 7002):
        reader, writer = await asyncio.open_connection(OTHER, port)
        say("peer", shown(writer.get_extra_info("peername")))
        say("self", shown(writer.get_extra_info("sockname")))
        for word in (b"a\n", b"bb\n"):
            writer.write(word)
            say(port, await reader.readline())
        writer.close()
        await writer.wait_closed()
    await asyncio.to_thread(meet, "echoed")
    for host in (OTHER, "localhost", ADDRESS[OTHER]):
        try:
            await asyncio.open_connection(host, 7009)
        except OSError as error:
            # A name with several addresses gives one error for each.
            say(host, "refused", isinstance(error, ConnectionRefusedError) or "[Errno 111]" in str(error))


class Datagrams(asyncio.DatagramProtocol):
    def __init__(self, heard):
        self.heard = heard

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, where):
        say("datagram", data, shown(where))
        if data.islower():
            self.transport.sendto(data.upper(), where)
        if not self.heard.done():
            self.heard.set_result(None)

    def error_received(self, error):
        say("datagram", type(error).__name__)
        if not self.heard.done():
            self.heard.set_result(None)


async def datagrams(serves):
    loop = asyncio.get_running_loop()
    heard = loop.create_future()
    if serves:
        transport, _ = await loop.create_datagram_endpoint(
            lambda: Datagrams(heard), local_addr=("0.0.0.0", 7003))
        await asyncio.to_thread(meet, "datagrams")
        await asyncio.wait_for(heard, LIMIT)
        await asyncio.to_thread(meet, "datagrams seen")
    else:
        await asyncio.to_thread(meet, "datagrams")
        transport, _ = await loop.create_datagram_endpoint(
            lambda: Datagrams(heard), remote_addr=(OTHER, 7003))
        say("datagram peer", shown(transport.get_extra_info("peername")))
        transport.sendto(b"question")
        await asyncio.wait_for(heard, LIMIT)
        await asyncio.to_thread(meet, "datagrams seen")
    transport.close()


TABLE = {}


class Manager(multiprocessing.managers.BaseManager):
    pass


def table():
    return TABLE


def managers(serves):
    if serves:
        Manager.register("table", callable=table, exposed=("get", "__setitem__", "__len__"))
        manager = Manager(address=(OWN, 7004), authkey=b"key")
        manager.start()
        say("manager", shown(manager.address))
        mine = manager.table()
        mine.__setitem__("one", 1)
        meet("manager")
        meet("managed")
        say("two put", mine.get("two"), len_of(mine))
        manager.shutdown()
        meet("manager ended")
    else:
        Manager.register("table", exposed=("get", "__setitem__", "__len__"))
        meet("manager")
        manager = Manager(address=(ADDRESS[OTHER], 7004), authkey=b"key")
        manager.connect()
        theirs = manager.table()
        say("one put", theirs.get("one"))
        theirs.__setitem__("two", [2, "zwei"])
        meet("managed")
        del theirs
        meet("manager ended")
        try:
            Manager(address=(ADDRESS[OTHER], 7004), authkey=b"key").connect()
        except OSError as error:
            say("manager", type(error).__name__)


def len_of(proxy):
    return proxy.__len__()


def child(address):
    with multiprocessing.connection.Client(address, authkey=b"key") as end:
        end.send(["from a child", end.recv() * 2])


def pipes():
    say("-- connections on loopback")
    with multiprocessing.connection.Listener(("localhost", 7005), authkey=b"key") as listener:
        say("listener", shown(listener.address))
        process = multiprocessing.Process(target=child, args=(listener.address,))
        process.start()
        with listener.accept() as end:
            say("accepted", shown(listener.last_accepted))
            end.send(21)
            say(end.recv())
        process.join()
        say("child", process.exitcode)


class Pages(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = f"{self.path} for {shown(self.client_address)}".encode()
        self.send_response(200 if self.path == "/page" else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass


class Reversed(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.wfile.write(line.strip()[::-1] + b"\n")


class Forking(socketserver.ForkingTCPServer):
    allow_reuse_address = True


def fetch(address):
    try:
        with urllib.request.urlopen(address, timeout=LIMIT) as page:
            return page.status, page.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    except urllib.error.URLError as error:
        return type(error.reason).__name__


def web(serves):
    if serves:
        pages = http.server.ThreadingHTTPServer((OWN, 80), Pages)
        local = http.server.ThreadingHTTPServer(("127.0.0.1", 80), Pages)
        forks = Forking(("", 7006), Reversed)
        for server in (pages, local, forks):
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            say("serves", shown(server.server_address))
        say(fetch("http://127.0.0.1/page"))
        say(fetch(f"http://{ROLE}/page"))
        meet("web")
        meet("fetched")
        for server in (pages, local, forks):
            server.shutdown()
            server.server_close()
        meet("web ended")
    else:
        meet("web")
        say(fetch(f"http://{OTHER}/page"))
        say(fetch(f"http://{OTHER}:80/missing"))
        say(fetch("http://127.0.0.1/page"))
        with socket.create_connection((OTHER, 7006)) as end:
            end.sendall(b"stressed\n")
            say(end.makefile().readline().strip())
        meet("fetched")
        meet("web ended")
        say(fetch(f"http://{OTHER}/page"))


def versions(serves):
    if serves:
        with socket.create_server(("", 7007), family=socket.AF_INET6, dualstack_ipv6=True) as server:
            meet("versions")
            for _ in range(3):
                end, where = server.accept()
                say("from", shown(where))
                end.close()
                if _ == 0:
                    meet("first version")
                    here = [socket.create_connection((host, 7007)) for host in ("::1", "127.0.0.1")]
            for end in here:
                say("peer", shown(end.getpeername()))
                end.close()
    else:
        meet("versions")
        with socket.create_connection((OTHER, 7007)) as end:
            say("self", shown(end.getsockname()), "peer", shown(end.getpeername()))
            meet("first version")


def main():
    multiprocessing.set_start_method("fork")
    meet("begin")
    names()
    say("-- asyncio")
    asyncio.run(echo_server() if ROLE == "one" else echo_client())
    asyncio.run(datagrams(ROLE == "one"))
    pipes()
    say("-- managers")
    managers(ROLE == "two")
    say("-- web")
    web(ROLE == "one")
    say("-- versions")
    versions(ROLE == "one")
    meet("end")


main()
