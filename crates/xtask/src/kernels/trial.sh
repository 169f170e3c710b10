#!/bin/sh
# First program on the disk: what a system has, then the trial itself, told to the second serial line.
# Lines that begin with `## ` are for the report.
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
hostname machine
stty -F /dev/ttyS1 raw
exec > /dev/ttyS1 2>&1 < /dev/null
. /trial/settings
export CORACLE_LAYER=/trial/layer.tar CORACLE_TEST_PATIENCE

as() {
    user=$1
    shift
    setpriv --reuid="$(id -u "$user")" --regid="$(id -g "$user")" --clear-groups -- \
        env -i HOME="/home/$user" USER="$user" PATH="$PATH" "$@"
}

# Kernels before 4.9 have no such switch; some distributions' have another.
namespaces() {
    for switch in /proc/sys/user/max_user_namespaces /proc/sys/kernel/unprivileged_userns_clone; do
        [ -e $switch ] && echo "$1" > $switch && return
    done
    [ "$1" != 0 ]
}

echo "## kernel $(uname -r)"
if namespaces 0; then echo "## user namespaces forbidden"; else echo "## user namespaces cannot be forbidden"; fi
echo "## doctor"
as coracle-plain /trial/coracle doctor
echo "## choice"
as coracle-plain /trial/coracle run --explain hello
echo "## hello"
as coracle-plain /trial/coracle run --rm hello
echo "## code $?"
echo "## suite without"
/trial/differential --test-threads=2 --skip N1:: --skip ::range:: $CASES
namespaces 10000
echo "## suite with"
/trial/differential --test-threads=2 --skip I1:: --skip I2:: --skip P1:: --skip P2:: $CASES
echo "## end"
sync
echo o > /proc/sysrq-trigger
sleep 60
