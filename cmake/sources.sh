# Fetches Debian's sources: for cmake/deps.sh, and for .ci/check-dependencies, which compares versions.
# Both set $root, $deps (a folder for the work), $sources (one for the files) and the functions say, die
# and step before they read this file.
#
# What is built is pinned: cmake/sources*.sha256 name every file with its checksum, and each comes from
# the pool of the mirror that the system already uses. A mirror drops a file once Debian has replaced it.
# Then the newest version in Debian's signed index takes its place, if it is in the range given below.
# The system's apt configuration is read, never changed.
# shellcheck shell=bash disable=SC2154

keyring=/usr/share/keyrings/debian-archive-keyring.gpg

# "PACKAGE SUITES AT-LEAST BELOW FILES" for each package of list $1: SUITES is the index that versions are
# taken from (see write_index), FILES a pattern of the tarballs that are needed.
packages_of() {
    case $1 in
    sources.sha256)
        # Debian 13 still has mbedTLS 3.6.6, for which 3.6.7 mends 19 faults of security.
        echo "libwebsockets stable 4.3.5-1+deb13u3 4.4 orig|debian"
        echo "mbedtls unstable 3.6.7 3.7 orig|debian"
        ;;
    sources-cross.sha256)
        echo "zlib stable 1:1.3 1:2 orig"
        echo "cjson stable 1.7.18-3.1+deb13u1 1.8 orig|debian"
        echo "cmocka stable 1.1.7 2 orig"
        ;;
    esac
}

# The address of the archive that this system's apt takes its release from; with "-security", of the
# one that it takes security updates from.
system_mirror() {
    # shellcheck disable=SC1091
    local codename
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    [ -n "$codename" ] || return 0
    apt-get --print-uris update 2>/dev/null |
        sed -n "s|^'\(.*/\)dists/$codename${1:-}/InRelease' .*|\1|p" | head -n 1
}

# find_mirrors: sets mirror, and security, which may be empty.
find_mirrors() {
    command -v apt-get >/dev/null || die "apt-get is missing; run cmake/setup.sh on Debian 12, or set FEDGE_SOURCES=DIR"
    mirror=$(system_mirror)
    [ -n "$mirror" ] || die "apt has no source for this release; set FEDGE_SOURCES=DIR (see cmake/sources.sha256)"
    security=$(system_mirror -security)
}

# private_apt SUITES COMMAND...: apt's program COMMAND with the indexes of write_index.
private_apt() {
    local apt=$deps/apt/$1 program=$2
    shift 2
    "$program" -o "Dir::Etc::SourceList=$apt/fedge.sources" -o Dir::Etc::SourceParts=/dev/null \
        -o "Dir::State::Lists=$apt/lists" -o "Dir::Cache=$apt/cache" -o APT::Sandbox::User= "$@"
}

# Fetches the signed indexes that SUITES names, once: "stable" has Debian 13 with its updates, "unstable"
# that and Debian unstable.
write_index() {
    local apt=$deps/apt/$1 suites="trixie trixie-updates"
    [ ! -e "$apt/done" ] || return 0
    [ -r "$keyring" ] || die "$keyring is missing; install debian-archive-keyring, or set FEDGE_SOURCES=DIR"
    [ "$1" = stable ] || suites="$suites sid"
    mkdir -p "$apt"/{lists,cache}
    printf 'Types: deb-src\nURIs: %s\nSuites: %s\nComponents: main\nSigned-By: %s\n\n' \
        "$mirror" "$suites" "$keyring" >"$apt/fedge.sources"
    [ -z "$security" ] || printf 'Types: deb-src\nURIs: %s\nSuites: trixie-security\nComponents: main\nSigned-By: %s\n' \
        "$security" "$keyring" >>"$apt/fedge.sources"
    step "index-$1" private_apt "$1" apt-get --error-on=any update
    touch "$apt/done"
}

# newest PACKAGE SUITES AT-LEAST BELOW: prints the newest version in the index from AT-LEAST up to BELOW,
# or nothing.
newest() {
    local version best=
    write_index "$2"
    while read -r version; do
        dpkg --compare-versions "$version" ge "$3" && dpkg --compare-versions "$version" lt "$4" || continue
        [ -n "$best" ] && dpkg --compare-versions "$version" le "$best" || best=$version
    done < <(private_apt "$2" apt-cache showsrc --only-source "$1" 2>/dev/null | sed -n 's/^Version: //p')
    printf '%s\n' "$best"
}

