# Threads, processes of all three kinds, shared memory, locks, and asynchronous programs: the system
# interfaces that Python's workers use.
import asyncio, concurrent.futures, multiprocessing, os, signal, socket, subprocess, sys, tempfile, threading, time
from multiprocessing import shared_memory


def square(n):
    with open('/etc/hostname'):
        return n * n if os.path.exists('/etc/passwd') else -1


def add(total, lock, event, queue, name):
    event.wait(60)
    memory = shared_memory.SharedMemory(name)
    for _ in range(100):
        with lock:
            total.value += 1
            memory.buf[0] = (memory.buf[0] + 1) % 251
    memory.close()
    queue.put(os.path.basename(os.getcwd()))


def kind(name):
    context = multiprocessing.get_context(name)
    total, lock, event, queue = context.Value('i', 0, lock=False), context.Lock(), context.Event(), context.Queue()
    memory = shared_memory.SharedMemory(create=True, size=100)
    workers = [context.Process(target=add, args=(total, lock, event, queue, memory.name)) for _ in range(3)]
    for worker in workers: worker.start()
    event.set()
    places = {queue.get(timeout=60) for _ in workers}
    for worker in workers: worker.join(60)
    with context.Pool(3) as pool:
        squares = sum(pool.map(square, range(50)))
    print(name, total.value, memory.buf[0], places, [worker.exitcode for worker in workers], squares)
    memory.close(); memory.unlink()


def threads():
    top, errors, lock = tempfile.mkdtemp(), [], threading.Lock()
    def work(index):
        for round in range(40):
            path = f'{top}/{index}-{round}'
            with open(path, 'w') as file: file.write('x' * round)
            os.chown(path, 5, 6); facts = os.stat(path); os.rename(path, path + '+')
            if (facts.st_size, facts.st_uid) != (round, 5) or subprocess.call(['true']) if round % 20 == 0 else False:
                with lock: errors.append(path)
    all = [threading.Thread(target=work, args=(index,)) for index in range(20)]
    for one in all: one.start()
    for one in all: one.join()
    with concurrent.futures.ThreadPoolExecutor(30) as pool:
        found = sum(pool.map(lambda n: os.path.isdir('/etc') + (not os.path.exists(f'/nowhere/{n}')), range(500)))
    print('threads', len(os.listdir(top)), errors, found)


async def run(index):
    child = await asyncio.create_subprocess_exec('sh', '-c', 'read line; echo "$line $PWD"; exit $0', str(index), stdin=-1, stdout=-1, cwd='/srv')
    out, _ = await child.communicate(b'hello\n')
    return child.returncode, out


async def asynchronous():
    ends = await asyncio.gather(*[run(index) for index in range(30)])
    print('programs', sum(code for code, _ in ends), {out for _, out in ends})
    child = await asyncio.create_subprocess_exec('sleep', '100')
    try:
        await asyncio.wait_for(child.wait(), 0.2)
    except asyncio.TimeoutError:
        child.terminate()
    print('ended', await child.wait())
    path = tempfile.mkdtemp() + '/' + 'long' * 30
    async def answer(reader, writer):
        writer.write((await reader.readline()).upper()); await writer.drain(); writer.close()
    os.mkdir(path); os.chdir(path)
    server = await asyncio.start_unix_server(answer, path + '/socket' if len(path) < 90 else 'socket')
    reader, writer = await asyncio.open_unix_connection('socket')
    writer.write(b'quiet\n'); print('socket', await reader.readline()); writer.close(); server.close()
    got = asyncio.Event(); loop = asyncio.get_running_loop(); loop.add_signal_handler(signal.SIGUSR1, got.set)
    os.kill(os.getpid(), signal.SIGUSR1); await asyncio.wait_for(got.wait(), 30); print('signal')
    print('in a thread', await asyncio.to_thread(os.path.realpath, '/proc/self/cwd') == path)


if __name__ == '__main__':
    os.chdir('/srv')
    threads()
    for name in ('fork', 'spawn', 'forkserver'): kind(name)
    asyncio.run(asynchronous())
    pid = os.posix_spawn('/bin/sh', ['sh', '-c', 'exit 7'], os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, '/srv/out', os.O_CREAT | os.O_WRONLY, 0o600)], setsigdef=[signal.SIGUSR1], setpgroup=0)
    print('spawned', os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), os.path.exists('/srv/out'))
