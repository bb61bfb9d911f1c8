#!/bin/bash
# test_linux.sh aarch64|armhf: builds everything for the preset and runs its unit tests under QEMU.
set -eu
preset=$1
# shellcheck source=tests/cross/build.sh
. "$FEDGE_SOURCE_DIR/tests/cross/build.sh"
case $preset in
aarch64) need aarch64-linux-gnu-gcc qemu-aarch64-static ;;
armhf) need arm-linux-gnueabihf-gcc qemu-arm-static ;;
esac
bash "$FEDGE_SOURCE_DIR/cmake/deps.sh" "$preset"
build "$preset"
exec ctest --test-dir "$FEDGE_SOURCE_DIR/build/$preset" --output-on-failure --no-tests=error -j "$(nproc)"
