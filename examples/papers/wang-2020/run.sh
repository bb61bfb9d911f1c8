#!/bin/bash
# FedAvg and FedNova over clients that take unlike numbers of steps: bash run.sh OUT [OPTION...], options being
# fedge-simulate's. It goes on where it was interrupted.
set -eu
here=$(dirname "$0")
out=$1
shift
fedge-simulate --job "$here/job.json" --data "$here/client.json" --clients 20 --partition dirichlet:0.1 \
    --evaluate-every 5 --out "$out" --resume --quiet --sweep strategy=FedAvg,FedNova epochs=1,4 seeds=3 "$@"
