#!/bin/sh
# tests/fuzz.sh SECONDS [TARGET]: run every libFuzzer target, or one that is built, that long under ASan and UBSan, one
# on each core, starting from the seeds in tests/fuzz/seeds/<target>/. Findings are left in build/fuzz/.
set -eu
seconds=${1:?seconds per target}
cd "$(dirname "$0")/.."

# One target.
if [ $# = 2 ]; then
    name=$2
    corpus=build/fuzz/corpus/$name
    mkdir -p "$corpus"
    seeds=tests/fuzz/seeds/$name
    [ -d "$seeds" ] || seeds=
    log=build/fuzz/$name.log
    # shellcheck disable=SC2086
    if ! build/fuzz/tests/"$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 -verbosity=0 \
        -print_final_stats=1 -artifact_prefix=build/fuzz/"$name"- "$corpus" $seeds >"$log" 2>&1; then
        echo "== $name has failed"
        tail -n 40 "$log"
        exit 255                # no other is begun
    fi
    echo "== $name, $seconds s: $(grep -a number_of_executed_units "$log")"
    exit
fi

mkdir -p build/fuzz
{ cmake --preset fuzz && cmake --build build/fuzz --target fuzzers; } >build/fuzz/build.log || { tail -n 40 build/fuzz/build.log; exit 1; }
(cd tests/fuzz && ls fuzz_*.c) | sed 's/\.c$//' | xargs -P "$(nproc)" -n 1 tests/fuzz.sh "$seconds"
