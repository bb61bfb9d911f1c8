#!/usr/bin/env bash
# Builds libwebsockets and mbedTLS, static, into build/deps (or $FEDGE_DEPS).
#
#   cmake/deps.sh            does nothing when build/deps is already what this tree asks for
#   FEDGE_SOURCES=DIR        takes the source tarballs named in cmake/sources.sha256 from DIR (for
#                            machines without a package mirror); otherwise apt fetches them from
#                            the mirror that the system already uses
#
# The sources are Debian 13's, whose index apt verifies; Debian's security patches for libwebsockets
# and the two in cmake/patches are applied. The system's apt configuration is read, never changed.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
deps=${FEDGE_DEPS:-$root/build/deps}
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
jobs=$(nproc)

say() { printf 'deps: %s\n' "$*" >&2; }
die() {
    say "error: $*"
    exit 1
}

# What the build depends on; anything that changes here makes the next run build again.
fingerprint() {
    {
        cat "$root/cmake/deps.sh" "$root/cmake/mbedtls_config.h" "$root"/cmake/patches/*.patch
        "${CC:-cc}" -dumpfullversion -dumpmachine
        echo "CC=${CC:-} CFLAGS=${CFLAGS:-} DIR=$deps"
    } | sha256sum | cut -d' ' -f1
}

# One step with its output in a log, shown when the step fails.
step() {
    local name=$1
    shift
    say "$name"
    if ! "$@" >"$deps/log/$name.txt" 2>&1; then
        tail -n 30 "$deps/log/$name.txt" >&2
        die "'$name' failed; the whole output is in $deps/log/$name.txt"
    fi
}

# --- sources -----------------------------------------------------------------------------------

sources_from_folder() {
    local from=$1 file
    [ -d "$from" ] || die "FEDGE_SOURCES=$from is not a folder; it must hold the files named in cmake/sources.sha256"
    while read -r _ file; do
        [ -f "$from/$file" ] || die "$from/$file is missing; FEDGE_SOURCES must hold every file named in cmake/sources.sha256"
        cp "$from/$file" "$deps/sources/$file"
    done <"$root/cmake/sources.sha256"
    (cd "$deps/sources" && sha256sum --check --quiet "$root/cmake/sources.sha256") >&2 ||
        die "the files in $from are not those of cmake/sources.sha256; fetch them again"
    cp "$root/cmake/sources.sha256" "$deps/sources/SHA256SUMS"
}

# The address of the archive that this system's apt takes its release from.
system_mirror() {
    # shellcheck disable=SC1091
    local codename
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    [ -n "$codename" ] || return 0
    apt-get --print-uris update 2>/dev/null |
        sed -n "s|^'\(.*/\)dists/$codename/InRelease' .*|\1|p" | head -n 1
}

private_apt() {
    apt-get -o "Dir::Etc::SourceList=$deps/apt/fedge.sources" -o Dir::Etc::SourceParts=/dev/null \
        -o "Dir::State::Lists=$deps/apt/lists" -o "Dir::Cache=$deps/apt/cache" \
        -o "Dir::Cache::Archives=$deps/apt/archives" -o APT::Sandbox::User= "$@"
}

# Prints "SHA256  FILE" for the tarballs of a source package and checks the version: at least $2, below $3.
tarballs_of() {
    local package=$1 at_least=$2 below=$3 list version
    list=$(private_apt source --print-uris "$package" 2>>"$deps/log/fetch.txt" |
        sed -n "s|^'[^']*' \([^ ]*\) [0-9]* SHA256:\([0-9a-f]*\)$|\2  \1|p")
    version=$(sed -n "s|.*  ${package}_\(.*\)\.dsc$|\1|p" <<<"$list")
    [ -n "$version" ] || die "the mirror offers no source of $package; set FEDGE_SOURCES (see cmake/sources.sha256)"
    if dpkg --compare-versions "$version" lt "$at_least" || dpkg --compare-versions "$version" ge "$below"; then
        die "the mirror offers $package $version, not one from $at_least up to $below; set FEDGE_SOURCES (see cmake/sources.sha256)"
    fi
    say "$package $version"
    grep -v '\.dsc$' <<<"$list"
}

