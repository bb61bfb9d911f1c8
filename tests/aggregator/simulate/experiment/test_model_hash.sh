#!/usr/bin/env bash
# What is changed for another reason leaves models as they are, bit for bit: test_model_hash.sh SIMULATE
#
# In plain C (FEDGE_CPU_LEVEL=scalar) every machine computes the same. A change that is meant to move models brings new
# hashes here, and says so.
set -euo pipefail

simulate=$1
# shellcheck source=tests/aggregator/command_line.sh
. "$(dirname "$0")/../../command_line.sh"
export FEDGE_CPU_LEVEL=scalar

# model_is HASH SCRIPT: that of the generated job, changed by sed's SCRIPT.
model_is() {
    sed "$2" logistic/job.json >logistic/changed.json
    ends 0 "\"model_sha256\":\"$1\"" "$simulate" --job logistic/changed.json --json --quiet --threads 2
}

"$simulate" generate logistic:20,3 --clients 20 --examples 30 --out logistic >said 2>&1 || fail "$(cat said)"
model_is f28b51cdc920fd90b79e07223ed0c3c3ce1632834b434482ffc154a42ba15f2f ''
model_is 1d05a54ae4445e3695190b2630672a138b68c40050c879ad622644d5208dbd95 \
    's/"codec": "none"/"codec": "int8"/; s/"update"/"strategy": {"type": "SCAFFOLD"}, &/'
model_is 60400b435110ff84de22031cb942a4a4293b67f6bff4a9fd065d9aabe93fa9d8 's/"update"/"strategy": {"type": "FedAdam"}, &/'
