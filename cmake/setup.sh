#!/usr/bin/env bash
# Makes a Debian 12 machine ready to build fedge: installs the packages that are missing (as root, or
# with sudo) and builds libwebsockets and mbedTLS into build/deps. Once done, it does nothing.
#
#   cmake/setup.sh           what building and the quickstart need
#   cmake/setup.sh --mpi     Open MPI as well: mpirun, for several machines
#   cmake/setup.sh --tests   what the tests need as well (Open MPI is in it)
#   cmake/setup.sh --python  what "pip install ./client/python" needs: Python's headers, and virtual environments
#   cmake/setup.sh --torch   Debian's PyTorch, for tests of Python clients (142 MB)
#   cmake/setup.sh --cross   compilers for other processors, and QEMU (240 MB)
#
# FEDGE_SOURCES=DIR: see cmake/deps.sh.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
packages=(build-essential cmake ninja-build libcjson-dev zlib1g-dev libev-dev libgcrypt20-dev libisal-dev dpkg-dev patch bzip2 xz-utils
    ca-certificates debian-archive-keyring pkgconf python3 dataset-fashion-mnist)
mpi_packages=(libopenmpi-dev openmpi-bin)
test_packages=("${mpi_packages[@]}" libcmocka-dev clang libclang-rt-dev clang-format clang-tidy iproute2 nftables openssl curl
    procps git python3-dev python3-cffi python3-numpy python3-jsonschema)
cross_packages=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross gcc-arm-linux-gnueabihf libc6-dev-armhf-cross
    qemu-user-static gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm musl-tools linux-libc-dev)

say() { printf 'setup: %s\n' "$*" >&2; }
die() {
    say "error: $*"
    exit 1
}

for argument; do
    case $argument in
    --mpi) packages+=("${mpi_packages[@]}") ;;
    --tests) packages+=("${test_packages[@]}") ;;
    --python) packages+=(python3-dev python3-venv) ;;
    --torch) packages+=(python3-torch python3-venv) ;;
    --cross) packages+=("${cross_packages[@]}") ;;
    -h | --help)
        sed -n '2,12s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    *) die "unknown argument '$argument'; there are --mpi, --tests, --python, --torch and --cross" ;;
    esac
done

# Prints those of the packages $@ that are not installed.
missing() {
    local installed
    installed=$(dpkg-query --show --showformat '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null |
        sed -n 's/^installed //p' || true)
    printf '%s\n' "$@" | grep -vxF "${installed:-none}" || true
}

# Another apt may be at work, and a mirror may be unavailable for a moment.
apt() {
    local try
    for try in 1 2 3; do
        if "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=600 "$@" \
            >"$log" 2>&1 </dev/null; then
            return 0
        fi
        [ "$try" = 3 ] || sleep $((try * 10))
    done
    tail -n 20 "$log" >&2
    die "'apt-get $1' failed; its whole output is in $log. Put it right, or install by hand: ${wanted[*]}"
}

mkdir -p "$root/build"
exec 8>"$root/build/setup.lock"
flock -w 1800 8 || die "another cmake/setup.sh has held $root/build/setup.lock for 30 minutes; see whether it is still at work"

command -v dpkg-query >/dev/null || die "this is not Debian; install what 'packages' in cmake/setup.sh names, then run cmake/deps.sh"
mapfile -t wanted < <(missing "${packages[@]}")
if [ ${#wanted[@]} -gt 0 ]; then
    as_root=()
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null ||
            die "packages are missing and this is neither root nor is there sudo; as root: apt-get install ${wanted[*]}"
        as_root=(sudo)
    fi
    log=$root/build/setup.log
    say "installing ${wanted[*]}"
    apt update
    apt install --no-install-recommends "${wanted[@]}"
    mapfile -t wanted < <(missing "${wanted[@]}")
    [ ${#wanted[@]} -eq 0 ] || die "apt did not install ${wanted[*]}; see $log"
fi

"$root/cmake/deps.sh"
