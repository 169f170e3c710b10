# Prepares a container of udocker: probe PROGRAM MODE SCRATCH TREE
#                                 prepare PROGRAM MODE SCRATCH IMAGE CONTAINER
#
# The image comes from Coracle's store; udocker gets the tree of it as a tar file, so that its own
# registry client is not needed.
set -e
action=$1 udocker=$2 mode=$3 scratch=$4
shift 4
exec 3>&1 1>&2

has() { "$udocker" inspect "$1" > /dev/null 2>&1; }

case $action in
probe)
    container=lab-probe-$mode
    ! has "$container" || "$udocker" -q rm "$container"
    tar -C "$1" -cf "$scratch/probe.tar" .
    "$udocker" -q import --tocontainer --name="$container" "$scratch/probe.tar"
    "$udocker" -q setup --execmode="$mode" "$container"
    "$udocker" -q run --nobanner "$container" /bin/true
    "$udocker" -q rm "$container"
    ;;
prepare)
    image=$1 container=$2
    if ! has "$container"; then
        id=$(coracle create "$image" true)
        coracle export -o "$scratch/image.tar" "$id"
        coracle rm "$id"
        "$udocker" -q import --tocontainer --name="$container" "$scratch/image.tar"
        rm "$scratch/image.tar"
    fi
    "$udocker" -q setup --execmode="$mode" "$container"
    ;;
esac
