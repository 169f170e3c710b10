# Looks for the binary on a node, receives it if it is not there, and becomes the agent. For any
# POSIX shell. `digest`, `size`, `token`, `given`, `agent` are set before; the places are "$@".
say() { echo "coracle node script: $*"; }
umask 077
LC_ALL=C
export LC_ALL
uid=$(id -u)
tried=
part=
received=
trap 'rm -f "$part" "$received"; exit 1' HUP INT TERM

no() { tried="$tried$place: $1; "; }

# The file has the right bytes. Without sha256sum the agent tells its digest itself.
right() {
    [ -f "$1" ] || return 1
    set -- "$1" $(wc -c < "$1")
    [ "$2" = "$size" ] || return 1
    command -v sha256sum > /dev/null 2>&1 || return 0
    set -- $(sha256sum < "$1")
    [ "$1" = "$digest" ]
}

# The bytes were found right since this machine was started and since they were written, so neither
# a crash nor a program has changed them. The agent tells its digest in any case.
known() {
    was= boot=
    { read -r was < "$1.checked"; read -r boot < /proc/sys/kernel/random/boot_id; } 2> /dev/null
    if [ -n "$boot" ] && [ "$was" = "$boot" ] && [ "$1.checked" -nt "$1" ]; then
        set -- "$1" $(wc -c < "$1")
        [ "$2" = "$size" ] && return 0
    fi
    right "$1" || return 1
    [ -z "$boot" ] || { echo "$boot" > "$1.checked"; } 2> /dev/null
    return 0
}

runs() { "$1" --version > /dev/null 2>&1 < /dev/null; }

become() {
    trap - HUP INT TERM
    exec "$1" $agent
    say "cannot execute $1"
    exit 1
}

# The directory is this user's alone.
own() {
    mkdir "$1" 2> /dev/null
    set -- "$1" $(ls -ldn "$1" 2> /dev/null)
    [ -n "$2" ] || { why="no directory can be made there"; return 1; }
    [ "$4" = "$uid" ] || { why="$1 belongs to the user $4"; return 1; }
    case $2 in
    drwx------*) return 0 ;;
    *) why="others may enter $1, or it is not a directory ($2)"; return 1 ;;
    esac
}

[ -n "$given" ] && right "$given" && runs "$given" && become "$given"

for place; do
    [ -n "$place" ] || continue
    directory=$place/coracle-$uid
    file=$directory/coracle-$digest
    [ -e "$file" ] && own "$directory" && known "$file" && runs "$file" && become "$file"
done

for place; do
    [ -n "$place" ] || continue
    case $place in */.cache) mkdir "$place" 2> /dev/null ;; esac
    [ -d "$place" ] || { no "it does not exist"; continue; }
    directory=$place/coracle-$uid
    file=$directory/coracle-$digest
    own "$directory" || { no "$why"; continue; }
    part=$directory/.coracle-$token
    rm -f "$part"
    { echo '#!/bin/sh'; echo 'exit 0'; } 2> /dev/null > "$part" || { no "it cannot be written, or is full"; rm -f "$part"; continue; }
    chmod 700 "$part"
    "$part" 2> /dev/null || { no "programs there cannot be executed (noexec)"; rm -f "$part"; continue; }
    rm -f "$part"
    room=$(df -Pk "$directory" 2> /dev/null | tail -n 1 | { read -r a b c d e; echo "$d"; })
    case $room in
    '' | *[!0-9]*) ;;
    *) [ "$room" -gt $((size / 1024 + 64)) ] || { no "there is room for $room kB only"; continue; } ;;
    esac
    if [ -n "$received" ]; then
        cp "$received" "$part" 2> /dev/null
    else
        say binary
        # All bytes are taken from the stream, even if only some can be written.
        head -c "$size" | { cat 2> /dev/null > "$part" || cat > /dev/null; }
    fi
    right "$part" || { no "not all bytes arrived or could be written"; rm -f "$part"; continue; }
    chmod 700 "$part"
    if runs "$part"; then
        mv -f "$part" "$file" || { no "the file cannot be renamed"; continue; }
        [ -z "$received" ] || rm -f "$received"
        become "$file"
    fi
    no "what was received cannot be executed (this machine is $(uname -m))"
    if [ -z "$received" ]; then received=$part; else rm -f "$part"; fi
done
rm -f "$received"
say "no place for the binary: ${tried%; }"
exit 1
