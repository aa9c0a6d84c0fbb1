#!/bin/sh
# Everything `make test` runs. Ends with "N passed, N failed" for the whole.
#   1. release and dev (ASan, UBSan) builds, warnings are errors in dev
#   2. C tests of both, and those with threads under TSan
#   3. Python tests of the program: goldens, command line, bad files
#   4. faults: a cluster of real processes of which some are killed, and as many simulated ones as 20 s hold
#   5. a short fuzzing of every parser
set -u
cd "$(dirname "$0")/.."
passed=0
failed=0

# check NAME COMMAND...: run, show output only on failure, count.
check() {
    name=$1
    shift
    start=$(date +%s)
    log=$(mktemp)
    if "$@" >"$log" 2>&1; then
        passed=$((passed + 1))
        echo "ok    $name ($(($(date +%s) - start)) s)$(grep -aE '^[0-9]+ (passed|tests|faults)|tests passed' "$log" | tail -1 | sed 's/^/: /')"
    else
        failed=$((failed + 1))
        echo "FAIL  $name"
        tail -n 200 "$log"
    fi
    rm -f "$log"
}

build() {
    cmake --preset "$1" && cmake --build "$2"
}

ctest_dir() {
    ctest --test-dir "$@" --output-on-failure
}

# Debian's Python with what tests/requirements.txt names on top, made once.
make_venv() {
    wanted=build/venv/requirements.txt
    cmp -s tests/requirements.txt $wanted && return
    rm -rf build/venv
    /usr/bin/python3 -m venv --system-site-packages build/venv && build/venv/bin/pip install -q -r tests/requirements.txt &&
        cp tests/requirements.txt $wanted
}

pytest_with() {
    PUNICA_BIN=$PWD/$1 build/venv/bin/python -m pytest -q -p no:cacheprovider tests/e2e
}

faults_with() {
    PUNICA_BIN=$PWD/$1 build/venv/bin/python tests/faults/cluster_faults.py
}

export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0
check "includes go down only" tests/includes.sh
check "build release" build release build
check "build dev (ASan, UBSan)" build dev build/dev
check "build tsan" build tsan build/tsan
check "C tests, release" ctest_dir build
check "C tests, ASan and UBSan" ctest_dir build/dev
check "C tests with threads, TSan" ctest_dir build/tsan -R 'test_(cpu_ops|engine|queue|jobs|load|worker|prepare|frontend|accounts|jinja)'
check "Python packages of the tests" make_venv
check "program tests, release" pytest_with build/punica
check "program tests, ASan and UBSan" pytest_with build/dev/punica
check "faults in a cluster, release" faults_with build/punica
check "faults in a cluster, ASan and UBSan" faults_with build/dev/punica
check "fault simulation, 20 s" build/dev/punica simulate --faults --seeds 1:1000000 --seconds 20
check "short fuzzing" tests/fuzz.sh 8

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
