# Runs a program by runc or crun: SCRATCH RUNTIME [OPTION...] -- PROGRAM [ARGUMENT...]
#
# These runtimes read the program's words and variables from a file, so each start writes its own:
# SCRATCH/template.json with the words and with all variables of the caller filled in. This is done
# without starting other programs, but for mkdir.
scratch=$1
shift
runtime=()
while [[ $1 != -- ]]; do
    runtime+=("$1")
    shift
done
shift

# Sets `quoted` to a text as JSON writes it.
quote() {
    quoted=${1//\\/\\\\}
    quoted=${quoted//\"/\\\"}
    if [[ $quoted == *[[:cntrl:]]* ]]; then
        local code character
        for code in {1..31} 127; do
            printf -v character "\\x$(printf %x "$code")"
            printf -v code '\\u%04x' "$code"
            quoted=${quoted//"$character"/$code}
        done
    fi
    quoted=\"$quoted\"
}

arguments=
for word; do
    quote "$word"
    arguments+=,$quoted
done
variables=
while IFS= read -r -d '' variable; do
    quote "$variable"
    variables+=,$quoted
done < /proc/self/environ

IFS= read -r -d '' template < "$scratch/template.json"
bundle=$scratch/bundle-$$
mkdir -p "$bundle" || exit
{
    printf %s "${template%%@ARGS@*}"
    printf %s "${arguments#,}"
    template=${template#*@ARGS@}
    printf %s "${template%%@ENV@*}"
    printf %s "${variables#,}"
    printf '%s\n' "${template#*@ENV@}"
} > "$bundle/config.json" || exit
exec "${runtime[@]}" --root "$scratch/state" run --bundle "$bundle" "lab-$$"