# Prints "SHA256  FILE" for the tarballs of each package of list $1 in its newest version.
newest_sums() {
    local package suites at_least below wanted version
    while read -r package suites at_least below wanted; do
        version=$(newest "$package" "$suites" "$at_least" "$below") || exit 1
        [ -n "$version" ] ||
            die "the mirror offers no $package from $at_least up to $below; set FEDGE_SOURCES=DIR (see cmake/$1)"
        say "$package $version instead of the version in cmake/$1"
        private_apt "$suites" apt-cache showsrc --only-source "$package" |
            awk -v version="Version: $version" -v wanted="[.]($wanted)[.]tar[.][a-z0-9]+$" '
                BEGIN { RS = ""; FS = "\n" }
                index("\n" $0 "\n", "\n" version "\n") {
                    for (i = 1; i <= NF; i++) {
                        split($i, field, " ")
                        if ($i !~ /^ /) in_sums = $i ~ /^Checksums-Sha256:/
                        else if (in_sums && field[3] ~ wanted) print field[1] "  " field[3]
                    }
                    exit
                }'
    done < <(packages_of "$1")
}

# Whether every file of "SHA256  FILE" lines $1 lies in $sources; what is missing is said on stderr.
have() {
    (cd "$sources" && sha256sum --check --strict --quiet - <<<"$1") >&2
}

# Fetches those of the files "SHA256  FILE" of lines $1 that are not in $sources from the pools of the
# mirrors. While Debian releases an update, a file may be in that of security updates alone.
fetch_from_pools() {
    local sum file package folder url
    while read -r sum file; do
        package=${file%%_*}
        folder=${package:0:1}
        [[ $package != lib* ]] || folder=${package:0:4}
        for url in "${mirror}pool/main" ${security:+"${security}pool/updates/main"}; do
            ! have "$sum  $file" 2>/dev/null || break
            rm -f "$sources/$file"
            /usr/lib/apt/apt-helper download-file "$url/$folder/$package/${file//+/%2b}" "$sources/$file" \
                "SHA256:$sum" >>"$deps/log/fetch.txt" 2>&1 || true
        done
    done <<<"$1"
    have "$1" 2>>"$deps/log/fetch.txt"
}

sources_from_mirror() {
    local list=$1 sums mirror security
    find_mirrors
    sums=$(cat "$root/cmake/$list")
    say "fetch what cmake/$list names"
    if ! fetch_from_pools "$sums"; then
        say "the mirror lacks files of cmake/$list; looking for newer ones"
        sums=$(newest_sums "$list") || exit 1
        fetch_from_pools "$sums" ||
            die "the mirror did not deliver the sources (see $deps/log/fetch.txt); try again, or set FEDGE_SOURCES=DIR"
    fi
    keep_list "$list" "$sums"
    rm -rf "$deps/apt"
}

sources_from_folder() {
    local from=$1 list=$2 file
    [ -d "$from" ] || die "FEDGE_SOURCES=$from is not a folder; it must hold the files named in cmake/$list"
    while read -r _ file; do
        [ -f "$from/$file" ] || die "$from/$file is missing; FEDGE_SOURCES must hold every file named in cmake/$list"
        cp "$from/$file" "$sources/$file"
    done <"$root/cmake/$list"
    (cd "$sources" && sha256sum --check --strict --quiet "$root/cmake/$list") >&2 ||
        die "the files in $from are not those of cmake/$list; fetch them again"
    keep_list "$list" "$(cat "$root/cmake/$list")"
}

# The files in $sources that stand for list $1 as it is now are those of lines $2.
keep_list() {
    printf '# for %s\n%s\n' "$(sha256sum <"$root/cmake/$1")" "$2" >"$sources/$1"
}

# Whether $sources has files that stand for list $1 as it is now.
have_list() {
    [ "$(head -n 1 "$sources/$1" 2>/dev/null)" = "# for $(sha256sum <"$root/cmake/$1")" ] &&
        (cd "$sources" && sha256sum --check --strict --status "$1" 2>/dev/null)
}

# Puts the files of the lists $@ into $sources.
fetch() {
    local list
    mkdir -p "$sources"
    exec 8>"$sources/lock"
    flock -w 900 8 || die "another build has held $sources/lock for 15 minutes; see whether it is still at work"
    for list; do
        if [ -n "${FEDGE_SOURCES:-}" ]; then
            sources_from_folder "$FEDGE_SOURCES" "$list"
        elif ! have_list "$list"; then
            sources_from_mirror "$list"
        fi
    done
    exec 8>&-
}
