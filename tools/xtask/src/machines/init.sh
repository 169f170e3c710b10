#!/bin/busybox sh
# First program of the initial file system: loads modules, mounts the disk, goes over to it.
# A failure ends the machine, since the kernel panics then and is told not to wait.
/bin/busybox mkdir -p /proc /sys /dev /disk
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t devtmpfs dev /dev
for module in $(/bin/busybox cat /modules/order); do
    /bin/busybox insmod "/modules/$module" || echo "no module $module"
done
/bin/busybox ifconfig lo 127.0.0.1 up
tries=0
while [ ! -b /dev/vda ] && [ $tries -lt 60 ]; do
    /bin/busybox sleep 1
    tries=$((tries + 1))
done
/bin/busybox mount -t ext4 /dev/vda /disk || exit 1
/bin/busybox umount /dev /proc
exec /bin/busybox switch_root /disk /trial/run