sources_from_mirror() {
    local mirror sums
    for tool in apt-get dpkg-source; do
        command -v "$tool" >/dev/null || die "$tool is missing; run cmake/setup.sh on Debian 12, or set FEDGE_SOURCES=DIR"
    done
    [ -r "$keyring" ] || die "$keyring is missing; install debian-archive-keyring, or set FEDGE_SOURCES=DIR"
    mirror=$(system_mirror)
    [ -n "$mirror" ] || die "apt has no source for this release; set FEDGE_SOURCES=DIR (see cmake/sources.sha256)"
    mkdir -p "$deps"/apt/{lists,archives,cache}
    printf 'Types: deb-src\nURIs: %s\nSuites: trixie trixie-updates\nComponents: main\nSigned-By: %s\n' \
        "$mirror" "$keyring" >"$deps/apt/fedge.sources"
    step index private_apt --error-on=any update
    sums=$(tarballs_of libwebsockets 4.3.5-1+deb13u2 4.4 && tarballs_of mbedtls 3.6.6 3.7)
    # A mirror may lack the .dsc, which fails the command; the checksums of the signed index decide.
    say "fetch"
    (cd "$deps/sources" && private_apt source --download-only libwebsockets mbedtls) \
        >>"$deps/log/fetch.txt" 2>&1 || true
    (cd "$deps/sources" && sha256sum --check --quiet - <<<"$sums") >&2 ||
        die "the mirror did not deliver the sources (see $deps/log/fetch.txt); try again, or set FEDGE_SOURCES=DIR"
    printf '%s\n' "$sums" >"$deps/sources/SHA256SUMS"
    rm -rf "$deps/apt"
}

fetch() {
    mkdir -p "$deps/sources"
    if [ -n "${FEDGE_SOURCES:-}" ]; then
        sources_from_folder "$FEDGE_SOURCES"
    elif ! (cd "$deps/sources" && sha256sum --check --status SHA256SUMS 2>/dev/null); then
        sources_from_mirror
    fi
}

# Unpacks the file of SHA256SUMS that matches $1 into folder $2.
unpack() {
    local file
    file=$(sed -n "s|^[0-9a-f]*  \($1\)$|\1|p" "$deps/sources/SHA256SUMS")
    [ -n "$file" ] || die "no source named like '$1' in $deps/sources"
    mkdir -p "$2"
    tar -xf "$deps/sources/$file" -C "$2" --strip-components=1
}

apply() {
    patch --directory="$deps/src/libwebsockets" --strip=1 --forward --fuzz=0 --input="$1" \
        >>"$deps/log/patch.txt" 2>&1 || die "the patch $1 does not apply to libwebsockets (see $deps/log/patch.txt)"
}

prepare() {
    rm -rf "$deps/src"
    unpack 'libwebsockets_.*\.orig\.tar\..*' "$deps/src/libwebsockets"
    unpack 'libwebsockets_.*\.debian\.tar\..*' "$deps/src/libwebsockets-debian"
    unpack 'mbedtls_.*\.orig\.tar\..*' "$deps/src/mbedtls"
    local name
    while read -r name; do
        case $name in '' | '#'*) continue ;; esac
        apply "$deps/src/libwebsockets-debian/patches/$name"
    done <"$deps/src/libwebsockets-debian/patches/series"
    for name in "$root"/cmake/patches/libwebsockets-*.patch; do
        apply "$name"
    done
    local headers=$deps/src/mbedtls/include/mbedtls
    mv "$headers/mbedtls_config.h" "$headers/mbedtls_config_default.h"
    cp "$root/cmake/mbedtls_config.h" "$headers/mbedtls_config.h"
}

# --- builds ------------------------------------------------------------------------------------

common=(-DCMAKE_INSTALL_PREFIX="$deps" -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_POSITION_INDEPENDENT_CODE=ON)

