#!/usr/bin/env bash
# fedge-keys from end to end: test_keys.sh PATH_OF_FEDGE_KEYS
set -euo pipefail

keys=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"

fail() {
    printf 'test_keys: %s\n' "$*" >&2
    exit 1
}
# refuse CODE WORDS COMMAND...: the command must end with CODE and say WORDS on stderr.
refuse() {
    local code=$1 words=$2 got=0
    shift 2
    "$@" >out 2>err || got=$?
    [ "$got" = "$code" ] || fail "exit $got, wanted $code: $* ($(cat err))"
    grep -qF -- "$words" err || fail "'$words' is not in: $(cat err)"
}
mode_is() { [ "$(stat -c %a "$2")" = "$1" ] || fail "$2 has mode $(stat -c %a "$2"), wanted $1"; }
have_openssl() { command -v openssl >/dev/null; }

# Usage
"$keys" --help >commands
for command in ca request sign install renew list revoke activate demo; do
    grep -q "^  $command " commands || fail "$command is not in --help"
    "$keys" "$command" --help >help
    [ "$(wc -l <help)" -le 24 ] || fail "the help of $command does not fit a screen"
    refuse 2 "--help" "$keys" "$command" --nonsense
    refuse 2 "is missing (see fedge-keys $command --help)" "$keys" "$command"
done
"$keys" --version | grep -q '^fedge-keys [0-9]' || fail "--version"
refuse 2 "Usage" "$keys"
refuse 2 "no command 'frobnicate'" "$keys" frobnicate
refuse 2 "--valid-days must be" "$keys" ca --ca ca --valid-days 0
refuse 2 "unknown role" "$keys" request --identity x --role king
rlo=$'\u202e' separator=$'\u2028' # the first turns the direction of what follows, the second begins a line
refuse 2 "no command 'a???b'" "$keys" "a${rlo}b"
refuse 2 "'--a???b'" "$keys" request "--a${separator}b"
refuse 1 "the name 'a???b???'" "$keys" request --identity x --role device --name "a${rlo}b$separator"

# Authority
"$keys" ca --ca ca --name acme --trust trust >out
grep -q '^root: expires 20' out || fail "the root's expiry is not stated"
mode_is 700 ca
mode_is 600 ca/root-key.pem
mode_is 600 ca/issuing-key.pem
refuse 1 "never overwritten" "$keys" ca --ca ca

# Request, sign, install
"$keys" request --identity pi --role device --name pi-4 >out
mode_is 600 pi/key.pem
refuse 1 "fedge-keys renew" "$keys" request --identity pi --role device
refuse 1 "is for role device, not operator" \
    "$keys" sign --ca ca --registry reg --request pi/request.pem --out pi/answer.pem --role operator
"$keys" sign --ca ca --registry reg --request pi/request.pem --out pi/answer.pem >out
grep -q "^signed 'pi-4', active, index 0: role device, device .*, expires 20" out || fail "$(cat out)"
mode_is 600 reg/registry.json
refuse 1 "is registered already" "$keys" sign --ca ca --registry reg --request pi/request.pem --out again.pem
[ ! -e again.pem ] || fail "a refused request left a certificate"
"$keys" install --identity pi --chain pi/answer.pem >out
"$keys" request --identity hub --role server --dns hub.example.org --ip 10.0.0.1 --ip ::1 >out
sign=("$keys" sign --ca ca --registry reg)

# What a request asks for is not what it gets: role and names are for who signs to give
refuse 1 "hub/request.pem: this request is for role server, not device: give --role server if you mean to sign it" \
    "${sign[@]}" --request hub/request.pem --out hub/chain.pem
