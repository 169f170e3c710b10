#!/bin/sh
# Starts a command in a simulated node, in the place of `ssh`: HOST WORD...
#
# A launcher of MPI calls it on the front end, which may enter the nodes' namespaces. The file
# `nodes` beside it has a line `ADDRESS PROCESS` for each node.
while read -r address process; do
    if [ "$address" = "$1" ]; then
        shift
        # As a login does: Open MPI reads `./.profile`.
        cd "${HOME:-/}" || exit 255
        at=/proc/$process/ns
        exec nsenter --preserve-credentials "--user=$at/user" "--net=$at/net" "--uts=$at/uts" \
            /bin/sh -c "$*"
    fi
done < "${0%/*}/nodes"
echo "agent: there is no node $1" >&2
exit 255
