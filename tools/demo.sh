#!/bin/sh
# The main job on an embedded default: one small base model with random weights and a few adapters,
# made here; then the same prompt through the base and all adapters in one batch.
set -eu
cd "$(dirname "$0")/.."
dir=build/demo
[ -f "$dir/done" ] || {
    rm -rf "$dir"
    /usr/bin/python3 tools/random_model.py --shape demo --adapters 6 --out "$dir"
    touch "$dir/done"
}
set --
for a in "$dir"/adapters/*; do
    set -- "$@" --adapter "$(basename "$a")=$a"
done
echo
echo "One base model, six LoRA adapters, one batch. The weights are random, so the text is too; what"
echo "shows is that each adapter gives the same prompt another continuation:"
echo
echo "  build/punica generate --model $dir/model --adapter NAME=DIR ... --prompt 'The quick brown fox'"
echo
build/punica generate --model "$dir/model" "$@" --prompt "The quick brown fox" --max-tokens 24
