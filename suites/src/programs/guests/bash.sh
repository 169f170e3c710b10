# A shell's groups, signals and descriptors: pipelines, job control, process substitution,
# coprocesses, traps.
set -eu -o pipefail
seq 2000 | sort -rn | uniq | sed -n 3p
false | true | cat || echo "pipe ${PIPESTATUS[*]}"
diff <(seq 3) <(seq 4) || true
cat <(echo one) - <(echo three) <<< two
tee >(tr a-z A-Z > /upper) <<< through > /lower; wait $!; cat /lower /upper
coproc AGAIN { while read -r line; do echo "again $line"; done; }
asked=$AGAIN_PID; echo hello >&"${AGAIN[1]}"; read -r line <&"${AGAIN[0]}"; echo "$line"; kill "$asked"; wait "$asked" || echo "coprocess $?"
trap 'echo caught' USR1; (sleep 0.1; kill -USR1 $$) & wait $! || true; wait || true; trap - USR1
mapfile -t lines < <(printf '%s\n' /etc/host[.n]*); echo "${lines[@]}"
exec 7<>/seven; echo seven >&7; exec 7>&-; cat /seven
( ulimit -n 64; ulimit -n )
ends=0; jobs=(); for n in {1..40}; do ( exit $((n % 3)) ) & jobs+=($!); done; for job in "${jobs[@]}"; do wait "$job" || ends=$((ends + $?)); done; echo "ends $ends"
jobs > /dev/null; set -m; exec 2> /dev/null
sleep 100 & first=$!; sleep 101 | cat & second=$!; jobs | sed 's/  */ /g; s/ $//'
kill -STOP %1; sleep 0.3; jobs %1 | sed 's/  */ /g; s/ $//'
kill -CONT %1; kill %1 %2; wait $first || echo "first $?"; wait $second || echo "second $?"; jobs > /dev/null
(kill -STOP "$BASHPID"; echo went on) & sleep 0.3; fg %+ > /dev/null; jobs | wc -l
exec -a another bash -c 'echo "$0"; exec -a third tr "\0" "|" < /proc/self/cmdline'
