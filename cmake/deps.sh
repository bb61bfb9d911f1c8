#!/usr/bin/env bash
# Builds libwebsockets and mbedTLS, static, into build/deps (or $FEDGE_DEPS).
#
#   cmake/deps.sh            does nothing when build/deps is already what this tree asks for
#   cmake/deps.sh TARGET     for aarch64, armhf or musl: into build/deps-TARGET, with zlib, cJSON and
#                            cmocka, by the compiler of the preset of that name
#   FEDGE_SOURCES=DIR        takes the source tarballs named in cmake/sources.sha256 from DIR (for
#                            machines without a package mirror); otherwise apt fetches them from
#                            the mirror that the system already uses
#
# The sources are Debian's (cmake/sources.sh says which and from where). Debian's patches and those in
# cmake/patches are applied.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
target=${1:-}
deps=${FEDGE_DEPS:-$root/build/deps${target:+-$target}}
sources=$deps/sources
jobs=$(nproc)

say() { printf 'deps: %s\n' "$*" >&2; }
die() {
    say "error: $*"
    exit 1
}

common=(-DCMAKE_INSTALL_PREFIX="$deps" -DCMAKE_INSTALL_LIBDIR=lib)
# Which looks for functions faster than make does.
[ -n "$target${CMAKE_GENERATOR:-}" ] || ! command -v ninja >/dev/null || common+=(-G Ninja)
optimise="-O3 -g1"
roles=(-DLWS_WITH_LIBEV=ON -DLWS_WITH_EVLIB_PLUGINS=OFF)
if [ -n "$target" ]; then
    case $target in
    aarch64) toolchain=aarch64-linux-gnu ;;
    armhf) toolchain=arm-linux-gnueabihf ;;
    musl) toolchain=x86_64-linux-musl ;;
    *) die "there is no target '$target'; there are aarch64, armhf and musl" ;;
    esac
    CC=$(sed -n 's/^set(CMAKE_C_COMPILER \(.*\))$/\1/p' "$root/cmake/toolchains/$toolchain.cmake")
    export CC
    common+=(-DCMAKE_TOOLCHAIN_FILE="$root/cmake/toolchains/$toolchain.cmake")
    # Small before fast: a device has one connection. -Oz, below, is no option of every compiler.
    optimise="-Os -g1 -ffunction-sections -fdata-sections"
    # Programs of one size wherever they are built: asserts name files without the way to them.
    [[ $deps = *[[:space:]]* ]] || optimise="$optimise -fmacro-prefix-map=$deps/src/="
    [ "$target" != musl ] || optimise="${optimise/-Os/-Oz} -fno-asynchronous-unwind-tables -fno-pie"
    # Devices need the client only, and fedge shows no log of libwebsockets.
    roles=(-DLWS_WITHOUT_SERVER=ON -DLWS_WITH_LIBEV=OFF -DLWS_LOGGING_BITFIELD_CLEAR=0xfffd
        -DLWS_WITH_SYS_SMD=OFF -DLWS_WITH_CONMON=OFF -DLWS_WITH_UDP=OFF -DLWS_ROLE_RAW_FILE=OFF
        -DLWS_WITH_DIR=OFF -DLWS_WITH_HTTP_UNCOMMON_HEADERS=OFF -DLWS_WITH_CUSTOM_HEADERS=OFF
        -DLWS_LOG_TAG_LIFECYCLE=OFF -DLWS_WITH_LWSAC=OFF)
    sources=$root/build/deps/sources # one download for all targets
fi
# The musl programs are linked without -pie, and smaller for it.
pic=
if [ "$target" != musl ]; then
    common+=(-DCMAKE_POSITION_INDEPENDENT_CODE=ON)
    pic=-fPIC
fi

# As fedge's own code is compiled (cmake/Compiler.cmake). Control-flow protection is x86's, and musl's
# start-up code does without.
harden="-fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2"
case $target/$("${CC:-cc}" -dumpmachine 2>/dev/null) in /x86_64*) harden="$harden -fcf-protection=full" ;; esac

