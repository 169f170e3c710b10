# The trial, after `machines/begin.sh`.
hostname machine
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
CORACLE_BIN=/trial/coracle /trial/suites --test-threads=2 --skip N1:: --skip ::range:: $CASES
namespaces 10000
echo "## suite with"
CORACLE_BIN=/trial/coracle /trial/suites --test-threads=2 --skip I1:: --skip I2:: --skip P1:: --skip P2:: $CASES
echo "## end"
sync
echo o > /proc/sysrq-trigger
sleep 60
