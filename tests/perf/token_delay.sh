#!/bin/sh
# Measures how long a token takes from its worker to its client, tokens per second, and CPU time per token:
#   tests/perf/token_delay.sh [STREAMS] [TOKENS] [options of punica serve]
# Builds its two helpers with cc into a folder of its own, and serves the demo model with one worker on one thread.
set -eu
cd "$(dirname "$0")/../.."
program=${PUNICA_BIN:-build/punica}
streams=${1:-64}
tokens=${2:-400}
[ $# -eq 0 ] || shift
[ $# -eq 0 ] || shift
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || { kill $server && wait $server || :; } 2>/dev/null; rm -rf "$work"' EXIT
cc -O2 -D_GNU_SOURCE -shared -fPIC -o "$work/step_clock.so" tests/perf/step_clock.c -ldl
cc -O2 -D_GNU_SOURCE -o "$work/token_delay" tests/perf/token_delay.c
LD_PRELOAD=$work/step_clock.so STEP_CLOCK=$work/steps "$program" serve --listen 127.0.0.1:0 --threads 1 --max-batch "$streams" "$@" >"$work/banner" &
server=$!
until address=$(sed -n "s,^punica serves on http://,,p" "$work/banner" 2>/dev/null) && [ -n "$address" ]; do
    kill -0 $server || exit 1
    sleep 0.05
done
# Prints the seconds of CPU time that a process has taken, all its threads.
cpu() {
    cat /proc/"$1"/task/*/schedstat | awk '{s += $1} END {print s / 1e9}'
}
worker=$(cat /proc/$server/task/$server/children)
worker=${worker%% *}
before="$(date +%s.%N) $(cpu $server) $(cpu "$worker")"
"$work/token_delay" "${address%:*}" "${address#*:}" "$streams" "$tokens" "$work/steps"
echo "$before $(date +%s.%N) $(cpu $server) $(cpu "$worker")" | awk -v n=$((streams * tokens)) \
    '{printf "%.0f tokens/s; CPU a token: serve %.2f us, worker %.1f us\n", n / ($4 - $1), ($5 - $2) / n * 1e6, ($6 - $3) / n * 1e6}'
