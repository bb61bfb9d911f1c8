#!/usr/bin/env bash
# Deflated updates, inflated by each library there is on one core: zlib and ISA-L piece by piece, as servers do;
# libdeflate and zlib-ng (Debian's libdeflate0, and libz-ng2 where there is one) with the whole stream in memory.
# And what deflating them takes a client. CPU seconds for each GB that comes in, the best of several turns in which all take part one after another.
#
#   tests/bench/inflate.sh [--quick] [--json]

# shellcheck source=tests/bench/common.sh
. "$(dirname "$0")/common.sh"
take_arguments 'nothing' "$@"
make_targets bench_inflate_fedge
exec python3 -B tests/bench/inflate_compare.py --fedge "$build/bin/bench_inflate_fedge" ${arguments[@]+"${arguments[@]}"}
