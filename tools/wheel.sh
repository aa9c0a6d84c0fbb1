#!/bin/sh
# Makes build/punica_kernels-VERSION-py3-none-PLATFORM.whl: python/ with the built library inside.
set -eu
cd "$(dirname "$0")/.."
[ -e build/libpunica_kernels.so ] || { echo "build/libpunica_kernels.so is not there: it is built where nvcc is" >&2; exit 1; }
rm -rf build/wheel
cp -r python build/wheel
cp build/libpunica_kernels.so build/wheel/punica_kernels/
# If setuptools and wheel are installed, nothing is downloaded; else pip fetches them for this build.
isolation=
python3 -c 'import setuptools, wheel' 2>/dev/null && isolation=--no-build-isolation
python3 -m pip wheel -q --no-deps $isolation -w build ./build/wheel
ls build/punica_kernels-*.whl
