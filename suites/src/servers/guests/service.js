// `service.js serve` is a server of HTTP on port 80, `service.js call` its client at `node`.
const dns = require('dns');
const http = require('http');
const os = require('os');

if (process.argv[2] === 'serve') {
  http.createServer((request, response) => {
    let length = 0;
    request.on('data', (piece) => { length += piece.length; });
    request.on('end', () => response.end(`${length} from ${request.socket.remoteAddress}`));
  }).listen(80, () => console.log('ready'));
} else {
  const own = async () => (await dns.promises.lookup(os.hostname(), 4)).address;
  (async () => {
    const texts = await Promise.all([...Array(50).keys()].map(async (number) => {
      const answer = await fetch('http://node/', { method: 'POST', body: 'x'.repeat(number * 1000) });
      return [number, await answer.text()];
    }));
    // The server listens on all addresses of both kinds, so IPv4's have IPv6's form.
    const right = texts.filter(([number, text]) => text === `${number * 1000} from ::ffff:${address}`);
    console.log(right.length);
    console.log((await dns.promises.resolve4('node')).length, await dns.promises.resolve6('node').catch((error) => error.code));
    console.log(await dns.promises.resolve4('nobody.' + process.argv[3]).catch((error) => error.code));
    console.log(await fetch('http://node:81/').catch((error) => error.cause.code));
  }).call(null, own().then((found) => { globalThis.address = found; }));
}