"$keys" request --identity pi-c --role device >out
hub=("${sign[@]}" --role server --request hub/request.pem --out hub/chain.pem)
refuse 1 "it asks for hub.example.org, ::1, 10.0.0.1: check them" "${hub[@]}"
refuse 1 "it also asks for ::1, 10.0.0.1, which you have not granted: check them" "${hub[@]}" --dns hub.example.org
refuse 1 "it does not ask for ::2, only for hub.example.org, ::1, 10.0.0.1: " "${hub[@]}" --dns hub.example.org --ip 10.0.0.1 --ip ::2
refuse 1 "it does not ask for www.example.org, only for hub.example.org, ::1, 10.0.0.1: leave out the first" \
    "${hub[@]}" --dns hub.example.org --ip 10.0.0.1 --ip ::1 --dns www.example.org
refuse 1 "'10.0.0' is not an IP address" "${hub[@]}" --ip 10.0.0
refuse 2 "goes without --dns" "${hub[@]}" --accept-names --ip ::1
refuse 1 "leave out --dns and --ip" "${sign[@]}" --dns pi.example.org --request pi-c/request.pem --out pi-c/chain.pem
refuse 2 "unknown role" "${sign[@]}" --request hub/request.pem --out hub/chain.pem --role king
[ ! -e hub/chain.pem ] || fail "a refused request left a certificate"
grep -q hub reg/registry.json && fail "a refused request was registered"
"${hub[@]}" --ip 0:0::1 --ip 10.0.0.1 --dns hub.example.org >out
grep -qx "clients may connect to it at hub.example.org, ::1, 10.0.0.1" out || fail "$(cat out)"
"$keys" request --identity hub-b --role server --dns b.example.org >out
"${sign[@]}" --role server --accept-names --request hub-b/request.pem --out hub-b/chain.pem >out
grep -qx "clients may connect to it at b.example.org" out || fail "$(cat out)"
refuse 1 "does not belong" "$keys" install --identity pi --chain hub/chain.pem

# A device that asks anew with its key, for a server's role, is not told that it has been signed
if have_openssl; then
    id=$("$keys" list --registry reg | awk 'NR == 1 {print $5}')
    printf '%s\n' '[req]' 'distinguished_name=dn' 'req_extensions=names' 'prompt=no' '[dn]' 'CN=pi-4' '[names]' \
        "subjectAltName=URI:urn:fedge:device:$id,URI:urn:fedge:role:server,DNS:pi.example.org" >server.cnf
    openssl req -new -key pi/key.pem -config server.cnf -sha256 -out server.pem
    cp pi/answer.pem before.pem
    refuse 1 "is registered already" "${sign[@]}" --role server --accept-names --request server.pem --out pi/answer.pem
    cmp -s before.pem pi/answer.pem || fail "a refused request replaced the device's chain"
fi

# A second device's answer does not take the place of the first's
"$keys" request --identity pi-b --role device --name pi-b >out
cp pi/answer.pem first.pem
refuse 1 "first.pem exists and belongs to device $(grep -o 'device_id": *"[^"]*' reg/registry.json | head -1 | cut -d'"' -f3)" \
    "$keys" sign --ca ca --registry reg --request pi-b/request.pem --out first.pem
cmp -s pi/answer.pem first.pem || fail "another device's chain was replaced"
grep -q pi-b reg/registry.json && fail "a refused request was registered"
echo mine >mine.pem
refuse 1 "mine.pem exists and is no chain of this device" \
    "$keys" sign --ca ca --registry reg --request pi-b/request.pem --out mine.pem
refuse 1 "--dns or --ip" "$keys" request --identity hub2 --role server
[ ! -e hub2/key.pem ] || fail "a refused request left a key"
sed '5s/./!/' pi/request.pem >broken.pem
refuse 1 "broken.pem" "$keys" sign --ca ca --registry reg --request broken.pem --out x.pem

