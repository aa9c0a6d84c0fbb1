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
if python3 -c 'import torch' 2>/dev/null; then
    python3 op_baselines.py --csv "$to/baselines.csv"
    python3 peft_baseline.py | tee "$to/peft.txt"
fi
for shape in llama2-7b llama2-13b; do
    bin/punica bench layer --device cuda --shape $shape --csv "$to/layer-$shape.csv" | tee "$to/layer-$shape.txt"
done
bin/punica bench step --device cuda --csv "$to/step.csv" | tee "$to/step.txt"
bin/punica bench load --device cuda | tee "$to/load.txt"
