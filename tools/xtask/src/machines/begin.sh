#!/bin/sh
# Beginning of the first program on the disk: what a system has. From here on the output goes to the
# second serial line; lines that begin with `## ` are for the report.
# The kernel's first process is in no group and in no session; who is started by a login is.
[ "$1" = leads ] || { setsid --wait "$0" leads; exit 1; }
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts /dev/pts
mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t tmpfs -o mode=755 run /run
for link in 0:stdin 1:stdout 2:stderr; do ln -sf "/proc/self/fd/${link%:*}" "/dev/${link#*:}"; done
ln -sfn /proc/self/fd /dev/fd
stty -F /dev/ttyS1 raw
exec > /dev/ttyS1 2>&1 < /dev/null
