#!/bin/sh
# Checks the layout of C and CUDA (clang-format), and runs the linters: clang-tidy, cppcheck, shellcheck, ruff; and whether the results page
# has the figures of its data. Versions are those of tests/requirements.txt, in build/venv. Needs build/dev configured, for the flags of each
# file.
#   tests/lint.sh         check
#   tests/lint.sh fix     lay out C and CUDA, and let ruff mend what it can
set -eu
cd "$(dirname "$0")/.."
bin=$PWD/build/venv/bin
sources=$(git ls-files 'src/*.[ch]' 'src/*.cu' 'src/*.cuh' 'tests/*.[ch]' 'python/*.[ch]')

if [ "${1:-}" = fix ]; then
    echo "$sources" | xargs "$bin/clang-format" -i
    "$bin/ruff" check --fix .
    exit
fi

failed=0
look() {
    what=$1
    shift
    "$@" || { echo "$what has something to say"; failed=1; }
}

layout() {
    echo "$sources" | xargs "$bin/clang-format" --dry-run -Werror
}

# Leaves out what only nvcc compiles.
tidy() {
    git ls-files 'src/*.c' | grep -v -e '^src/backend/cuda/' -e '^src/kernels/' |
        xargs -P "$(nproc)" -n 16 "$bin/clang-tidy" -p build/dev --quiet --extra-arg=-Qunused-arguments 2>/dev/null
}

check() {
    "$bin/cppcheck" -j "$(nproc)" --quiet --enable=warning,performance,portability --std=c17 --library=posix --library=tests/cppcheck.cfg \
        --suppressions-list=tests/cppcheck.suppress -DPUNICA_VERSION='""' -DPUNICA_COMMIT='""' --error-exitcode=1 -I src -i src/backend/cuda src
}

scripts() {
    git ls-files '*.sh' .ci/run | xargs "$bin/shellcheck" --severity=warning
}

look clang-format layout
look clang-tidy tidy
look cppcheck check
look shellcheck scripts
look ruff "$bin/ruff" check -q .
look "the results page" tools/tables.py --check
exit $failed
