#!/bin/bash
# Without the network the simulator and libfedge_train are installed, and examples/edge_only is built
# against it.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
quietly() {
    "$@" >"$work/log" 2>&1 || {
        tail -n 30 "$work/log"
        exit 1
    }
}
generator=()
if command -v ninja >/dev/null; then generator=(-G Ninja); fi
quietly cmake -S "$FEDGE_SOURCE_DIR" -B "$work/build" "${generator[@]}" -DCMAKE_BUILD_TYPE=Debug -DFEDGE_NETWORK=OFF \
    -DFEDGE_CUDA=OFF -DFEDGE_TESTS=OFF
quietly cmake --build "$work/build" -j "$(nproc)"
quietly cmake --install "$work/build" --prefix "$work/prefix"
for file in bin/fedge-simulate share/man/man1/fedge-simulate.1 include/fedge/train.h lib/libfedge_train.a lib/libfedge_train.so lib/pkgconfig/fedge-train.pc; do
    [ -e "$work/prefix/$file" ] || { echo "$file is not installed"; exit 1; }
done
[ ! -e "$work/prefix/include/fedge/client.h" ] || { echo "there is a client.h without its library"; exit 1; }
"$work/prefix/bin/fedge-simulate" --version
cp -r "$FEDGE_SOURCE_DIR/examples/edge_only" "$work/edge_only"
quietly cmake -S "$work/edge_only" -B "$work/example" -DCMAKE_PREFIX_PATH="$work/prefix"
quietly cmake --build "$work/example"
"$work/example/edge-only" || { echo "it did not learn: $?"; exit 1; }
sed -i 's/find_package(fedge REQUIRED)/find_package(fedge REQUIRED COMPONENTS client)/' "$work/edge_only/CMakeLists.txt"
if cmake -S "$work/edge_only" -B "$work/missing" -DCMAKE_PREFIX_PATH="$work/prefix" >"$work/log" 2>&1; then
    echo "CMake found a component that is not there"
    exit 1
fi
