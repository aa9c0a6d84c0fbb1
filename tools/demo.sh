#!/bin/sh
# One sentence through the base model and every adapter of demo/, in one batch.
#   tools/demo.sh [SENTENCE]
set -eu
cd "$(dirname "$0")/.."
program=${PUNICA_BIN:-build/punica}
sentence=${1:-On March 5, 2021, Eva from Rome bought 3 green lamps for 45 euros each and loves them.}

set --
n=0
for dir in demo/adapters/*/; do
    dir=${dir%/}
    set -- "$@" --adapter "${dir##*/}=$dir"
    n=$((n + 1))
done

cat <<END

One small base model and $n LoRA adapters for it. The same prompt goes to all of them in one batch:
each step uses the base's weights once for all requests, and each request adds its own adapter.

  $sentence

END
"$program" generate --model demo/model "$@" --max-tokens 120 --prompt "$sentence"
cat <<END

This was:
  set --; for d in demo/adapters/*; do set -- "\$@" --adapter "\${d##*/}=\$d"; done
  build/punica generate --model demo/model "\$@" --max-tokens 120 --prompt \\
    "$sentence"
Another sentence of this kind, the only kind this model knows (names and cities that are not in
tools/demo/sentences.py it may misspell):
  tools/demo.sh "Tom of Lima ordered 12 red kites at 20 pesos each on 5 May 2021; he hates them."
END
