# Prepares a container of udocker: version PROGRAM MODE
#                                 probe PROGRAM MODE SCRATCH TREE
#                                 prepare PROGRAM MODE SCRATCH IMAGE CONTAINER
#
# The image comes from Coracle's store; udocker gets the tree of it as a tar file, so that its own
# registry client is not needed. Containers are in the scratch directory and not in the user's own
# directory of udocker.
#
# The programs that start containers (PRoot, fakechroot, patchelf) are a download of their own,
# which `udocker install` puts into ~/.udocker. Without it udocker gets PRoot from PATH; runc and
# crun it finds there itself.
set -e
action=$1 udocker=$2 mode=$3 scratch=$4
own=${UDOCKER_DIR:-$HOME/.udocker}
exec 3>&1 1>&2

fail() { echo "error: $*"; exit 1; }
u() { "$udocker" -q --config="$scratch/udocker.conf" "$@"; }
has() { u inspect "$1" > /dev/null 2>&1; }
is_installed() { [ -e "$own/lib/VERSION" ]; }
version() { "$udocker" version 2>&1 | sed -n "s/^$1: *//p"; }

# The PRoot that udocker takes, on a kernel from 4.8 on.
engine() {
    if [ -n "$UDOCKER_USE_PROOT_EXECUTABLE" ]; then
        echo "$UDOCKER_USE_PROOT_EXECUTABLE"
    elif is_installed; then
        machine=$(uname -m | sed s/aarch64/arm64/)
        for one in "proot-$machine-4_8_0" "proot-$machine" proot; do
            [ ! -x "$own/bin/$one" ] || { echo "$own/bin/$one"; return; }
        done
        return 1
    else
        command -v proot
    fi
}

configure() {
    bin=$scratch/udocker/bin lib=$scratch/udocker/lib
    # With the file VERSION it does not download them.
    if is_installed; then
        bin=$own/bin lib=$own/lib
    else
        mkdir -p "$bin" "$lib"
        found=$(engine) || fail "neither its own programs (udocker install) nor proot are here"
        ln -sf "$found" "$bin/proot"
        version tarball_release > "$lib/VERSION"
    fi
    printf '[DEFAULT]\ntopdir = %s\nbindir = %s\nlibdir = %s\n' "$scratch/udocker" "$bin" "$lib" \
        > "$scratch/udocker.conf"
}

# What the kernel knows of seccomp filters, here or in the container.
filters='while read -r name value; do case $name in Seccomp*) echo "$name $value";; esac; done'
filters="$filters < /proc/self/status"

check() {
    u setup --execmode="$mode" "$1"
    status=0
    said=$(u run --nobanner "$1" /bin/sh -c 'exit 7' 2>&1) || status=$?
    [ "$status" -eq 7 ] || fail "\"exit 7\" of a shell in it ends with $status $said"
    [ "$mode" = P1 ] || return 0
    [ "$(u run --nobanner "$1" /bin/sh -c "$filters")" != "$(eval "$filters")" ] ||
        fail "P1 is PRoot with seccomp, and $(engine) does without: this would be P2"
}

case $action in
version)
    of=
    case $mode in P*)
        # The number stands beside a logo.
        ! found=$(engine) || of=+PRoot-$("$found" --version | grep -om1 '[0-9]*\.[0-9][0-9.]*')
    esac
    echo "$(version version)$of" >&3
    ;;
probe)
    configure
    container=lab-probe-$mode
    ! has "$container" || u rm -f "$container"
    tar -C "$5" -cf "$scratch/probe.tar" .
    u import --tocontainer --name="$container" "$scratch/probe.tar"
    rm "$scratch/probe.tar"
    check "$container"
    u rm -f "$container"
    ;;
prepare)
    image=$5 container=$6
    configure
    if ! has "$container"; then
        id=$(coracle create "$image" true)
        coracle export -o "$scratch/image.tar" "$id"
        coracle rm "$id"
        u import --tocontainer --name="$container" "$scratch/image.tar"
        rm "$scratch/image.tar"
    fi
    u setup --execmode="$mode" "$container"
    ;;
esac
