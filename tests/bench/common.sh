# For the scripts of this folder, sourced: the root of the sources as working folder, arguments, building
# and Pythons.
set -euo pipefail
script=${0##*/}
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

arguments=() # for the measuring half
build=${FEDGE_BUILD:-build/release}

# take_arguments WORDS ARGUMENT...: answers --help with the comment at the script's head, and refuses what is
# neither an option of all scripts nor matches WORDS, an extended regular expression.
take_arguments() {
    local words=$1 arg kind=argument
    shift
    for arg in "$@"; do
        if [[ $arg = -h || $arg = --help ]]; then
            sed -n '2,${/^#/!q;s/^# \{0,1\}//p}' "tests/bench/$script"
            exit 0
        elif [[ $arg = --quick || $arg = --json || $arg =~ ^($words)$ ]]; then
            arguments+=("$arg")
        else
            [[ $arg = -* ]] && kind=option
            echo "$script: unknown $kind $arg; see --help" >&2
            exit 2
        fi
    done
}

make_targets() { # TARGET...
    if [ ! -f "$build/CMakeCache.txt" ]; then
        cmake --preset release -B "$build" >&2
    fi
    cmake --build "$build" --target "$@" >&2
}

first_with() { # MODULE...: the first of PYTHON and the usual Pythons that has them all
    local modules
    modules=$(printf "'%s'," "$@")
    for python in ${PYTHON-} python3 /usr/bin/python3; do
        if "$python" -c "import importlib.util as u, sys
sys.exit(any(u.find_spec(m) is None for m in ($modules)))" 2>/dev/null; then
            echo "$python"
            return
        fi
    done
    return 1
}
