#!/bin/sh
# Runs the GPU experiments of a bundle (see bundle.sh) and leaves their tables and CSVs in FOLDER. All of it
# takes over an hour; name some to run only those.
#
#   ./bench.sh FOLDER [engines] [op] [attention] [prompts] [baselines] [layer] [step] [grid] [fp8] [kv] [tp] [mask] [load] [cold] [turns] [textgen]
set -eu
cd "$(dirname "$0")"
to=$1
shift
[ $# -gt 0 ] || set -- engines op attention prompts baselines layer step grid fp8 kv tp mask load cold turns textgen
mkdir -p "$to"
export LD_LIBRARY_PATH="$PWD/lib:${LD_LIBRARY_PATH:-}"
{ cat COMMIT; bin/punica --version; nvidia-smi -L; } >"$to/machine.txt"

# run NAME COMMAND...: writes its output to NAME.txt and shows it, and how long it took; a failure ends everything.
run() {
    name=$1
    shift
    echo "== $name: $*"
    start=$(date +%s)
    "$@" >"$to/$name.txt" || { cat "$to/$name.txt"; exit 1; }
    cat "$to/$name.txt"
    echo "$name: $(($(date +%s) - start)) s" | tee -a "$to/seconds.txt"
}

for what; do
    case $what in
    engines) # what is compared with other engines: decodes, steps by batch, prompts; all with default options
        for shape in llama2-7b llama3-8b llama2-13b; do
            run engines-$shape bin/punica bench textgen --device cuda --shape $shape --requests 64 --batch 32 --prompt-len 32 --gen-len 512 \
                --workload none,identical,uniform,distinct --csv "$to/engines-$shape.csv"
            run engines-prompts-$shape bin/punica bench textgen --device cuda --shape $shape --requests 64 --batch 64 --prompt-len 1024 \
                --gen-len 32 --workload none,uniform --csv "$to/engines-prompts-$shape.csv"
            run engines-step-$shape bin/punica bench step --device cuda --shape $shape --batch 1,8,32,64,128,256 --context 512 \
                --workload none,identical,distinct --csv "$to/engines-step-$shape.csv"
        done
        run engines-many bin/punica bench textgen --device cuda --shape llama3-8b --requests 256 --batch 256 --prompt-len 512 --gen-len 256 \
            --workload none,uniform --csv "$to/engines-many.csv" ;;
    op) run op bin/punica bench op --device cuda --rank 8,16,32,64,128 --dims 4096x4096,8192x8192 --csv "$to/op.csv" ;;
    attention)
        for shape in llama2-7b llama3-8b qwen2.5-7b; do
            run attention-$shape bin/punica bench attention --device cuda --dtype bf16 --shape $shape --csv "$to/attention-$shape.csv"
            run attention-chunk-$shape bin/punica bench attention --device cuda --dtype bf16 --shape $shape --prompt 2048 --context 30720 \
                --csv "$to/attention-chunk-$shape.csv"
        done ;;
    prompts) # alone, and beside requests that decode
        for shape in llama2-7b llama3-8b; do
            run prompts-alone-$shape bin/punica bench prompts --device cuda --shape $shape --streams 0 --prompts 16 --len 333,999,2048,4096 \
                --adapters 0,1,8 --csv "$to/prompts-alone-$shape.csv"
            run prompts-$shape bin/punica bench prompts --device cuda --shape $shape --csv "$to/prompts-$shape.csv"
        done ;;
    baselines)
        run op-baselines python3 op_baselines.py --csv "$to/baselines.csv"
        for shape in llama2-7b llama2-13b; do
            run peft-$shape python3 peft_baseline.py --shape $shape
        done ;;
    layer)
        for shape in llama2-7b llama2-13b; do
            run layer-$shape bin/punica bench layer --device cuda --shape $shape --csv "$to/layer-$shape.csv"
        done ;;
    step) run step bin/punica bench step --device cuda --csv "$to/step.csv" ;;
    grid) # odd batches, longer contexts, and ranks of 1 to 128 in one batch
        for shape in llama3-8b llama2-7b qwen2.5-7b llama2-13b; do
            run grid-$shape-16 bin/punica bench step --device cuda --shape $shape --batch 1,7,17,32,33,48,64,65,96,127,128,200,256 \
                --context 512 --workload none,identical,uniform,distinct --csv "$to/grid-$shape-16.csv"
            run grid-$shape-contexts bin/punica bench step --device cuda --shape $shape --batch 1,17,33,64,127,200 --context 2048,4096 \
                --workload none,distinct --csv "$to/grid-$shape-contexts.csv"
            run grid-$shape-mixed bin/punica bench step --device cuda --shape $shape --rank 1,3,7,17,33,50,96,128 \
                --batch 7,17,33,64,96,127 --context 512 --workload none,uniform,distinct --csv "$to/grid-$shape-mixed.csv"
        done ;;
    fp8)
        run fp8-llama2-70b bin/punica bench step --device cuda --shape llama2-70b --weights fp8 --batch 1,8,17,32,48 --context 512 \
            --csv "$to/fp8-llama2-70b.csv"
        for weights in stored fp8; do
            run fp8-llama2-7b-$weights bin/punica bench step --device cuda --weights $weights --batch 1,8,17,32,33,48,64 \
                --workload none,distinct --csv "$to/fp8-llama2-7b-$weights.csv"
            run fp8-llama2-13b-$weights bin/punica bench step --device cuda --shape llama2-13b --weights $weights --batch 8,32,48 \
                --context 512 --workload none,distinct --csv "$to/fp8-llama2-13b-$weights.csv"
            run fp8-prompt-$weights bin/punica bench step --device cuda --weights $weights --batch 32 --context 512 --workload none \
                --prompt 0,64,128,256,512,1024 --csv "$to/fp8-prompt-$weights.csv"
        done ;;
    kv)
        for weights in stored fp8; do
            for kv in auto fp8; do
                run kv-llama2-7b-$weights-$kv bin/punica bench step --device cuda --weights $weights --kv $kv --batch 8,32 \
                    --workload none,distinct --csv "$to/kv-llama2-7b-$weights-$kv.csv"
            done
        done
        for how in stored-auto fp8-fp8; do
            run kv-llama2-13b-$how bin/punica bench step --device cuda --shape llama2-13b --weights ${how%-*} --kv ${how#*-} --batch 32 \
                --workload none,distinct --csv "$to/kv-llama2-13b-$how.csv"
        done
        for kv in auto fp8; do
            run kv-llama2-70b-fp8-$kv bin/punica bench step --device cuda --shape llama2-70b --weights fp8 --kv $kv --batch 32 --context 512 \
                --csv "$to/kv-llama2-70b-fp8-$kv.csv"
        done ;;
    tp) # the cost of the split itself, by ranks that share the GPU; and what one of 8 ranks would have to do
        for tp in 1 2 4; do
            run tp-llama2-7b-$tp bin/punica bench step --device cuda --tp $tp --batch 1,8,32 --context 512 --workload none,identical,distinct \
                --csv "$to/tp-llama2-7b-$tp.csv"
        done
        for tp in 1 2; do
            run tp-llama2-70b-$tp bin/punica bench step --device cuda --shape llama2-70b --tp $tp --batch 1,4 --context 512 \
                --workload none,distinct --csv "$to/tp-llama2-70b-$tp.csv"
        done
        for weights in stored fp8; do
            run tp-share-$weights bin/punica bench step --device cuda --shape llama2-70b/8 --weights $weights --batch 1,8,16,32 --context 512 \
                --csv "$to/tp-share-$weights.csv"
        done
        for tp in 2 4 8; do
            run comm-$tp bin/punica bench comm --device cuda --tp $tp --csv "$to/comm-$tp.csv"
        done ;;
    mask) # draws by masks beside others, and what making the masks takes
        run mask-no bin/punica bench step --device cuda --shape llama3-8b --batch 32 --context 512 --workload none --csv "$to/mask-no.csv"
        run mask-yes bin/punica bench step --device cuda --shape llama3-8b --batch 32 --context 512 --workload none --masked --csv "$to/mask-yes.csv"
        run mask-cpu bin/punica bench mask --steps 100 ;;
    load) run load bin/punica bench load --device cuda ;;
    cold) run cold env PUNICA_BIN="$PWD/bin/punica" TOOLS="$PWD" ./cold_adapters.sh cuda llama2-7b 2 ;; # 24 GB of files
    turns) # conversations that the KvCache cannot hold; then prompts that share no prefix
        for shape in llama2-7b llama3-8b; do
            run turns-$shape bin/punica bench turns --device cuda --shape $shape --conversations 96 --system-len 1024 --user-len 128 --gen-len 64 \
                --kv-pages 2000 --kv-host-bytes 42000000000
            run turns-alone-$shape bin/punica bench turns --device cuda --shape $shape --conversations 96 --turns 1 --system-len 0 --user-len 1024 \
                --gen-len 64 --kv-pages 1500 --kv-host-bytes 16000000000 --rounds 3
        done ;;
    textgen)
        for shape in llama2-7b llama2-13b; do
            for workload in identical uniform skewed distinct; do
                run textgen-$shape-$workload bin/punica bench textgen --device cuda --shape $shape --requests 1000 --batch 32 \
                    --paper-lengths --workload $workload --csv "$to/textgen-$shape-$workload.csv"
            done
        done ;;
    *) echo "bench.sh: there is no experiment \"$what\"" >&2; exit 2 ;;
    esac
done
