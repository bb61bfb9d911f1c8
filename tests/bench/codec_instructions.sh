#!/usr/bin/env bash
# Instructions that an aarch64 device executes to encode one update: what stands for energy.
#
#   tests/bench/codec_instructions.sh [--quick] [--json] [CODEC...]
#
# The encoders are compiled for aarch64 as its client is, and qemu-user logs each instruction; the second of two
# encodings is counted. Needs cmake/setup.sh --cross.

# shellcheck source=tests/bench/common.sh
. "$(dirname "$0")/common.sh"
take_arguments '[a-z][a-z0-9+:.]*' "$@"
for command in aarch64-linux-gnu-gcc qemu-aarch64-static; do
    command -v "$command" >/dev/null || {
        echo "codec_instructions.sh: no $command: run cmake/setup.sh --cross" >&2
        exit 77
    }
done

thousands=10 # values, of which the quickstart has 56,714: each is logged
codecs=()
quick=
json=
for argument in ${arguments[@]+"${arguments[@]}"}; do
    case $argument in
    --quick) quick=yes ;;
    --json) json=yes ;;
    *) codecs+=("$argument") ;;
    esac
done
[ ${#codecs[@]} -gt 0 ] || codecs=(none f16 bf16 int8 int8+deflate int4 topk:0.1+int4 topk:0.01+int8
    ternary:0.1 randk:0.01+int8)
[ -z "$quick" ] || { codecs=("${codecs[@]:0:2}") && thousands=1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bash cmake/deps.sh aarch64 >&2 # zlib
aarch64-linux-gnu-gcc -std=c11 -Os -ffp-contract=off -ffunction-sections -Wl,--gc-sections -static -I. \
    -Ibuild/deps-aarch64/include -o "$work/encode" tests/bench/codec_fedge.c edge/wire/deflate.c \
    edge/core/codec/*.c edge/core/{bytes,crc32,fixed,fixed_simd,log,message,os_posix,os_posix_machine,rng}.c \
    edge/core/{status,tensor,text}.c build/deps-aarch64/lib/libz.a -lm

# count CODEC N: instructions of the program that encodes N times.
count() {
    mkfifo "$work/log"
    grep -c '^Trace' <"$work/log" >"$work/number" &
    qemu-aarch64-static -singlestep -d exec,nochain -D "$work/log" "$work/encode" "$1" "$thousands" "x$2"
    wait
    rm "$work/log"
    cat "$work/number"
}

for codec in "${codecs[@]}"; do
    one=$(($(count "$codec" 2) - $(count "$codec" 1)))
    each=$(awk "BEGIN { printf \"%.1f\", $one / $thousands / 1000 }")
    if [ -n "$json" ]; then
        echo "{\"bench\": \"codec\", \"case\": \"encode $codec, aarch64\", \"value\": $one, \"unit\": \"instructions\"," \
            "\"peer\": null, \"peer_value\": null, \"ratio\": null}"
    fi
    echo "$codec: $one instructions for ${thousands},000 values, $each for each" >&2
done