if have_openssl; then
    openssl verify -CAfile ca/root.pem -untrusted pi/chain.pem -purpose sslclient pi/chain.pem >out ||
        fail "openssl does not verify the device: $(cat out)"
    openssl verify -CAfile ca/root.pem -untrusted hub/chain.pem -purpose sslserver hub/chain.pem >out ||
        fail "openssl does not verify the server: $(cat out)"
    if openssl verify -CAfile ca/root.pem -untrusted pi/chain.pem -purpose sslserver pi/chain.pem >out 2>&1; then
        fail "openssl takes the device for a server"
    fi
    openssl x509 -in hub/chain.pem -noout -text >out
    for words in 'DNS:hub.example.org' 'IP Address:10.0.0.1' 'IP Address:0:0:0:0:0:0:0:1' 'urn:fedge:role:server' \
        'Digital Signature' 'TLS Web Server Authentication' 'Authority Key Identifier' 'Subject Key Identifier' \
        'CA:FALSE' 'prime256v1'; do
        grep -q "$words" out || fail "'$words' is not in the server's certificate"
    done
    openssl x509 -in ca/issuing.pem -noout -text | grep -q 'CA:TRUE, pathlen:0' || fail "the path length"
    openssl req -in pi/request.pem -noout -verify 2>&1 | grep -qi 'verify OK' || fail "the request's signature"
fi

# Renewal
old=$(sha256sum pi/key.pem)
"$keys" renew --identity pi >out
mode_is 600 pi/next-key.pem
[ "$old" = "$(sha256sum pi/key.pem)" ] || fail "renew changed the key in use"
refuse 1 "a renewal is under way" "$keys" renew --identity pi --keep-key
"$keys" sign --ca ca --registry reg --request pi/request.pem --out new.pem >out
grep -q "^renewed 'pi-4', active, index 0" out || fail "$(cat out)"
"$keys" install --identity pi --chain new.pem >out
[ ! -e pi/next-key.pem ] || fail "the next key was not installed"
mode_is 600 pi/key.pem
[ "$old" != "$(sha256sum pi/key.pem)" ] || fail "the key is the old one"
"$keys" install --identity pi --chain new.pem >out # again, as after a crash
[ "$("$keys" list --registry reg | grep -c pi-4)" = 2 ] || fail "the device has not two certificates"

# A server's renewal keeps its names; one that nobody has proven gets none by itself
cp hub/chain.pem hub-before.pem
"$keys" install --identity hub --chain hub-before.pem >out
"$keys" renew --identity hub --keep-key >out
refuse 1 "is for role server, not device" "${sign[@]}" --request hub/request.pem --out hub/chain.pem
refuse 1 "10.0.0.1: leave out the first; a renewal cannot add names" "${hub[@]}" --dns extra.example
"${hub[@]}" >out
grep -qx "clients may connect to it at hub.example.org, ::1, 10.0.0.1" out || fail "$(cat out)"
id=$("$keys" list --registry reg | awk '/server-/ {print $5; exit}')
"$keys" request --identity hub-c --role server --device-id "$id" --dns c.example.org >out
refuse 1 "it asks for c.example.org: " \
    "${sign[@]}" --role server --renew --request hub-c/request.pem --out hub-c/chain.pem

# The list, revocation
"$keys" list --registry reg --json >list.json
if command -v python3 >/dev/null; then
    python3 - <<'PY' || fail "list --json"
import json
rows = json.load(open("list.json"))
assert [r["role"] for r in rows] == ["device"] * 2 + ["server"] * 3, rows
assert rows[0]["device_id"] == rows[1]["device_id"] and rows[0]["sha256"] != rows[1]["sha256"]
PY
fi
refuse 1 "no such certificate" "$keys" revoke --registry reg --name nobody
refuse 1 "does not exist" "$keys" revoke --registry nowhere --name nobody
[ ! -e nowhere ] || fail "a failed revoke made a registry"
refuse 2 "one of" "$keys" revoke --registry reg --name a --device-id b
first=$("$keys" list --registry reg | awk 'NR == 1 {print $6}')
"$keys" revoke --registry reg --fingerprint "$first" >out
"$keys" list --registry reg >out
[ "$(grep -c revoked out)" = 1 ] || fail "one certificate was to be revoked"
"$keys" revoke --registry reg --name pi-4 >out
[ "$("$keys" list --registry reg | grep -c revoked)" = 2 ] || fail "two were to be revoked"
"$keys" renew --identity pi >out
refuse 1 "revoked" "$keys" sign --ca ca --registry reg --request pi/request.pem --out x.pem
refuse 1 "revoked" "$keys" sign --ca ca --registry reg --request pi/request.pem --out x.pem --renew
"$keys" activate --registry reg --name pi-4 >out
"$keys" sign --ca ca --registry reg --request pi/request.pem --out x.pem >out

