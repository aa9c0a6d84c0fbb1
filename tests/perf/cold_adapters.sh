#!/bin/sh
# Adapters on disk against resident ones, over HTTP: 128 adapters of rank 16, of which 32 at a time are in use, with 32
# slots in device memory (every request's adapter has to be loaded) and with 128 (none has):
#   tests/perf/cold_adapters.sh [DEVICE] [SHAPE] [ROUNDS]        (cuda, llama2-7b, 2)
# Writes a random model into a folder of its own under TMPDIR: 24 GB for llama2-7b.
set -eu
cd "$(dirname "$0")"
device=${1:-cuda}
shape=${2:-llama2-7b}
rounds=${3:-2}
program=${PUNICA_BIN:-../../build/punica}
tools=${TOOLS:-../../tools}
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || { kill "$server" && wait "$server" || :; }; rm -rf "$work"' EXIT
python3 "$tools/random_model.py" --shape "$shape" --tokens 32000 --adapters 128 --rank 16 --repeat --out "$work/files"
for slots in 32 128; do
    "$program" serve "$work/files/model" --adapters "$work/files/adapters" --device "$device" --listen 127.0.0.1:0 --max-batch 32 \
        --adapter-slots $slots --log-level warn >"$work/banner" &
    server=$!
    until address=$(sed -n "s,^punica serves on http://,,p" "$work/banner") && [ -n "$address" ]; do
        kill -0 "$server" || exit 1
        sleep 0.1
    done
    echo "$slots slots"
    ./beside.py "punica=$address" --requests 256 --at-once 32 --adapters 128 --gen-len 256 --vocab 256 31000 --rounds "$rounds"
    kill "$server" && wait "$server"
    server=
done
