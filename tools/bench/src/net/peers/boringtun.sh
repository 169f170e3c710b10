# WireGuard in userspace, $3. The keys are made of the hosts' numbers, so each host knows both.
set -e
PATH=/usr/sbin:/usr/bin:/sbin:/bin
key() { printf '%032d' $1 | base64; }
export WG_SUDO=true; mkdir -p /run/wireguard; $3 --foreground wg0 >/dev/null & boringtun=$!
n=0; until test -S /run/wireguard/wg0.sock; do n=$((n+1)); test $n -lt 100; sleep 0.1; done
key $1 > /run/wireguard/key
wg set wg0 private-key /run/wireguard/key listen-port 51820 \
    peer $(key $2 | wg pubkey) allowed-ips 10.97.2.0/24 endpoint 10.99.0.$2:51820
ip addr add 10.97.2.$1/24 dev wg0; ip link set wg0 mtu 1420 up
wait $boringtun
