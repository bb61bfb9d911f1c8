#!/usr/bin/env bash
# Runs everything behind this folder's tables, the cheapest first, into OUT, and prints them:
# run.sh OUT. What was interrupted goes on when it is run again.
set -euo pipefail

[ $# = 1 ] || { echo "usage: bash run.sh OUT" >&2; exit 2; }
out=$1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
PATH=$PATH:$here/../../../build/release/bin

# sweep FOLDER MODEL AXIS...: one run for each combination, ended when 85 % are reached.
sweep() {
    fedge-simulate --job "$here/$2.json" --clients 100 --target 0.75,0.8,0.85 --stop-at-target --resume --out "$out/$1" \
        --sweep "${@:3}"
}
fractions=fraction=0.01,0.1,0.2,0.5,1

# Learning rates, by B and division, at C = 0.1. A batch of 600 is all that a client has.
sweep rates/2nn 2nn batch=10 partition=iid,shards:2 fraction=0.1 lr=0.03,0.1,0.3 rounds=400
sweep rates/2nn 2nn batch=600 partition=iid,shards:2 fraction=0.1 lr=0.1,0.3,1 rounds=400
sweep rates/cnn cnn batch=10 partition=iid fraction=0.1 lr=0.03,0.1 rounds=40

# Table 1, with the best of them.
sweep 2nn 2nn batch=10 lr=0.1 partition=iid,shards:2 $fractions
sweep 2nn 2nn batch=600 lr=0.3 partition=iid,shards:2 $fractions
sweep cnn cnn batch=10 lr=0.1 partition=iid $fractions

# Table 2 at C = 0.1: less and more computation per client, and FedSGD. The CNN's B = ∞ has the 2NN's learning rate.
sweep cnn cnn batch=10 lr=0.1 partition=iid fraction=0.1 epochs=1,20
sweep cnn cnn batch=600 lr=0.3 partition=iid fraction=0.1 epochs=1 rounds=1000
sweep cnn cnn batch=600 lr=0.3 partition=iid fraction=0.01,0.1,0.2

# The dearest: a round of C = 1 is 300,000 examples of the CNN.
sweep cnn cnn batch=600 lr=0.3 partition=iid fraction=0.5,1

python3 -B "$here/../table.py" mcmahan-2017 "$out"
