-- Lua in a tree in which musl is the only library.
local lines = 0
for _ in io.lines('/etc/passwd') do lines = lines + 1 end
print(_VERSION, lines)
for n = 1, 100 do
  local file = assert(io.open('/tmp/f' .. n, 'w'))
  file:write(('x'):rep(n)); file:close()
  assert(os.rename('/tmp/f' .. n, '/tmp/g' .. n))
end
local pipe = io.popen('ls /tmp | wc -l; pwd')
print(pipe:read('n', 'l', 'l')); print(pipe:close())
print(os.execute('exit 3')); print(os.execute('kill -9 $$'))
print(io.open('/nowhere/file')); print(os.remove('/etc'))
package.cpath = '/lib/?.so'
print(require('workers').run(8, 100))
local seen = {}
for line in io.lines('/proc/self/maps') do
  local path = line:match(' (/%S+)$')
  if path and (path:find('musl') or path:find('workers')) then seen[path] = true end
end
print(seen['/lib/ld-musl-x86_64.so.1'], seen['/lib/workers.so'])
