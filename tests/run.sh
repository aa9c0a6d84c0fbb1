#!/bin/sh
# Everything `make test` runs. Ends with "N passed, N failed" for the whole. `tests/run.sh lint [fix]`: tests/lint.sh alone.
#   1. release and dev (ASan, UBSan) builds, warnings are errors in dev
#   2. C tests of both, and those with threads under TSan
#   3. Python tests of the program: goldens, command line, bad files
#   4. faults: a cluster of real processes of which some are killed, and as many simulated ones as 20 s hold
#   5. a short fuzzing of every parser
#   6. the Python package of the kernels, as far as it needs no GPU
#   7. layout and linters
#
# Program tests and faults mostly wait: for processes to start, for timeouts, for killed workers to come back. So several files of them run
# at a time, and the builds that they do not need (CUDA is the longest) are made beside them at the lowest priority. The tests of the release,
# which are fast, and simulation and fuzzing, which get a fixed number of seconds, run when all is built.
set -u
cd "$(dirname "$0")/.." || exit

# The sanitizers of gcc 13 fail under as many random bits of addresses as Ubuntu's kernel has (google/sanitizers#1716): there all runs without.
bits=$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null)          # empty where only root may know
if [ "${bits:-32}" -gt 28 ] && [ "${1:-}" != lint ]; then
    if without=$(setarch -R cat /proc/self/personality); then
        [ "$(cat /proc/self/personality)" = "$without" ] || exec setarch -R tests/run.sh "$@"
    elif [ -n "$bits" ]; then
        echo "vm.mmap_rnd_bits is $bits, with which sanitizers fail, and setarch -R is refused: as root, sysctl vm.mmap_rnd_bits=28" >&2
        exit 1
    fi
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
touch "$work/results"

# check NAME COMMAND...: run, say how it went, and what it wrote if it failed.
check() {
    name=$1
    shift
    start=$(date +%s)
    log=$(mktemp -p "$work")
    if "$@" >"$log" 2>&1; then
        echo ok >>"$work/results"
        echo "ok    $name ($(($(date +%s) - start)) s)$(grep -aE '^[0-9]+ (passed|tests|faults)|tests passed|^Ran [0-9]+ tests' "$log" | tail -1 | sed 's/^/: /')"
    else
        echo FAIL >>"$work/results"
        { echo "FAIL  $name ($(($(date +%s) - start)) s)"; tail -n 200 "$log"; } >"$log.said"
        cat "$log.said"
    fi
}

# build PRESET FOLDER [TARGET...]
build() {
    preset=$1
    folder=$2
    shift 2
    cmake --preset "$preset" && nice -n "$priority" cmake --build "$folder" ${1:+--target "$@"}
}

# Makes, once, a venv of Debian's Python with what tests/requirements.txt names.
make_venv() {
    wanted=build/venv/requirements.txt
    cmp -s tests/requirements.txt $wanted && return
    rm -rf build/venv
    /usr/bin/python3 -m venv --system-site-packages build/venv && build/venv/bin/pip install -q -r tests/requirements.txt &&
        cp tests/requirements.txt $wanted
}

# pytest_with PROGRAM N: run N files of tests per core at a time; a file stays together, since its tests share servers.
pytest_with() {
    PUNICA_BIN=$PWD/$1 build/venv/bin/python -m pytest -q -p no:cacheprovider -n $(($2 * $(nproc))) --dist loadfile --no-loadscope-reorder tests/e2e
}

ctest_dir() {
    ctest --test-dir "$@" -j "$(nproc)" --output-on-failure
}

faults_with() {
    PUNICA_BIN=$PWD/$1 build/venv/bin/python tests/faults/cluster_faults.py
}

threaded="test_cpu_ops test_engine test_queue test_jobs test_load test_worker test_prepare test_frontend test_accounts test_jinja"

# shellcheck disable=SC2086
other_builds() {
    check "build release" build release build
    check "build tsan" build tsan build/tsan $threaded
    check "build fuzzers" build fuzz build/fuzz fuzzers
}

if [ "${1:-}" = lint ]; then
    make_venv && cmake --preset dev >/dev/null && cmake --build build/dev --target punica_wire >/dev/null && exec tests/lint.sh ${2:+"$2"}
fi

export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0
priority=0
check "includes go down only" tests/includes.sh
check "Python packages of the tests" make_venv &
packages=$!
check "build dev (ASan, UBSan)" build dev build/dev
wait $packages || echo FAIL >>"$work/results"
(priority=19 && other_builds) &
others=$!
check "program tests, ASan and UBSan" pytest_with build/dev/punica 2
check "faults in a cluster, ASan and UBSan" faults_with build/dev/punica
check "C tests, ASan and UBSan" ctest_dir build/dev
wait $others || echo FAIL >>"$work/results"
check "program tests, release" pytest_with build/punica 1
check "faults in a cluster, release" faults_with build/punica
check "C tests, release" ctest_dir build
check "C tests with threads, TSan" ctest_dir build/tsan -R "^($(echo "$threaded" | tr ' ' '|'))\$"
check "fault simulation, 20 s" build/dev/punica simulate --faults --seeds 1:1000000 --seconds 20
check "short fuzzing" tests/fuzz.sh 8
check "Python package of the kernels" env PYTHONPATH=python build/venv/bin/python -m unittest discover -s python/tests
check "lint" tests/lint.sh

failed=$(grep -c FAIL "$work/results")
[ "$(wc -l <"$work/results")" -ge 17 ] || { echo "not all checks were made"; failed=$((failed + 1)); }
echo "$(grep -c ok "$work/results") passed, $failed failed"
[ "$failed" -eq 0 ]
