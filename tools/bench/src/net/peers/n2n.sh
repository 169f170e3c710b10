# Two edges, and on the first host the supernode that makes them known to each other.
set -e
PATH=/usr/sbin:/usr/bin:/sbin:/bin
if test $1 = 1; then supernode -l 7654 >/dev/null & fi
exec edge -d n2n0 -a 10.97.1.$1 -s 255.255.255.0 -c bench -k bench -l 10.99.0.1:7654 >/dev/null
