# Runs in a tree with only Busybox.
set -eu
n=0; while [ $n -lt 50 ]; do /bin/true; n=$((n+1)); done; echo "$n of $(readlink /bin/sh)"
[ "$(find / -xdev -type f | wc -l)" = "$(find / -xdev -type f -print0 | xargs -0 ls -1d | wc -l)" ] && echo found
tar cf /t.tar docs; mkdir /u; tar xf /t.tar -C /u; diff -r docs /u/docs && echo unpacked
gzip -c /t.tar > /t.gz; zcat /t.gz | cmp - /t.tar && echo zipped
(seq 1000 | awk '{ sum += $1 } END { print sum }'; echo b; echo a) | sort | tr '\n' ' '; echo
id -u; id -un; stat -c '%U %a %F' /etc/passwd; chown 7:8 /etc/passwd; stat -c '%u:%g' /etc/passwd; (cd docs; pwd)
mkfifo p; (sleep 0.1; echo through > p) & cat p; wait
sleep 60 & kill $!; wait $! || echo "killed $?"
setsid sh -c 'echo session'; timeout 1 sleep 30 || echo "timeout $?"
port=20000; while ! httpd -p 127.0.0.1:$port -h /docs 2>/dev/null && [ $port -lt 60000 ]; do port=$((port + 37)); done
wget -q -O - http://127.0.0.1:$port/README | cmp - docs/README && echo served; wget -q -O - http://127.0.0.1:$port/missing || echo "missing $?"
kill $(ps | awk -v "port=127.0.0.1:$port" '/[h]ttpd -p/ && index($0, port) { print $1 }'); sleep 0.2; ps | grep -c "[h]ttpd -p 127.0.0.1:$port" || true
