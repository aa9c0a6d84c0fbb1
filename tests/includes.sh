#!/bin/sh
# Checks that each folder of src/ includes only headers of the folders that the first table of docs/ARCHITECTURE.md lets it use.
set -eu
cd "$(dirname "$0")/.."
bad=0

# Prints the last cell of the row of a folder or file of src/.
may_use() {
    awk -F'|' -v "what=\`src/$1\`" '{ cell = $2; gsub(/ /, "", cell) } cell == what { print $(NF - 1); exit }' docs/ARCHITECTURE.md
}

for part in src/*/ src/main.c; do
    part=${part#src/}
    may=$(may_use "$part")
    case $may in
    "") echo "docs/ARCHITECTURE.md does not say what src/$part may use" && bad=1 ;;
    *everything*) continue ;;
    esac
    for used in $(grep -rhoE '^#include "[a-z]+/' "src/$part" | sed 's/.*"//; s,/,,' | sort -u); do
        case " ${part%/} $may " in
        *" $used "*) ;;
        *) echo "src/$part includes from src/$used, which it may not" && bad=1 ;;
        esac
    done
done
exit $bad
