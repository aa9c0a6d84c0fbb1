#!/bin/sh
# tests/fuzz.sh SECONDS: run every libFuzzer target that long under ASan and UBSan, starting from the
# seeds in tests/fuzz/seeds/<target>/. Findings are left in build/fuzz/.
set -eu
seconds=${1:?seconds per target}
cd "$(dirname "$0")/.."
cmake --preset fuzz >/dev/null
# shellcheck disable=SC2046
cmake --build build/fuzz --target $(cd tests/fuzz && ls fuzz_*.c | sed "s/\.c$//") >build/fuzz/build.log || { tail -n 40 build/fuzz/build.log; exit 1; }
for source in tests/fuzz/fuzz_*.c; do
    name=$(basename "$source" .c)
    corpus=build/fuzz/corpus/$name
    mkdir -p "$corpus"
    seeds=tests/fuzz/seeds/$name
    [ -d "$seeds" ] || seeds=
    echo "== $name, $seconds s"
    log=build/fuzz/$name.log
    # shellcheck disable=SC2086
    if ! build/fuzz/tests/"$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 -verbosity=0 \
        -print_final_stats=1 -artifact_prefix=build/fuzz/"$name"- "$corpus" $seeds >"$log" 2>&1; then
        tail -n 40 "$log"
        exit 1
    fi
    grep -a number_of_executed_units "$log"
done
