#!/bin/sh
# Runs the GPU tests of a bundle (see bundle.sh): every op against the CPU, whole models against the golden
# data, the demo model's answers against the CPU's, the kernels library where PyTorch is there; ops and models again
# under compute-sanitizer where that is.
set -u
cd "$(dirname "$0")" || exit
export LD_LIBRARY_PATH="$PWD/lib:${LD_LIBRARY_PATH:-}" PUNICA_TEST_DATA="$PWD/data" PUNICA_TEST_GPU=1
failed=0

# check NAME COMMAND...: run it; show all output.
check() {
    name=$1
    shift
    echo "== $name"
    if "$@"; then
        echo "ok: $name"
    else
        echo "FAILED: $name"
        failed=$((failed + 1))
    fi
}

# demo_answers DEVICE: prints the demo model's answers, with each of its adapters.
demo_answers() {
    device=$1
    set --
    for dir in demo/adapters/*; do
        set -- "$@" --adapter "${dir##*/}=$dir"
    done
    bin/punica generate --device "$device" --model demo/model "$@" --prompts data/demo.jsonl --json
}

# same_answers: whether the CPU and the GPU give the same, token by token.
same_answers() {
    answers=$(mktemp -d)
    demo_answers cpu >"$answers/cpu" && demo_answers cuda >"$answers/cuda" && diff "$answers/cpu" "$answers/cuda"
    same=$?
    echo "$(wc -l <"$answers/cpu") answers"
    rm -r "$answers"
    return $same
}

echo "punica at $(cat COMMIT), $(date -u +%Y-%m-%d)"
bin/punica --version
check "ops against the CPU" bin/test_cuda_ops
check "whole models against the golden data" bin/test_cuda_model
check "the demo model's answers are the CPU's" same_answers
if python3 -c 'import torch' 2>/dev/null; then
    check "the kernels library, called from PyTorch" env PYTHONPATH=python python3 -m unittest discover -s python/tests
fi
if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck; do          # the sums of ranks that share the GPU are among the ops
        check "$tool, ops" env PUNICA_TEST_QUICK=1 compute-sanitizer --tool $tool --error-exitcode 9 bin/test_cuda_ops
    done
    check "memcheck, models" env PUNICA_TEST_QUICK=1 compute-sanitizer --tool memcheck --error-exitcode 9 bin/test_cuda_model
fi
echo "$failed failed"
[ "$failed" -eq 0 ]
