#!/bin/bash
# test_linux.sh aarch64|armhf: builds everything for the preset and runs its unit tests under QEMU, which is
# ten times slower. Left out are those of layers and whole models, which are the same plain C everywhere above
# the kernels that stay in, and the variants for x86.
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
unset FEDGE_TEST_LONG
exec ctest --test-dir "$FEDGE_SOURCE_DIR/build/$preset" --output-on-failure --no-tests=error -j "$(nproc)" \
    -E '^test_train_(curves|nets|recurrent|zoo)$|_(avx2|avx512)$'
