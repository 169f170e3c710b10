# What the engines are measured on: a repository of 9,000 files and a program of 40 source files.
set -e
mkdir -p /bench/git /bench/src
cd /bench/git
export HOME=/bench PATH=/usr/bin:/bin
# Nothing may go on in the background once the tree has been made.
git config --global gc.auto 0
git config --global maintenance.auto false
git init -q .
n=0
while [ $n -lt 90 ]; do
    mkdir -p dir$n
    m=0
    while [ $m -lt 100 ]; do
        echo "$n $m" > dir$n/file$m
        m=$((m+1))
    done
    n=$((n+1))
done
git add .
git -c user.name=bench -c user.email=bench@localhost commit -q -m bench
# Owners differ between the environments; what is measured is the status.
git config --global --add safe.directory /bench/git
cp /bench/.gitconfig /etc/gitconfig
cd /bench/src
{
    printf 'all: program\nOBJECTS ='
    n=0
    while [ $n -lt 40 ]; do printf ' part%d.o' $n; n=$((n+1)); done
    printf '\nprogram: main.o $(OBJECTS)\n\tgcc -o program main.o $(OBJECTS)\n%%.o: %%.c\n\tgcc -O1 -c -o $@ $<\n'
} > Makefile
n=0
while [ $n -lt 40 ]; do
    printf '#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\nint part%d(int n) { char text[64]; snprintf(text, sizeof text, "%%d", n); return (int)strlen(text) + atoi(text); }\n' $n > part$n.c
    n=$((n+1))
done
{
    n=0
    while [ $n -lt 40 ]; do echo "int part$n(int);"; n=$((n+1)); done
    echo 'int main(void) { int sum = 0;'
    n=0
    while [ $n -lt 40 ]; do echo "sum += part$n($n);"; n=$((n+1)); done
    echo 'return sum == 0; }'
} > main.c
