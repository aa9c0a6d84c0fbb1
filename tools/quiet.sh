#!/bin/sh
# Runs a build with its progress in one line on a terminal and in none elsewhere; shows the whole log if it fails.
#   tools/quiet.sh COMMAND...
set -u
log=$(mktemp)
trap 'rm -f "$log"' EXIT
trap 'exit 130' INT TERM
# The command's status goes through a file, since a pipeline has only that of its last command.
{ "$@" 2>&1; echo $? >"$log.status"; } | tee "$log" | if [ -t 2 ]; then
    while IFS= read -r line; do
        case $line in "["*) printf '\rbuilding %s ' "${line%%]*}]" >&2 ;; esac
    done
    printf '\r\033[K' >&2
else
    cat >/dev/null
fi
status=$(cat "$log.status")
rm -f "$log.status"
[ "$status" -eq 0 ] || cat "$log" >&2
exit "$status"
