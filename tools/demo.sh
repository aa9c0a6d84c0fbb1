#!/bin/sh
# Starts `punica serve` with the demo model and sends one sentence to the base and every adapter at once, over HTTP. On
# a terminal the server then stays until Ctrl-C.
#   tools/demo.sh [SENTENCE]
set -eu
cd "$(dirname "$0")/.."
program=${PUNICA_BIN:-build/punica}
unset PUNICA_STORE PUNICA_API_KEY PUNICA_SECRET     # they are for other servers: this one has no tenants and no keys
sentence=${1:-On March 5, 2021, Eva from Rome bought 3 green lamps for 45 euros each and loves them.}
quoted=$(printf %s "$sentence" | sed -e ':more' -e '$!{N; b more' -e '}' -e 's/[\\"]/\\&/g; s/\n/\\n/g; s/\t/\\t/g')
exec 3>&1
columns=$(stty size <&3 2>/dev/null | cut -d' ' -f2)
work=$(mktemp -d)
server=

# Ends the server, and says what it said if the demo has failed.
stop() {
    status=$?
    [ -z "$server" ] || kill "$server" 2>/dev/null && wait "$server" || true
    case $status in
    0 | 130 | 141) ;;         # done, ended, or nobody reads on
    *) { echo "tools/demo.sh: failed; $program serve said:"; tail -n 20 "$work/log"; } >&2 ;;
    esac
    rm -rf "$work"
}
trap stop EXIT
trap 'exit 130' INT TERM

# ask MODEL: writes its answer, a JSON object, to the file of its name
ask() {
    curl -sS -f "$url/v1/completions" -H 'Content-Type: application/json' -o "$work/$1.answer" \
        -d "{\"model\": \"$1\", \"prompt\": \"$quoted\", \"max_tokens\": 120, \"temperature\": 0}"
}

# show NAME LABEL: prints "label | text", further lines under the first
show() {
    sed -E 's/.*"text":" ?(([^"\\]|\\.)*)".*/\1/; s/\\(["\\])/\1/g' "$work/$1.answer" |
        if [ "${columns:-0}" -gt 40 ]; then fold -s -w $((columns - 13)) | sed "s/ $//"; else cat; fi |
        { label=$2; while IFS= read -r line || [ -n "$line" ]; do
            printf '%-9s | %s\n' "$label" "$line"
            label=
        done; }
}

: >"$work/banner"                    # so that it is there: the server's redirection may come later than the first sed
"$program" serve --listen 127.0.0.1:0 >"$work/banner" 2>"$work/log" &
server=$!
until url=$(sed -n 's/^punica serves on //p' "$work/banner") && [ -n "$url" ]; do
    kill -0 "$server" 2>/dev/null
    sleep 0.02
done
curl -sS -f -o "$work/models" "$url/v1/models"
adapters=$(grep -o '"id":"[^"]*"' "$work/models" | cut -d'"' -f4 | grep -vx demo)
n=$(echo "$adapters" | wc -l)

cat <<END

One small base model and $n LoRA adapters for it, behind OpenAI's API. The same prompt goes to
all of them at once: each step uses the base's weights once for all requests, and each request
adds its own adapter.

  $sentence

END
start=$(date +%s%N)
asking=
for model in demo $adapters; do
    ask "$model" &
    asking="$asking $!"
done
for one in $asking; do
    wait "$one"
done
took=$(($(date +%s%N) - start))

show demo '(base)'
for model in $adapters; do
    show "$model" "$model"
done
tokens=$(curl -s "$url/metrics" | sed -n 's/^punica_completion_tokens_total //p')
cat <<END

$((n + 1)) requests, $n adapters, one base model: $tokens tokens in $((took / 1000000)) ms, over HTTP, $((tokens * 1000000000 / took)) tokens/s

Sentences of this kind are all that this model knows (names and cities that are not in
tools/demo/sentences.py it may misspell).
END
if ! [ -t 1 ]; then
    echo 'To ask it yourself: build/punica serve'
    exit
fi
trap 'exit 0' INT TERM
cat <<END

Still serving on $url; Ctrl-C ends it. Ask with any OpenAI client, or:
  curl -s $url/v1/completions -H 'Content-Type: application/json' -d '
    {"model": "sql", "max_tokens": 120, "temperature": 0,
     "prompt": "Tom of Lima ordered 12 red kites at 20 pesos each on 5 May 2021; he hates them."}'
END
wait "$server"
