// Compiled code, threads, files, a server and its clients, other programs: the system interfaces
// that Node uses.
const fs = require('fs'), http = require('http'), child = require('child_process'), net = require('net');
const { Worker, isMainThread, parentPort } = require('worker_threads');

if (!isMainThread) {
  let sum = 0;
  for (let round = 0; round < 2e6; round++) sum += round % 7;
  parentPort.postMessage(sum + fs.readdirSync('/etc/apt').length * 0);
} else main().catch(error => { console.log(error); process.exit(1); });

async function many(what, count, each) {
  const ends = {};
  for (const end of await Promise.all(Array.from({ length: count }, (_, index) => each(index)))) ends[end] = (ends[end] || 0) + 1;
  console.log(what, JSON.stringify(ends));
}

async function main() {
  fs.mkdirSync('/srv/node');
  process.chdir('/srv/node');
  console.log(process.cwd(), process.getuid(), process.execPath);
  await many('files', 300, async index => {
    await fs.promises.writeFile('f' + index, 'x');
    await fs.promises.chown('f' + index, 5, 6);
    const facts = await fs.promises.stat('f' + index);
    await fs.promises.rm('f' + index);
    return facts.uid;
  });
  await many('workers', 4, () => new Promise((done, failed) => new Worker(__filename).on('message', done).on('error', failed)));
  await many('programs', 30, () => new Promise(done => child.execFile('/bin/sh', ['-c', 'pwd; exit 3'], (error, text) => done(text.trim() + error.code))));
  await many('as another', 5, () => new Promise(done => child.execFile('/usr/bin/id', ['-u'], { uid: 7, gid: 8 }, (error, text) => done(error ? error.code : text.trim()))));
  console.log(child.spawnSync('/nowhere').error.code, child.spawnSync(process.execPath, ['-p', '6*7']).stdout.toString().trim());
  const seen = [], watcher = fs.watch('/srv/node', (what, name) => seen.push(what + ' ' + name));
  fs.writeFileSync('/srv/node/watched', 'x'); fs.renameSync('watched', 'moved'); fs.unlinkSync('/srv/node/moved');
  await new Promise(done => { const look = () => seen.includes('rename moved') ? done() : setTimeout(look, 20); look(); });
  watcher.close();
  console.log(seen[0], seen[seen.length - 1]);
  const server = http.createServer((_, answer) => fs.createReadStream('/etc/debian_version').pipe(answer));
  await new Promise(done => server.listen(0, '127.0.0.1', done));
  const right = fs.readFileSync('/etc/debian_version', 'utf8');
  await many('http', 50, async () => {
    const answer = await fetch('http://127.0.0.1:' + server.address().port);
    return answer.status + ' ' + (await answer.text() === right);
  });
  server.closeAllConnections(); server.close();
  const local = net.createServer(one => one.end('hello')).listen('/srv/node/socket');
  await new Promise(done => local.on('listening', done));
  console.log(await new Promise(done => net.connect('/srv/node/socket').on('data', data => done(data.toString()))));
  local.close();
  const signalled = new Promise(done => process.on('SIGUSR2', done));
  process.kill(process.pid, 'SIGUSR2');
  console.log(await signalled);
  process.exitCode = 3;
}
