#!/bin/sh
# run.sh - can the simulation fail? Plants each mistake of this folder, or those named, in a copy of the tree, and has
# `punica simulate --faults` look for it. Prints a table; 1 when a mistake is not found.
#
#   tests/planted/run.sh [NAME...]
#
# A mistake is NAME.patch: a line that says what it is, and a diff. Takes some seconds for each on two cores.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
tree=$(cd "$here/../.." && pwd)
seeds=1:3000
jobs=$(nproc)

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' INT TERM

(cd "$tree" && git ls-files -z CMakeLists.txt src tests | tar -c --null -T - ) | tar -x -C "$scratch"
cd "$scratch"

build() {
    make -s -C build -j "$jobs" punica >build.log 2>&1 || { cat build.log >&2; return 1; }
}

# The first seed that fails, and how: "SEED: WHAT".
first_failure() {
    build/punica simulate --faults --first --seeds "$seeds" >found.log 2>/dev/null || true
    sed -n 's/^seed \([0-9]*: .*\)/\1/p' found.log | head -n 1
}

cmake -S . -B build -DCMAKE_BUILD_TYPE=Release -DPUNICA_CUDA=OFF >cmake.log
build
found=$(first_failure)
if [ -n "$found" ]; then
    echo "without any mistake, seed $found" >&2
    exit 1
fi

[ $# -gt 0 ] || set -- $(cd "$here" && ls ./*.patch | sed 's|^\./\(.*\)\.patch$|\1|')
status=0
echo "| mistake | in | found by seed | as |"
echo "|---|---|---|---|"
for name in "$@"; do
    mistake="$here/$name.patch"
    what=$(head -n 1 "$mistake")
    file=$(sed -n 's|^+++ b/src/\([^ 	]*\).*|\1|p' "$mistake")
    if ! patch -p1 -s -f <"$mistake" >patch.log; then
        echo "| $what (\`$name\`) | \`$file\` | **does not apply** | |"
        status=1
        git -C "$tree" show :"src/$file" >"src/$file" 2>/dev/null || cp "$tree/src/$file" "src/$file"
        continue
    fi
    if build; then
        found=$(first_failure)
    else
        found="0: does not build"
    fi
    case $found in
    "") echo "| $what (\`$name\`) | \`$file\` | **none** | |"; status=1 ;;
    0:*) echo "| $what (\`$name\`) | \`$file\` | **does not build** | |"; status=1 ;;
    *) echo "| $what (\`$name\`) | \`$file\` | ${found%%:*} | $(echo "${found#*: }" | sed 's/|/\\|/g') |" ;;
    esac
    patch -p1 -s -R <"$mistake"
done
exit $status
