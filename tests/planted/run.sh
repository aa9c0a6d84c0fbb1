#!/bin/sh
# run.sh - can the simulation fail? Plants each mistake of this folder, or those named, in a copy of the tree, and has
# `punica simulate --faults` look for it. Prints a table; 1 when a mistake is not found.
#
#   tests/planted/run.sh [NAME...]
#
# A mistake is NAME.patch: a line that says what it is, and a diff. It takes some seconds each on two cores.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
tree=$(cd "$here/../.." && pwd)
seeds=1:3000

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' INT TERM
(cd "$tree" && git ls-files -z CMakeLists.txt src tests | grep -zv '^tests/planted/' | tar -c --null -T -) | tar -x -C "$scratch"
cd "$scratch"

build() {
    make -s -C build -j "$(nproc)" punica >build.log 2>&1
}

# Prints "SEED: WHAT" of the first seed that fails, or nothing; if it aborts, with the CHECK that failed.
first_failure() {
    build/punica simulate --faults --first --seeds "$seeds" >found.log 2>checks.log || true
    check=$(sed -n 's/.*\(CHECK.*\)/\1/p' checks.log | head -n 1 | sed 's/[\/&]/\\&/g')
    sed -n 's/^seed \([0-9]*: .*\)/\1/p' found.log | head -n 1 | LC_ALL=C tr -cd ' -{}~\n' | sed "s/aborted, see above/aborted${check:+, $check}/"
}

# try PATCH: the same with the mistake in the tree; then takes it out again.
try() {
    if ! patch -p1 -s --dry-run <"$1" >patch.log; then
        echo "**does not apply**: "
        return
    fi
    patch -p1 -s <"$1"
    if build; then
        found=$(first_failure)
        echo "${found:-**none**: }"
    else
        echo "**does not build**: "
    fi
    patch -p1 -s -R <"$1"
}

cmake -S . -B build -DCMAKE_BUILD_TYPE=Release -DPUNICA_CUDA=OFF >cmake.log
build || { cat build.log >&2; exit 1; }
found=$(first_failure)
[ -z "$found" ] || { echo "without any mistake, seed $found" >&2; exit 1; }

if [ $# -eq 0 ]; then
    for mistake in "$here"/*.patch; do
        set -- "$@" "$(basename "$mistake" .patch)"
    done
fi
status=0
echo "| mistake | in | seed | found as |"
echo "|---|---|---|---|"
for name in "$@"; do
    mistake="$here/$name.patch"
    file=$(sed -n 's|^+++ b/src/||p' "$mistake")
    found=$(try "$mistake")
    echo "| $(head -n 1 "$mistake") (\`$name\`) | \`$file\` | ${found%%:*} | ${found#*: } |"
    case $found in
    '**'*) status=1 ;;
    esac
done
exit $status
