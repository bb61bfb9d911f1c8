#!/usr/bin/env bash
# The simulator's clients become the same in five rounds on one GPU and on all, and the accuracy is within
# 0.3 points of the CPU's: same_training.sh SIMULATOR
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$1" generate images --out "$work" >/dev/null
run() {
    local name=$1
    shift
    "$@" --job "$work/job.json" --rounds 5 --quiet --json >"$work/$name.json" 2>"$work/$name.log"
}
value() {
    sed -n "s/.*\"$2\": *\"\{0,1\}\([0-9a-f.e+-]*\).*/\1/p" "$work/$1.json" | head -n 1
}
run cpu "$1" --engine cpu
run one "$1" --engine cuda --gpus 0
run all "$1" --engine cuda
echo "one $(value one model_sha256), all $(value all model_sha256), accuracies: cpu $(value cpu accuracy)," \
    "cuda $(value one accuracy)"
[ "$(value one model_sha256)" = "$(value all model_sha256)" ]
awk -v a="$(value cpu accuracy)" -v b="$(value one accuracy)" 'BEGIN { d = a - b; exit !(d < 0.003 && d > -0.003) }'
