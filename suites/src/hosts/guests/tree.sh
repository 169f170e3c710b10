# Makes a tree with ranks of Open MPI and MPICH from this machine's libraries: TREE SOURCE.
set -e
tree=$1
mkdir -p "$tree/usr/bin" "$tree/usr/lib" "$tree/usr/lib64" "$tree/tmp" "$tree/etc"
chmod 1777 "$tree/tmp"
ln -s usr/bin "$tree/bin"
ln -s usr/lib "$tree/lib"
ln -s usr/lib64 "$tree/lib64"
copy() {
    for file; do
        [ ! -e "$tree$file" ] || continue
        real=$(realpath "$file")
        mkdir -p "$tree$(dirname "$file")" "$tree$(dirname "$real")"
        [ -e "$tree$real" ] || cp "$real" "$tree$real"
        [ "$real" = "$file" ] || [ -e "$tree$file" ] || ln -s "$real" "$tree$file"
    done
}
for kind in openmpi mpich; do
    mpicc.$kind -O1 "$2" -o "$tree/usr/bin/ranks-$kind"
done
cp "$(command -v busybox)" "$tree/usr/bin/busybox"
ln -s busybox "$tree/usr/bin/sh"
at=/usr/lib/x86_64-linux-gnu
plugins=$(find $at/openmpi/lib $at/pmix2/lib $at/ucx -name '*.so*' 2> /dev/null || true)
copy $plugins
copy $(ldd "$tree"/usr/bin/ranks-* $plugins 2> /dev/null | awk '$2 == "=>" && $3 ~ "^/" { print $3 }' | sort -u)
copy /lib64/ld-linux-x86-64.so.2
for directory in /usr/share/openmpi /etc/openmpi /usr/share/pmix /usr/share/pmix2; do
    [ ! -d $directory ] || { mkdir -p "$tree$(dirname $directory)"; cp -rL $directory "$tree$directory"; }
done
echo 'root:x:0:0:root:/:/bin/sh' > "$tree/etc/passwd"
touch "$tree/in-the-container"
tar -C "$tree" -cf "$tree.tar" .
