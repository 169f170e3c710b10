# Makes a tree of Debian sid with Apptainer in it, if it is not there: DIRECTORY BWRAP
#
# Packages are unpacked and not configured, which needs neither root nor namespaces.
set -e
tree=$1 bwrap=$2
# Where this cannot be, the tree is of no use.
"$bwrap" --dev-bind / / true
[ ! -d "$tree" ] || exit 0
command -v mmdebstrap > /dev/null || { echo 'error: mmdebstrap is not in PATH' >&2; exit 1; }
mkdir -p "$(dirname "$tree")"
new=$(mktemp -d "$tree.XXXXXX")
trap 'rm -rf "$new"' EXIT
# The lists are signed, and a mirror may have them for longer than they say.
mmdebstrap --quiet --mode=chrootless --variant=extract --include=apptainer \
    --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='Acquire::Languages "none"' sid "$new"
cd "$new"
for name in bin sbin lib lib64; do
    [ -e "$name" ] || ln -s "usr/$name" "$name"
done
# Mounted over, here by bwrap and then by Apptainer.
mkdir -p dev proc sys tmp var/tmp
touch etc/passwd etc/group etc/resolv.conf
chmod 755 "$new"
cd /
mv -T "$new" "$tree" || [ -d "$tree" ]
