#!/bin/bash
# Where sources come from (cmake/sources.sh), with a mirror in a folder: the pinned files; the newest of the
# index in the range once the mirror has dropped those; nothing when none fits or a file is another.
# .ci/check-dependencies warns of what is newer.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
    echo "$*" >&2
    exit 1
}
command -v dpkg >/dev/null && [ -x /usr/lib/apt/apt-helper ] || { echo "skipped: this is not Debian"; exit 77; }

# A mirror with pools for releases and for security updates, and an apt that knows it.
pool=$work/mirror/pool/main/m/mbedtls security=$work/security/pool/updates/main/libw/libwebsockets
tree=$work/tree
mkdir -p "$pool" "$security" "$work/bin" "$tree/.ci" "$tree/cmake" "$work/index" "$work/deps/log"
cp "$FEDGE_SOURCE_DIR/cmake/sources.sh" "$tree/cmake/"
cp "$FEDGE_SOURCE_DIR/.ci/check-dependencies" "$tree/.ci/"
# shellcheck disable=SC1091
codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
cat >"$work/bin/apt-get" <<END
#!/bin/bash
case " \$* " in *" --print-uris "*)
    echo "'file:$work/mirror/dists/$codename/InRelease' x 0"
    echo "'file:$work/security/dists/$codename-security/InRelease' y 0"
    ;;