# A stranger who claims a registered device's id
id=$("$keys" list --registry reg | awk '/pi-4/ {print $5; exit}')
"$keys" request --identity rogue --role device --name pi-4 --device-id "$id" >out
refuse 1 "registered already" "$keys" sign --ca ca --registry reg --request rogue/request.pem --out x.pem

# The next root
"$keys" ca --ca ca --next --trust trust >out
[ "$(find trust -name '*.pem' | wc -l)" = 2 ] || fail "two roots were to be trusted"
"$keys" request --identity pi2 --role device >out
"$keys" sign --ca ca/next --registry reg --request pi2/request.pem --out pi2/chain.pem --pending >out
grep -q "pending" out || fail "it was to be pending"
if have_openssl; then
    cat trust/*.pem >roots.pem
    openssl verify -CAfile roots.pem -untrusted pi2/chain.pem pi2/chain.pem >out || fail "the next root"
    openssl verify -CAfile roots.pem -untrusted pi/chain.pem pi/chain.pem >out || fail "the present root"
fi
refuse 1 "is registered already" "$keys" sign --ca ca --registry reg --request pi2/request.pem --out pi2/chain.pem
"$keys" ca --ca ca --renew-issuing >out
"$keys" request --identity pi3 --role device >out
"$keys" sign --ca ca --registry reg --request pi3/request.pem --out pi3/chain.pem >out

# What anyone may write says nothing
chmod 606 reg/registry.json
refuse 1 "chmod o-w reg/registry.json" "$keys" list --registry reg
chmod 600 reg/registry.json
chmod 777 reg
refuse 1 "chmod o-w reg'" "$keys" revoke --registry reg --name pi-4
chmod 700 reg
mkdir -m 777 open
refuse 1 "chmod o-w open'" "$keys" sign --ca ca --registry open --request pi3/request.pem --out open.pem
[ ! -e open.pem ] || fail "a refused request left a certificate"

# Broken places
chmod 644 ca/issuing-key.pem
refuse 1 "chmod" "$keys" sign --ca ca --registry reg --request pi3/request.pem --out x.pem
chmod 600 ca/issuing-key.pem
cp reg/registry.json good.json
echo '{' >reg/registry.json
refuse 1 "registry.json: line" "$keys" list --registry reg
refuse 1 "registry.json: line" "$keys" revoke --registry reg --name pi-4
cp good.json reg/registry.json

# The demonstration
"$keys" demo --out demo --clients 12 --server-name example.org --ip 10.1.2.3 >out
cp out first
[ "$(find demo/clients -name key.pem -perm 600 | wc -l)" = 12 ] || fail "12 clients were to be made"
"$keys" list --registry demo/registry | awk '$1 == "device" && $7 != sprintf("client-%04d", $2) {exit 1}' ||
    fail "index and name disagree"
refuse 1 "never overwritten" "$keys" demo --out demo --clients 3
demo=("$keys" demo --out demo --clients 12 --server-name example.org --ip 10.1.2.3)
"${demo[@]}" >out
grep -q "; certificates expire 20.*Z$" out || fail "when they expire is not told: $(cat out)"
cmp -s first out || fail "the second time it says otherwise: $(cat first out)"
mv demo/clients/0011 client-0011
refuse 1 "demo holds a demonstration that lacks a client, which is never overwritten" "${demo[@]}"
mv client-0011 demo/clients/0011
: >demo/clients/0003/key.pem # as the disk may have it after its power failed
refuse 1 "lacks a client" "${demo[@]}"
echo "test_keys: passed"
