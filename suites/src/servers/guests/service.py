# `service.py serve` is a server by asyncio on port 80 and a manager of shared objects on port 5000.
# `service.py call` is the client of both at the server `python`.
import asyncio
import multiprocessing.managers
import queue
import socket
import sys
import threading
import time


class Shared(multiprocessing.managers.BaseManager):
    pass


async def greet(reader, writer):
    async for line in reader:
        host = writer.get_extra_info("peername")[0]
        writer.write(b"%s for %s\n" % (line.strip(), host.encode()))
        await writer.drain()
    writer.close()


async def serve():
    words = queue.Queue()
    results = {}
    Shared.register("words", callable=lambda: words)
    Shared.register("results", callable=lambda: results, proxytype=multiprocessing.managers.DictProxy)
    manager = Shared(address=("", 5000), authkey=b"key").get_server()
    threading.Thread(target=manager.serve_forever, daemon=True).start()
    server = await asyncio.start_server(greet, "", 80)
    print("ready", flush=True)
    await server.serve_forever()


async def talk(number):
    reader, writer = await asyncio.open_connection("python", 80)
    for turn in range(20):
        writer.write(b"%d.%d\n" % (number, turn))
        line = await reader.readline()
        word, _, host = line.decode().partition(" for ")
        assert word == f"{number}.{turn}", line
    writer.close()
    return host.strip()


async def call():
    hosts = await asyncio.gather(*(talk(number) for number in range(40)))
    print(set(hosts) == {socket.gethostbyname(socket.gethostname())}, len(hosts))
    Shared.register("words")
    Shared.register("results", proxytype=multiprocessing.managers.DictProxy)
    manager = Shared(address=("python", 5000), authkey=b"key")
    manager.connect()
    words, results = manager.words(), manager.results()
    for number in range(100):
        words.put(number)
    while not words.empty():
        number = words.get()
        results.update({number: number * number})
    print(sum(results.values()))
    wrong = Shared(address=("python", 5000), authkey=b"wrong")
    try:
        wrong.connect()
    except multiprocessing.AuthenticationError:
        print("refused")
    for name, port in (("python", 81), ("nobody", 80)):
        try:
            await asyncio.open_connection(name, port)
        except OSError as error:
            print(type(error).__name__)


asyncio.run(serve() if sys.argv[1] == "serve" else call())
