#!/bin/sh
# Makes punica_kernels-VERSION-py3-none-PLATFORM.whl: python/ with the built library inside.
#   tools/wheel.sh [LIBRARY [FOLDER]]       (build/libpunica_kernels.so, build)
set -eu
cd "$(dirname "$0")/.."
library=${1:-build/libpunica_kernels.so}
to=${2:-build}
[ -e "$library" ] || { echo "$library is not there: it is built where nvcc is" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
cp -r python/. LICENSE "$work"
cp "$library" "$work/punica_kernels/libpunica_kernels.so"
# If setuptools and wheel are installed, nothing is downloaded; else pip fetches them for this build.
isolation=
python3 -c 'import setuptools, wheel' 2>/dev/null && isolation=--no-build-isolation
python3 -m pip wheel -q --no-deps $isolation -w "$to" "$work"
ls "$to"/punica_kernels-*.whl
