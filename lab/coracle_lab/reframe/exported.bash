# Prints words for each variable that a job script has exported: PID FORM
#
# PID is the shell of the script. A variable counts if that shell has started without it or with
# another value, so that the environment of the user is left out. FORM is a form of printf, as
# `-e %s`. Names of variables have no spaces and no quotes: the shell can split what is printed.
declare -A before
while IFS= read -r -d '' line; do
    before[${line%%=*}]=$line
done < "/proc/$1/environ"
while IFS= read -r -d '' line; do
    name=${line%%=*}
    case $name in
        _ | SHLVL | PWD | OLDPWD | '' | *[!A-Za-z0-9_]*) continue ;;
    esac
    [[ ${before[$name]-} == "$line" ]] || printf -- "$2 " "$name"
done < /proc/self/environ
