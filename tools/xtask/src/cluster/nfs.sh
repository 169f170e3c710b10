# The trial of two machines, after `machines/begin.sh`. The kernel's command line names them: `server`
# exports /export, and both mount it at /mnt.
for word in $(cat /proc/cmdline); do
    case $word in role=* | options=*) eval "${word%%=*}=\${word#*=}" ;; esac
done
hostname "$role"

ip link set lo up
ip link set eth0 up
if [ "$role" = server ]; then ip addr add 10.9.0.1/24 dev eth0; else ip addr add 10.9.0.2/24 dev eth0; fi
cat /proc/sys/kernel/random/uuid | tr -d - > /etc/machine-id
mkdir -p /run/rpcbind /var/lib/nfs/sm /var/lib/nfs/v4recovery /export
rpcbind -w
rpc.statd --no-notify
if [ "$role" = server ]; then
    mount -t nfsd nfsd /proc/fs/nfsd
    chown coracle-plain: /export
    echo '/export *(rw,sync,no_subtree_check,insecure,fsid=0)' > /etc/exports
    exportfs -ra
    rpc.mountd
    echo 15 > /proc/fs/nfsd/nfsv4gracetime
    echo 15 > /proc/fs/nfsd/nfsv4leasetime
    rpc.nfsd 4
fi
case $options in vers=4*) path=/ ;; *) path=/export ;; esac
until mount -t nfs -o "$options" "10.9.0.1:$path" /mnt; do sleep 2; done
grep nfs /proc/mounts

as() {
    setpriv --reuid=1001 --regid=1001 --clear-groups -- \
        env -i HOME=/home/coracle-plain USER=coracle-plain PATH="$PATH" "$@"
}
# Both hosts come to a point, or one has failed. A list of the directory shows what the other one
# has made.
meet() {
    as touch "/mnt/$1-$role"
    until ls /mnt | grep -q "^$1-server$" && ls /mnt | grep -q "^$1-client$"; do
        if ls /mnt | grep -q "^failed-"; then return 1; fi
        sleep 1
    done
}
coracle() {
    as CORACLE_DIR=/mnt/store /trial/coracle "$@"
}

echo "## two hosts, both by NFS"
[ "$role" = server ] && as mkdir /mnt/a /mnt/b
meet made
as CORACLE_CRASH_SHARED=/mnt/a CORACLE_CRASH_ROUNDS=8 /trial/crash
echo "## code $?"
case $options in
*nolock*) ;;
*)
    echo "## two hosts, the server by its own path"
    if [ "$role" = server ]; then place=/export/b; else place=/mnt/b; fi
    as CORACLE_CRASH_SHARED=$place CORACLE_CRASH_ROUNDS=8 /trial/crash
    echo "## code $?"
    ;;
esac

# The image is imported on the server; the rest happens on both at once.
work() {
    set -e
    if [ "$role" = server ]; then
        mkdir -p /tmp/tree/bin && cp /trial/busybox /tmp/tree/bin/busybox
        (cd /tmp/tree && ln -sf busybox bin/sh && tar -cf /tmp/tree.tar bin)
        coracle import /tmp/tree.tar tiny
    fi
    meet imported
    for mode in I1 P1 N1 F2; do
        coracle run --rm --execmode=$mode tiny /bin/busybox echo "$mode on $role" || {
            [ $mode = N1 ] || [ $mode = F2 ] || return 1
            echo "$mode is not possible here"
        }
    done
    # One makes and removes, the other collects, and may be the first: a container that does not run
    # is garbage.
    for round in 1 2 3 4 5 6; do
        if [ "$role" = server ]; then
            coracle create --name "made$round" tiny /bin/busybox true
            coracle rm "made$round" || [ -z "$(coracle ps -aq --filter "name=made$round")" ]
        else
            coracle prune --force
        fi
    done
    meet pruned
    # A container of the other host is not removed, whatever its process id is here.
    if [ "$role" = client ]; then
        coracle run -d --name long --execmode=I1 tiny /bin/busybox sleep 3000
        meet running
        meet refused
        pkill -KILL -U 1001 coracle || true
        pkill -KILL -U 1001 busybox || true
        meet killed
    else
        meet running
        if coracle rm -f long; then echo "removed although it runs"; return 1; fi
        meet refused
        meet killed
        removed=no
        for try in $(seq 60); do
            if coracle rm -f long; then removed=yes; break; fi
            sleep 2
        done
        [ $removed = yes ] || coracle rm --host-is-gone client long
        echo "removed by itself: $removed"
    fi
    meet removed
    coracle verify
    meet verified
}
echo "## the program"
(work)
code=$?
[ $code = 0 ] || as touch "/mnt/failed-$role"
echo "## code $code"
if [ "$role" = client ]; then
    echo "## the store's tests"
    # The server itself has removed files that killed processes here had not written yet. The first
    # sync of the mount tells that, whoever calls it.
    sync -f /mnt || echo "the first sync: $?"
    as mkdir -p /mnt/tests
    as TMPDIR=/mnt/tests /trial/store --test-threads=2 \
        --skip names_behave_like_a_map --skip every_flipped_bit
    echo "## code $?"
fi
as touch "/mnt/done-$role"
until ls /mnt | grep -q "^done-server$" && ls /mnt | grep -q "^done-client$"; do sleep 1; done
echo "## end"
sync
if [ "$role" = client ]; then umount /mnt; else sleep 5; fi
echo o > /proc/sysrq-trigger
sleep 60
