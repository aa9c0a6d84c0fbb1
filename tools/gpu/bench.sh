#!/bin/sh
# Runs the GPU experiments of a bundle (see bundle.sh) and leaves their tables and CSVs in FOLDER.
#
#   ./bench.sh [FOLDER]         (results)
set -eu
cd "$(dirname "$0")"
to=${1:-results}
mkdir -p "$to"
export LD_LIBRARY_PATH="$PWD/lib:${LD_LIBRARY_PATH:-}"
{ cat COMMIT; bin/punica --version; nvidia-smi -L; } >"$to/machine.txt"
bin/punica bench op --device cuda --rank 8,16,32,64,128 --dims 4096x4096,8192x8192 --csv "$to/op.csv" | tee "$to/op.txt"
for shape in llama2-7b llama2-13b; do
    bin/punica bench layer --device cuda --shape $shape --csv "$to/layer-$shape.csv" | tee "$to/layer-$shape.txt"
done
bin/punica bench step --device cuda --csv "$to/step.csv" | tee "$to/step.txt"
