# What the index is measured on, beside the tree of the engines: a directory that containers make
# their own, and as many names in all as the images have that the fresh containers are made of.
set -e
ln -s base-files /usr/share/doc/bench-link
mkdir -p /bench/own /bench/more
n=0
while [ $n -lt 100 ]; do echo $n > /bench/own/file$n; n=$((n+1)); done
: > /bench/list
names() { find / -xdev "$@" -not -path '/proc*' -not -path '/sys*' -not -path '/dev*' -not -name prepare.sh; }
left=$((43000 - $(names | wc -l)))
n=0
while [ $left -gt 0 ]; do
    mkdir /bench/more/package$n
    left=$((left-1))
    m=0
    while [ $m -lt 42 ] && [ $left -gt 0 ]; do
        echo x > /bench/more/package$n/module_of_it_$m.py
        m=$((m+1))
        left=$((left-1))
    done
    n=$((n+1))
done
names '(' -type f -o -type d ')' > /bench/list
