# VXLAN in a network namespace behind pasta. That wants a default route on its host.
set -e
PATH=/usr/sbin:/usr/bin:/sbin:/bin
: > /run/pasta-net; unshare --net=/run/pasta-net true
inside() { nsenter --net=/run/pasta-net "$@"; }
ip route add default via 10.99.0.254 dev eth0 || true
pasta --foreground --quiet --runas 0 --config-net -i eth0 -t none -u 4789 -T none -U none \
    --netns-only --netns /run/pasta-net & pasta=$!
n=0; until inside ip addr | grep -q 10.99.0.$1; do n=$((n+1)); test $n -lt 100; sleep 0.1; done
inside ip link add vxlan0 type vxlan id 1 remote 10.99.0.$2 dstport 4789
inside ip addr add 10.97.3.$1/24 dev vxlan0; inside ip link set vxlan0 mtu 1400 up
wait $pasta