# What the build depends on; anything that changes here makes the next run build again.
fingerprint() {
    {
        cat "$root/cmake/deps.sh" "$root"/cmake/sources*.sha256 "$root"/cmake/mbedtls_config*.h \
            "$root"/cmake/patches/*.patch
        [ -z "$target" ] || cat "$root/cmake/toolchains/$toolchain.cmake" "$root/cmake/toolchains/linux.cmake"
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

# What a target needs beyond libwebsockets and mbedTLS is listed apart, and fetched only for one.
lists=(sources.sha256)
[ -z "$target" ] || lists+=(sources-cross.sha256)
# shellcheck source=cmake/sources.sh
. "$root/cmake/sources.sh"

# Unpacks the source file that matches $1 into folder $2.
unpack() {
    local file
    file=$(cd "$sources" && sed -n "s|^[0-9a-f]*  \($1\)$|\1|p" "${lists[@]}")
    [ -n "$file" ] || die "no source named like '$1' in $sources"
    mkdir -p "$2"
    tar -xf "$sources/$file" -C "$2" --strip-components=1
}

# Applies patch $2 to the sources of $1.
apply() {
    patch --directory="$deps/src/$1" --strip=1 --forward --fuzz=0 --input="$2" \
        >>"$deps/log/patch.txt" 2>&1 || die "the patch $2 does not apply to $1 (see $deps/log/patch.txt)"
}

# Unpacks $1 with Debian's patches, but for the one named $2.
unpack_patched() {
    local name
    unpack "$1_.*\.orig\.tar\..*" "$deps/src/$1"
    unpack "$1_.*\.debian\.tar\..*" "$deps/src/$1-debian"
    while read -r name; do
        case $name in '' | '#'* | "${2:-}") continue ;; esac
        apply "$1" "$deps/src/$1-debian/patches/$name"
    done <"$deps/src/$1-debian/patches/series"
}

prepare() {
    rm -rf "$deps/src"
    unpack_patched libwebsockets
    # Without this one of Debian's: the curves that fedge links, Everest's and p256-m's, are "3rdparty" there.
    unpack_patched mbedtls cmake-disable-3rdparty.patch
    local name
    for name in "$root"/cmake/patches/libwebsockets-*.patch; do
        apply libwebsockets "$name"
    done
    for name in "$root"/cmake/patches/mbedtls-*.patch; do
        apply mbedtls "$name"
    done
    local headers=$deps/src/mbedtls/include/mbedtls
    mv "$headers/mbedtls_config.h" "$headers/mbedtls_config_default.h"
    if [ -z "$target" ]; then
        cp "$root/cmake/mbedtls_config.h" "$headers/mbedtls_config.h"
        return 0
    fi
    cp "$root/cmake/mbedtls_config.h" "$headers/mbedtls_config_fedge.h"
    cp "$root/cmake/mbedtls_config_device.h" "$headers/mbedtls_config.h"
    # What signs certificates needs SHA-1; the handshake of websockets has libwebsockets' own.
    [ "$target" != musl ] || echo "#undef MBEDTLS_SHA1_C" >>"$headers/mbedtls_config.h"
    # 5 KB that the small client has no room for: it makes full handshakes.
    [ "$target" != musl ] || printf '#undef MBEDTLS_SSL_%s\n' SESSION_TICKETS \
        TLS1_3_KEY_EXCHANGE_MODE_PSK_EPHEMERAL_ENABLED >>"$headers/mbedtls_config.h"
    unpack_patched cjson
    unpack 'zlib_.*\.orig\.tar\..*' "$deps/src/zlib"
    unpack 'cmocka_.*\.orig\.tar\..*' "$deps/src/cmocka"
}

# --- builds ------------------------------------------------------------------------------------

build_mbedtls() {
    # Debian builds it with this define, for newer compilers' sake.
    local flags="$optimise $harden -DMBEDTLS_ALIGNMENT_DISABLE_EFFICENT_UNALIGNED_ACCESS ${CFLAGS:-}"
    # Without these AES-GCM takes a slow path; every x86-64 that can run fedge usefully has them.
    case $("${CC:-cc}" -dumpmachine) in x86_64*) flags="$flags -maes -mpclmul -msse4.1" ;; esac
    # Musl's client is linked with optimisation across files.
    [ "$target" != musl ] || flags="$flags -flto -ffat-lto-objects"
    # Build type None: the others replace the optimisation level given here.
    CFLAGS=$flags step mbedtls-configure cmake -S "$deps/src/mbedtls" -B "$deps/obj/mbedtls" "${common[@]}" \
        -DCMAKE_BUILD_TYPE=None -DENABLE_PROGRAMS=OFF -DENABLE_TESTING=OFF \
        -DUSE_STATIC_MBEDTLS_LIBRARY=ON -DUSE_SHARED_MBEDTLS_LIBRARY=OFF -DMBEDTLS_FATAL_WARNINGS=OFF
    step mbedtls-build cmake --build "$deps/obj/mbedtls" -j "$jobs"
    step mbedtls-install cmake --install "$deps/obj/mbedtls"
    # But for libmbedtls: functions of it are wrapped (secure/identity), and a call must not pass by the wrap.
    [ "$target" != musl ] || objcopy --wildcard --remove-section='.gnu.lto_*' --remove-section='.gnu.debuglto_*' \
        --strip-symbol=__gnu_lto_v1 "$deps/lib/libmbedtls.a"
}

build_libwebsockets() {
    # Certificates' times are UTC, and the time zone is one for all threads.
    local lib=$deps/lib type=Release lws_flags=("-g1 $harden -Dmktime=timegm")
    # Build type None for a target, since Release would put -O3 behind the flags given here; NDEBUG
    # is Release's. Nor does a log that is not shown need time zones: 4 KB.
    [ -z "$target" ] || type=None lws_flags=("$optimise $harden -DNDEBUG -Dmktime=timegm -Dlocaltime_r=gmtime_r"
        -Werror=implicit-function-declaration)
    CFLAGS="${lws_flags[*]} ${CFLAGS:-}" step libwebsockets-configure cmake -S "$deps/src/libwebsockets" -B "$deps/obj/libwebsockets" \
        "${common[@]}" -DCMAKE_BUILD_TYPE=$type -DDISABLE_WERROR=ON \
        -DLWS_WITH_MBEDTLS=ON -DLWS_MBEDTLS_INCLUDE_DIRS="$deps/include" \
        -DLWS_MBEDTLS_LIBRARIES="$lib/libmbedtls.a;$lib/libmbedx509.a;$lib/libmbedcrypto.a" \
        -DMBEDTLS_LIBRARY="$lib/libmbedtls.a" -DMBEDX509_LIBRARY="$lib/libmbedx509.a" \
        -DMBEDCRYPTO_LIBRARY="$lib/libmbedcrypto.a" \
        -DLWS_WITH_STATIC=ON -DLWS_WITH_SHARED=OFF -DLWS_STATIC_PIC=ON \
        "${roles[@]}" -DLWS_HAVE_LIBCAP=0 \
        -DLWS_WITH_HTTP2=OFF -DLWS_WITHOUT_EXTENSIONS=ON -DLWS_WITH_PLUGINS=OFF \
        -DLWS_SSL_CLIENT_USE_OS_CA_CERTS=OFF -DLWS_UNIX_SOCK=OFF -DLWS_WITH_LEJP=OFF \
        -DLWS_WITH_LEJP_CONF=OFF -DLWS_WITH_CACHE_NSCOOKIEJAR=OFF -DLWS_WITH_HTTP_BASIC_AUTH=OFF \
        -DLWS_CLIENT_HTTP_PROXYING=ON -DLWS_IPV6=ON -DLWS_WITH_FILE_OPS=OFF -DLWS_WITH_TLS_SESSIONS=OFF \
        -DLWS_WITH_NETLINK=OFF -DLWS_WITHOUT_TESTAPPS=ON -DLWS_WITH_EXPORT_LWSTARGETS=OFF
    step libwebsockets-build cmake --build "$deps/obj/libwebsockets" -j "$jobs"
    step libwebsockets-install cmake --install "$deps/obj/libwebsockets"
}

# The small libraries that the system has for itself but not for the target.
build_small() {
    local archiver # the prefix of ar and ranlib
    # Z_TESTW=0: 8 KB of tables less. A device reads checksums of packed data sets only, once.
    local small=-DZ_TESTW=0
    case $target in
    # Without the searches for strings that Z_RLE, the one strategy that is used, does without.
    musl) archiver="" small="$small -DFASTEST" ;;
    *) archiver=$toolchain ;;
    esac
    # Its configure script, not CMake: Debian's sources are without the Windows files that CMake wants.
    step zlib-configure env -C "$deps/src/zlib" CHOST="$archiver" CFLAGS="$optimise $pic $small ${CFLAGS:-}" \
        ./configure --static --prefix="$deps"
    step zlib-build make -C "$deps/src/zlib" -j "$jobs" libz.a
    # Nobody writes gzip files; the two share a struct that has their headers.
    # shellcheck disable=SC2016
    [ "$target" != musl ] || step zlib-no-gzip env -C "$deps/src/zlib" sh -c \
        'touch deflate.c trees.c && make libz.a CFLAGS="$(sed -n s/^CFLAGS=//p Makefile) -DNO_GZIP"'
    cp "$deps"/src/zlib/{zlib,zconf}.h "$deps/include/"
    cp "$deps/src/zlib/libz.a" "$deps/lib/"
    CFLAGS="$optimise ${CFLAGS:-}" step cjson-configure cmake -S "$deps/src/cjson" -B "$deps/obj/cjson" "${common[@]}" \
        -DCMAKE_BUILD_TYPE=None -DBUILD_SHARED_LIBS=OFF -DENABLE_CJSON_TEST=OFF -DENABLE_CJSON_UTILS=OFF
    step cjson-build cmake --build "$deps/obj/cjson" -j "$jobs"
    step cjson-install cmake --install "$deps/obj/cjson"
    step cmocka-configure cmake -S "$deps/src/cmocka" -B "$deps/obj/cmocka" "${common[@]}" \
        -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DWITH_EXAMPLES=OFF
    step cmocka-build cmake --build "$deps/obj/cmocka" -j "$jobs"
    step cmocka-install cmake --install "$deps/obj/cmocka"
}

# musl's compiler does not look for the kernel's headers.
link_kernel_headers() {
    mkdir -p "$deps/kernel-headers"
    ln -sfn /usr/include/linux "$deps/kernel-headers/linux"
    ln -sfn /usr/include/asm-generic "$deps/kernel-headers/asm-generic"
    ln -sfn "/usr/include/$(cc -print-multiarch)/asm" "$deps/kernel-headers/asm"
}

# -----------------------------------------------------------------------------------------------

mkdir -p "$deps/log"
command -v "${CC:-cc}" >/dev/null || die "no ${CC:-C compiler}; run cmake/setup.sh${target:+ --cross}"
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
fetch "${lists[@]}"
prepare
[ "$target" != musl ] || link_kernel_headers
build_mbedtls
build_libwebsockets
[ -z "$target" ] || build_small
rm -rf "$deps/obj"
printf '%s\n' "$want" >"$deps/stamp"
say "libwebsockets and mbedTLS${target:+, zlib, cJSON and cmocka} are in $deps"
