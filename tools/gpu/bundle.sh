#!/bin/sh
# Puts everything a GPU machine needs into one folder: program, tests, libraries that machine may lack,
# golden data, the demo model, and the two scripts to run there. Nothing is installed there; it needs an
# NVIDIA driver and CUDA 13's cuBLASLt.
#
#   tools/gpu/bundle.sh [FOLDER]        (build/gpu-bundle)
#   on the GPU machine: FOLDER/test.sh, then FOLDER/bench.sh RESULTS
set -eu
cd "$(dirname "$0")/../.."
to=${1:-build/gpu-bundle}
cmake --preset cuda >/dev/null
cmake --build build/cuda --target punica test_cuda_ops test_cuda_model punica_kernels
rm -rf "$to"
mkdir -p "$to/bin" "$to/lib" "$to/data/golden"
cp build/cuda/punica build/cuda/tests/test_cuda_ops build/cuda/tests/test_cuda_model "$to/bin/"
strip --strip-debug "$to"/bin/*
cp -r tests/golden/models "$to/data/golden/"
cp -r demo "$to/demo"
sed -n 's/^ *\({"adapter":.*\),"ids":.*/\1}/p' tests/golden/demo.json >"$to/data/demo.jsonl"
for f in "$to"/bin/*; do
    ldd "$f" | awk '$2 == "=>" && $1 !~ /^(libc|libm|libdl|librt|libpthread|libresolv|libgcc_s|libstdc\+\+|libcu(da|blas).*|libnv.*|libnccl)\.so/ {print $3}'
done | sort -u | xargs -r -I{} cp -L {} "$to/lib/"
cp -r python "$to/python"
cp build/cuda/libpunica_kernels.so "$to/python/punica_kernels/"
cp tools/gpu/test.sh tools/gpu/bench.sh tools/gpu/*.py tools/random_model.py tests/perf/cold_adapters.sh tests/perf/beside.py "$to/"
git describe --always --dirty 2>/dev/null >"$to/COMMIT" || echo unknown >"$to/COMMIT"
du -sh "$to"
