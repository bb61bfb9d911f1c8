#!/usr/bin/env bash
# Codecs: GB/s of floats that one core encodes and decodes, beside NumPy doing the same arithmetic and the memory that
# a core reads; and what bytes cost in accuracy: the quickstart's CNN on Fashion-MNIST, 100 clients of which 10 train a
# round, simulated with each pipeline, with and without error feedback.
#
#   tests/bench/codec.sh [--quick] [--json] [--rounds=N] [--out=DIR] [--only=speed|rate] [--seed=N]
#                        [--update=JSON | --up=LIST] [--partition=iid|dirichlet:0.3] [--model=FILE]
#
# --update: instead of the list, f32 and this "update" of a job, e.g. {"up": "topk:0.1+int8", "down": "int8"}.
# --up: instead of the list, f32 and these as "up", with a comma between them, with error feedback where a job has it by
# default. --partition: one of the two. --model: a job whose model, data and training are taken in place of the
# quickstart's.
# Rounds: 100 by default. DIR keeps what each simulation says, and a picture of them all, rate.svg; those that are
# there are not run again. --quick takes no more than two pipelines for three rounds. PYTHON names a Python with
# NumPy (default: the first of python3 and /usr/bin/python3 that has it); without one its rows are left out.

# shellcheck source=tests/bench/common.sh
. "$(dirname "$0")/common.sh"
take_arguments '--rounds=[0-9]+|--out=.+|--only=(speed|rate)|--seed=[0-9]+|--update=.+|--up=.+|--partition=(iid|dirichlet:0\.3)|--model=.+' "$@"
make_targets bench_codec_fedge bench_reduce_fedge fedge-simulate

python=$(first_with numpy) || python=python3
exec "$python" -B tests/bench/codec_compare.py --fedge "$build/bin/bench_codec_fedge" \
    --reader "$build/bin/bench_reduce_fedge" --simulate "$build/bin/fedge-simulate" ${arguments[@]+"${arguments[@]}"}
