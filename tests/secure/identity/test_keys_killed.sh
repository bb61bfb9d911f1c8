#!/usr/bin/env bash
# Commands of fedge-keys, each killed after every one of its calls that change the disk, and then given again:
# test_keys_killed.sh PATH_OF_FEDGE_KEYS PATH_OF_NET_FAULTS
set -euo pipefail

keys=$1 faults=$2
dir=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d) # in memory: what is synced does not matter here
trap 'rm -rf "$dir"' EXIT
cd "$dir"
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:verify_asan_link_order=0"

fail() {
    printf 'test_keys_killed: %s\n' "$*" >&2
    exit 1
}
# kill_each FOLDER CHECK COMMAND...: fedge-keys COMMAND in copies of FOLDER, killed after the first call, the second,
# and so on to the last; given again it must end well, and so must CHECK.
kill_each() {
    local from=$1 check=$2 n=0 got=137
    shift 2
    while [ "$got" = 137 ]; do
        n=$((n + 1)) got=0
        rm -rf try
        cp -a "$from" try
        cd try
        # Within braces: the shell has a word to say of each that is killed.
        { env LD_PRELOAD="$faults" FEDGE_FAULT="io:$n:kill-after" "$keys" "$@" >../out 2>../err || got=$?; } 2>/dev/null
        [ "$got" = 0 ] || [ "$got" = 137 ] || fail "$*: exit $got: $(cat ../err)"
        "$keys" "$@" >../out 2>../err || fail "$* again after call $n: $(cat ../err)"
        "$check" || fail "$* again after call $n: $check"
        cd ..
    done
    [ "$n" -gt 4 ] || fail "$*: killed $n times only"
    echo "$*: killed at $((n - 1)) calls"
}

# What must hold after a command; $new is an identity that has not been signed yet.
authority_signs() {
    local ca=${1:-ca}
    cmp -s "$ca"/root.pem trust/root-"$(sha256sum <"$ca"/root.pem | head -c 8)".pem &&
        "$keys" sign --ca "$ca" --registry reg --request new/request.pem --out chain.pem >/dev/null &&
        "$keys" install --identity new --chain chain.pem >/dev/null
}
next_authority_signs() { authority_signs ca/next; }
request_is_signed() {
    "$keys" sign --ca ca --registry reg --request one/request.pem --out chain.pem >/dev/null &&
        "$keys" install --identity one --chain chain.pem >/dev/null
}
# $chain is the answer to the request of pi, and registered; the registry has $1 certificates.
chain_is_registered() {
    "$keys" install --identity pi --chain chain.pem >installed &&
        "$keys" list --registry reg >list && [ "$(wc -l <list)" -le "${1:-1}" ] &&
        grep -q "$(sed 's/.*SHA-256 \(.\{16\}\).*/\1/' installed)" list
}
renewal_is_registered() { chain_is_registered 3; }
renewal_is_signed() {
    "$keys" sign --ca ca --registry reg --request pi/request.pem --out chain.pem >/dev/null && renewal_is_registered
}
chain_is_installed() {
    cmp -s pi/chain.pem chain.pem && "$keys" renew --identity pi >/dev/null
}
demonstration_is_whole() {
    local i
    [ "$("$keys" list --registry demo/registry | wc -l)" = 4 ] || return 1
    for i in clients/0001 server; do
        "$keys" renew --identity "demo/$i" >renewed && "$keys" sign --ca demo/ca --registry demo/registry \
            --role "$("$keys" list --registry demo/registry | awk -v id="$(awk '{print $4}' renewed | tr -d ,)" \
                '$5 == id {print $1; exit}')" --request "demo/$i/request.pem" --out "demo/$i/answer.pem" >/dev/null ||
            return 1
    done
}

mkdir empty
"$keys" request --identity empty/new --role device >/dev/null
kill_each empty authority_signs ca --ca ca --name acme --trust trust
cp -a empty first
(cd first && "$keys" ca --ca ca --name acme --trust trust) >/dev/null
kill_each first next_authority_signs ca --ca ca --next --trust trust
kill_each first authority_signs ca --ca ca --renew-issuing
kill_each first request_is_signed request --identity one --role device --name one
cp -a first asked
(cd asked && "$keys" request --identity pi --role device --name pi) >/dev/null
kill_each asked chain_is_registered sign --ca ca --registry reg --request pi/request.pem --out chain.pem
cp -a asked signed
(cd signed && "$keys" sign --ca ca --registry reg --request pi/request.pem --out chain.pem) >/dev/null
kill_each signed chain_is_installed install --identity pi --chain chain.pem
(cd signed && "$keys" install --identity pi --chain chain.pem) >/dev/null
kill_each signed renewal_is_signed renew --identity pi
(cd signed && "$keys" renew --identity pi) >/dev/null
kill_each signed renewal_is_registered sign --ca ca --registry reg --request pi/request.pem --out chain.pem
(cd signed && "$keys" sign --ca ca --registry reg --request pi/request.pem --out chain.pem) >/dev/null
kill_each signed chain_is_installed install --identity pi --chain chain.pem
kill_each empty demonstration_is_whole demo --out demo --clients 2

# Given once more, a command that is done changes nothing.
cp -a signed before
(cd signed && "$keys" ca --ca ca --name acme --trust trust && "$keys" request --identity new --role device) >/dev/null
diff -r before signed || fail "a command that was done has changed something"
echo "test_keys_killed: passed"
