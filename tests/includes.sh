#!/bin/sh
# Checks that each folder of src/ includes only headers of the folders it may use (docs/ARCHITECTURE.md).
set -eu
cd "$(dirname "$0")/../src"
bad=0

# may FOLDER "allowed folders": every #include "x/..." in it must name one of them.
may() {
    for used in $(grep -rhoE '^#include "[a-z]+/' "$1" | sed 's/.*"//; s,/,,' | sort -u); do
        case " $1 $2 " in
        *" $used "*) ;;
        *) echo "src/$1 includes from src/$used, which it may not" && bad=1 ;;
        esac
    done
}
may base ""
may text "base"
may grammar "base"
may backend "base"
may kernels "backend base"
may model "backend base"
may registry "model base"
may engine "model backend grammar base"
may net "base"
may scheduler "net base"
may runner "net base"
may worker "registry engine model backend grammar text net base"
may store "base"
may frontend "registry store text grammar net base"
may bench "scheduler engine model backend grammar text base"
may sim "frontend scheduler runner worker net bench engine model backend grammar text base"
may cli "sim bench registry frontend store scheduler runner worker net engine model backend grammar text base"
exit $bad
