# Runs a script in the tree $1 on this host, with a /root, a /run and a /tmp of its own.
# What it says on its way is in /run/log.
set -e
mount --rbind /dev "$1/dev"
mount --bind /sys "$1/sys"
mount -t proc proc "$1/proc"
mount -t tmpfs -o mode=700 tmpfs "$1/root"
mount -t tmpfs -o mode=755 tmpfs "$1/run"
mount -t tmpfs -o mode=1777 tmpfs "$1/tmp"
exec chroot "$1" /bin/sh -euc "$2" 2> "$1/run/log"
