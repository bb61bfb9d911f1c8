#!/bin/bash
# Cohorts of 10 to 320 clients that train 16,000 times in all, by three scalings of the server's learning
# rate: bash run.sh OUT [OPTION...], options being fedge-simulate's. It goes on where it was interrupted.
set -eu
here=$(dirname "$0")
out=$1
shift
for cohort in 10 20 40 80 160 320; do
    rates=$(python3 -c "m = $cohort / 10; print(','.join(dict.fromkeys(f'{rate:.6g}' for rate in (1, m ** 0.5, m))))")
    fraction=$(python3 -c "print($cohort / 1000)")
    rounds=$((16000 / cohort))
    fedge-simulate --job "$here/job.json" --clients 1000 --partition dirichlet-client:0.3 --rounds $rounds \
        --evaluate-every $((rounds / 50)) --out "$out/$cohort" --resume --quiet \
        --sweep fraction="$fraction" server-lr="$rates" seeds=3 "$@"
done
