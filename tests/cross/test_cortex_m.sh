#!/bin/bash
# test_cortex_m.sh m4|m7|m55: trains on a board that QEMU plays. The losses must be this machine's,
# within a bound, and memory and instructions within what docs/guides/porting.md promises.
set -eu
core=$1
# shellcheck source=tests/cross/build.sh
. "$FEDGE_SOURCE_DIR/tests/cross/build.sh"
need arm-none-eabi-gcc qemu-system-arm
case $core in
m4) machine=mps2-an386 ;;
m7) machine=mps2-an500 ;;
m55) machine=mps3-an547 ;;
esac
build "cortex-$core"
bin=$FEDGE_SOURCE_DIR/build/cortex-$core/bin
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for image in mcu_mlp mcu_cnn mcu_adam edge-only; do
    echo "== $image on $machine"
    timeout 600 qemu-system-arm -M "$machine" -nographic -monitor none -serial none -icount shift=0 \
        -semihosting-config enable=on,target=native -kernel "$bin/$image" >"$work/$image" 2>&1 </dev/null ||
        { tail -n 5 "$work/$image"; exit 1; }
    "$FEDGE_BIN_DIR/$image" >"$work/$image.host" || { tail -n 5 "$work/$image.host"; exit 1; }
    symbols=$(arm-none-eabi-nm "$bin/$image")
    if grep -wE '_?(malloc_r|malloc|printf|vfprintf|_sbrk|__malloc_.*)' <<<"$symbols"; then
        echo "$image contains malloc or stdio"
        exit 1
    fi
    case $image in
    mcu_*)
        tail -n 1 "$work/$image"
        /usr/bin/python3 -B "$FEDGE_SOURCE_DIR/tests/cross/compare_losses.py" \
            "$work/$image" "$work/$image.host" "$core"
        ;;
    esac
done
