# For the tests of this folder, sourced: build PRESET [TARGET], in $FEDGE_SOURCE_DIR/build/PRESET.

# Leaves with ctest's code for a skipped test when a command is missing.
need() {
    local command
    for command; do
        command -v "$command" >/dev/null || {
            echo "skipped: $command is missing; run cmake/setup.sh --cross"
            exit 77
        }
    done
}

# Configures and builds; shows what the compiler said only when it failed.
build() {
    local preset=$1 folder=$FEDGE_SOURCE_DIR/build/$1 generator=() log
    shift
    log=$folder/cross.log
    mkdir -p "$folder"
    if [ ! -f "$folder/CMakeCache.txt" ] && command -v ninja >/dev/null; then
        generator=(-G Ninja)
    fi
    (cd "$FEDGE_SOURCE_DIR" && cmake --preset "$preset" "${generator[@]}" -DFEDGE_WERROR="${FEDGE_WERROR:-OFF}" &&
        cmake --build "$folder" -j "$(nproc)" "$@") >"$log" 2>&1 || {
        tail -n 40 "$log"
        echo "the build of $preset failed; the whole output is in $log"
        exit 1
    }
}