build_mbedtls() {
    local flags="-O3 -g1 -fstack-protector-strong ${CFLAGS:-}"
    # Without these AES-GCM takes a slow path; every x86-64 that can run fedge usefully has them.
    case $("${CC:-cc}" -dumpmachine) in x86_64*) flags="$flags -maes -mpclmul -msse4.1" ;; esac
    # Build type None: the others replace the optimisation level given here.
    step mbedtls-configure cmake -S "$deps/src/mbedtls" -B "$deps/obj/mbedtls" "${common[@]}" \
        -DCMAKE_BUILD_TYPE=None -DCMAKE_C_FLAGS="$flags" -DENABLE_PROGRAMS=OFF -DENABLE_TESTING=OFF \
        -DUSE_STATIC_MBEDTLS_LIBRARY=ON -DUSE_SHARED_MBEDTLS_LIBRARY=OFF -DMBEDTLS_FATAL_WARNINGS=OFF
    step mbedtls-build cmake --build "$deps/obj/mbedtls" -j "$jobs"
    step mbedtls-install cmake --install "$deps/obj/mbedtls"
}

build_libwebsockets() {
    local lib=$deps/lib
    step libwebsockets-configure cmake -S "$deps/src/libwebsockets" -B "$deps/obj/libwebsockets" \
        "${common[@]}" -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS="-g1 ${CFLAGS:-}" -DDISABLE_WERROR=ON \
        -DLWS_WITH_MBEDTLS=ON -DLWS_MBEDTLS_INCLUDE_DIRS="$deps/include" \
        -DLWS_MBEDTLS_LIBRARIES="$lib/libmbedtls.a;$lib/libmbedx509.a;$lib/libmbedcrypto.a" \
        -DMBEDTLS_LIBRARY="$lib/libmbedtls.a" -DMBEDX509_LIBRARY="$lib/libmbedx509.a" \
        -DMBEDCRYPTO_LIBRARY="$lib/libmbedcrypto.a" \
        -DLWS_WITH_STATIC=ON -DLWS_WITH_SHARED=OFF -DLWS_STATIC_PIC=ON \
        -DLWS_WITH_LIBEV=ON -DLWS_WITH_EVLIB_PLUGINS=OFF -DLWS_HAVE_LIBCAP=0 \
        -DLWS_WITH_HTTP2=OFF -DLWS_WITHOUT_EXTENSIONS=ON -DLWS_WITH_PLUGINS=OFF \
        -DLWS_SSL_CLIENT_USE_OS_CA_CERTS=OFF -DLWS_UNIX_SOCK=OFF -DLWS_WITH_LEJP=OFF \
        -DLWS_WITH_LEJP_CONF=OFF -DLWS_WITH_CACHE_NSCOOKIEJAR=OFF -DLWS_WITH_HTTP_BASIC_AUTH=OFF \
        -DLWS_CLIENT_HTTP_PROXYING=OFF -DLWS_WITH_FILE_OPS=OFF -DLWS_WITH_TLS_SESSIONS=OFF \
        -DLWS_WITH_NETLINK=OFF -DLWS_WITHOUT_TESTAPPS=ON -DLWS_WITH_EXPORT_LWSTARGETS=OFF
    step libwebsockets-build cmake --build "$deps/obj/libwebsockets" -j "$jobs"
    step libwebsockets-install cmake --install "$deps/obj/libwebsockets"
}

# -----------------------------------------------------------------------------------------------

mkdir -p "$deps/log"
command -v "${CC:-cc}" >/dev/null || die "no C compiler; run cmake/setup.sh"
exec 9>"$deps/lock"
flock -w 900 9 || die "another build of $deps has held its lock for 15 minutes; see whether it is still at work"
want=$(fingerprint)
if [ "$(cat "$deps/stamp" 2>/dev/null)" = "$want" ]; then
    exit 0
fi
for tool in cmake patch tar xz bzip2 sha256sum; do
    command -v "$tool" >/dev/null || die "$tool is missing; run cmake/setup.sh"
done
rm -rf "$deps/stamp" "$deps/obj" "$deps/include" "$deps/lib"
: >"$deps/log/patch.txt"
: >"$deps/log/fetch.txt"
fetch
prepare
build_mbedtls
build_libwebsockets
rm -rf "$deps/obj"
printf '%s\n' "$want" >"$deps/stamp"
say "libwebsockets and mbedTLS are in $deps"
