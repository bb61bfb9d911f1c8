#!/bin/bash
# FedAvg and FedAvgM on both divisions over the clients' learning rates: bash run.sh OUT [OPTION...],
# options being fedge-simulate's. It goes on where it was interrupted.
set -eu
here=$(dirname "$0")
out=$1
shift
fedge-simulate --job "$here/job.json" --clients 100 --evaluate-every 10 --out "$out" --resume --quiet \
    --sweep partition=dirichlet-client:0.1,dirichlet-client:0.01 strategy=FedAvg,FedAvgM \
    lr=0.001,0.003,0.01,0.03,0.1,0.3,1 seeds=3 "$@"
