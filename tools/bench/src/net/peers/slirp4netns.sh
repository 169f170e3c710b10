# VXLAN in a network namespace behind slirp4netns.
set -e
PATH=/usr/sbin:/usr/bin:/sbin:/bin
: > /run/slirp-net; unshare --net=/run/slirp-net true
inside() { nsenter --net=/run/slirp-net "$@"; }
slirp4netns --netns-type=path --configure --mtu=65520 --api-socket=/run/slirp.sock \
    /run/slirp-net tap0 >/dev/null 2>&1 & slirp=$!
n=0; until test -S /run/slirp.sock && inside ip addr | grep -q 10.0.2.100; do
    n=$((n+1)); test $n -lt 100; sleep 0.1; done
python3 -c '
import socket
s = socket.socket(socket.AF_UNIX); s.connect("/run/slirp.sock")
s.sendall(b"""{"execute": "add_hostfwd", "arguments": {"proto": "udp",
"host_addr": "0.0.0.0", "host_port": 4790, "guest_port": 4790}}""")
s.shutdown(socket.SHUT_WR); exit(b"error" in s.recv(999))'
inside ip link add vxlan0 type vxlan id 1 remote 10.99.0.$2 dstport 4790
inside ip addr add 10.97.4.$1/24 dev vxlan0; inside ip link set vxlan0 mtu 1400 up
wait $slirp
