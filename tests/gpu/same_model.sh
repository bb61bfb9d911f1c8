#!/usr/bin/env bash
# The simulator's model is the same whether a CPU or GPUs sum: same_model.sh SIMULATOR
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$1" generate logistic --out "$work" >/dev/null
hash_of() {
    "$1" --job "$work/job.json" --clients 100 --rounds 3 --quiet --json --accumulator "$2" |
        sed -n 's/.*"model_sha256": *"\([0-9a-f]*\)".*/\1/p'
}
cpu=$(hash_of "$1" cpu) cuda=$(hash_of "$1" cuda)
echo "cpu $cpu, cuda $cuda"
[ ${#cpu} = 64 ] && [ "$cpu" = "$cuda" ]