esac
END
# apt-cache -o ... showsrc --only-source PACKAGE
cat >"$work/bin/apt-cache" <<END
#!/bin/bash
cat "$work/index/\${@: -1}" 2>/dev/null
END
chmod +x "$work"/bin/*
export PATH=$work/bin:$PATH

# source PACKAGE VERSION POOL FILE...: files with bytes of their own in POOL, and a paragraph of the index.
source_package() {
    local package=$1 version=$2 pool=$3 file
    shift 3
    {
        printf 'Package: %s\nBinary: a,\n b\nVersion: %s\nChecksums-Sha1:\n 00 1 no.orig.tar.gz\nChecksums-Sha256:\n' "$package" "$version"
        for file; do
            echo "$file" >"$pool/$file"
            printf ' %s 9 %s\n' "$(sha256sum <"$pool/$file" | cut -d' ' -f1)" "$file"
        done
        printf 'Directory: pool\n\n'
    } >>"$work/index/$package"
}
pin() {
    (cd "$1" && shift && sha256sum "$@") >>"$tree/cmake/sources.sha256"
}
# get [keep]: runs the fetching, with nothing from before or with what is there.
get() {
    [ "${1:-}" = keep ] || rm -rf "$work/deps"
    mkdir -p "$work/deps/log"
    (
        set -eu
        root=$tree deps=$work/deps sources=$work/deps/sources
        say() { echo "$*" >&2; }
        die() {
            echo "$*" >&2
            exit 1
        }
        step() {
            shift
            "$@"
        }
        . "$root/cmake/sources.sh"
        fetch sources.sha256
    ) 2>"$work/said"
}
has() {
    [ -f "$work/deps/sources/$1" ] && grep -q "  $1\$" "$work/deps/sources/sources.sha256" || fail "$1 was not fetched: $(cat "$work/said")"
}
checked() {
    local code=0
    "$tree/.ci/check-dependencies" >"$work/said" 2>&1 || code=$?
    [ "$code" = "$1" ] && grep -q "$2" "$work/said" || fail "check-dependencies: $code, not $1 with '$2': $(cat "$work/said")"
}

source_package libwebsockets 4.3.5-1+deb13u3 "$security" libwebsockets_4.3.5.orig.tar.gz libwebsockets_4.3.5-1+deb13u3.debian.tar.xz
source_package mbedtls 3.6.7-3 "$pool" mbedtls_3.6.7.orig.tar.bz2 mbedtls_3.6.7-3.debian.tar.xz mbedtls_3.6.7-3.dsc
source_package mbedtls 3.6.6-0.1~deb13u1 "$pool" mbedtls_3.6.6.orig.tar.bz2
pin "$security" libwebsockets_4.3.5.orig.tar.gz libwebsockets_4.3.5-1+deb13u3.debian.tar.xz
pin "$pool" mbedtls_3.6.7.orig.tar.bz2 mbedtls_3.6.7-3.debian.tar.xz
source_package zlib 1:1.3.1-1 "$pool"
source_package cjson 1.7.18-3.1+deb13u1 "$pool"
source_package cmocka 1.1.7-3 "$pool"
for pinned in zlib_1.3.1.orig cjson_1.7.18-3.1+deb13u1.debian cmocka_1.1.7.orig; do
    echo "00  $pinned.tar.gz" >>"$tree/cmake/sources-cross.sha256"
done

get || fail "the pinned files were not fetched: $(cat "$work/said")"
has mbedtls_3.6.7-3.debian.tar.xz
has libwebsockets_4.3.5-1+deb13u3.debian.tar.xz
checked 0 'mbedtls 3.6.7-3 is the newest'

# Without a mirror: the very files, from a folder.
mkdir "$work/folder"
cp "$pool"/mbedtls_3.6.7* "$security"/* "$work/folder/"
FEDGE_SOURCES=$work/folder get || fail "the folder's files were not taken: $(cat "$work/said")"
has libwebsockets_4.3.5.orig.tar.gz
echo other >"$work/folder/mbedtls_3.6.7.orig.tar.bz2"
! FEDGE_SOURCES=$work/folder get || fail "another file than the pinned one was taken from the folder"
rm "$work/folder/mbedtls_3.6.7.orig.tar.bz2"
! FEDGE_SOURCES=$work/folder get || fail "a file that the folder lacks was not missed"
grep -q 'mbedtls_3.6.7.orig.tar.bz2 is missing; FEDGE_SOURCES must hold every file' "$work/said" || fail "$(cat "$work/said")"

# What is there from before serves only as long as the pins are the same.
get && get keep && [ ! -s "$work/said" ] || fail "the files were fetched twice: $(cat "$work/said")"
sed -i 's/^[0-9a-f]*\(  mbedtls_3.6.7-3\)/0000\1/' "$tree/cmake/sources.sha256"
get keep && grep -q 'mbedtls 3.6.7-3 instead of' "$work/said" || fail "the file of the pin before was taken: $(cat "$work/said")"
sed -i '/mbedtls_3.6.7-3/d' "$tree/cmake/sources.sha256"
pin "$pool" mbedtls_3.6.7-3.debian.tar.xz

# The mirror has replaced mbedTLS's files; 4.0 is out of the range.
source_package mbedtls 3.6.9-1 "$pool" mbedtls_3.6.9.orig.tar.bz2 mbedtls_3.6.9-1.debian.tar.xz
source_package mbedtls 3.6.10-1 "$pool" mbedtls_3.6.10.orig.tar.bz2 mbedtls_3.6.10-1.debian.tar.xz
source_package mbedtls 4.0.0-1 "$pool" mbedtls_4.0.0.orig.tar.bz2 mbedtls_4.0.0-1.debian.tar.xz
checked 1 'mbedtls 3.6.7-3 is pinned, and 3.6.10-1 is in the package index'
get || fail "newer files did not hinder the pinned ones: $(cat "$work/said")"
has mbedtls_3.6.7.orig.tar.bz2
rm "$pool"/mbedtls_3.6.7-3.debian.tar.xz
get || fail "what the index offers was not fetched: $(cat "$work/said")"
has mbedtls_3.6.10-1.debian.tar.xz
has libwebsockets_4.3.5.orig.tar.gz
[ "$(grep -vc '^#' "$work/deps/sources/sources.sha256")" = 4 ] || fail "$(cat "$work/deps/sources/sources.sha256")"
grep -q 'mbedtls 3.6.10-1 instead of' "$work/said" || fail "nothing was said: $(cat "$work/said")"

# Another file than the index names.
echo other >"$pool/mbedtls_3.6.10.orig.tar.bz2"
! get || fail "a file with another checksum was taken"
# Nothing that fits: 3.6.6 has known faults.
sed -i '/^Version: 3.6.[79]/s/3.6/3.5/; /^Version: 3.6.10/s/3.6/3.5/' "$work/index/mbedtls"
! get || fail "an older mbedTLS was taken"
grep -q 'no mbedtls from 3.6.7 up to 3.7; set FEDGE_SOURCES' "$work/said" || fail "$(cat "$work/said")"
checked 1 'the package index has no mbedtls from 3.6.7 up to 3.7'
