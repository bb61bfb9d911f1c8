#!/usr/bin/env bash
# fedge-aggregator's options, messages and exit codes: test_command_line.sh AGGREGATOR KEYS
set -euo pipefail

aggregator=$1
keys=$2
# shellcheck source=tests/aggregator/command_line.sh
. "$(dirname "$0")/../command_line.sh"

"$keys" demo --out keys --clients 2 >/dev/null
"$keys" demo --out others --clients 1 >/dev/null
cat >job.json <<'JSON'
{"fedge-job": 1, "name": "job", "seed": 1,
 "model": {"input-shape": [4], "layers": [{"type": "Linear", "in_features": 4, "out_features": 2}],
           "loss": {"type": "CrossEntropyLoss"}},
 "data": {"name": "d", "shape": [4], "dtype": "f32", "labels": 2},
 "training": {"local-epochs": 1, "batch-size": 1, "learning-rate": 0.1},
 "rounds": {"num-server-rounds": 1, "min-available-nodes": 2, "min-train-nodes": 2}}
JSON
who=(--identity keys/server --trust keys/trust --registry keys/registry)
where=(--listen 127.0.0.1:0 --http 127.0.0.1:0)
check=("$aggregator" --check-config "${who[@]}" --job)

# 0 and 2: what needs no files
ends 0 "Usage: fedge-aggregator" "$aggregator" --help
ends 0 "fedge-aggregator " "$aggregator" --version
ends 2 "--job is missing" "$aggregator"
ends 2 "unknown option '--nonsense'" "$aggregator" --nonsense
ends 2 "the port must be a number" "$aggregator" --listen 127.0.0.1:high

# 3: configuration, and nothing is created
ends 0 "configuration ok" "${check[@]}" job.json
ends 0 '"status":"ok"' "${check[@]}" job.json --json
ends 0 '"devices":2,"devices_needed":2,' "${check[@]}" job.json --json
[ ! -e state ] || fail "--check-config has made a state directory"
sed 's/"min-available-nodes": 2/"min-available-nodes": 5/' job.json >many.json
ends 0 "configuration ok, but no round starts: of 5 devices needed, 2 are active" "${check[@]}" many.json
ends 0 "too-few-devices registered=2 active=2 min-available-nodes=5 advice=" "${check[@]}" many.json
"$keys" revoke --registry others/registry --name client-0000 >/dev/null
sed 's/nodes": 2/nodes": 1/g' job.json >one.json
ends 0 "too-few-devices registered=1 active=0 min-available-nodes=1 advice=" "$aggregator" --check-config \
    --identity others/server --trust others/trust --registry others/registry --job one.json
ends 3 "missing.json" "${check[@]}" missing.json
sed 's/"seed"/"sede"/' job.json >typo.json
ends 3 "typo.json:1: " "${check[@]}" typo.json
sed 's/{"type": "Linear"/{"type": "Sigmoid"}, {"type": "Linear", "inputs": ["input"]/' job.json >unread.json
ends 3 'unread.json:2: model.layers: layer 0 (Sigmoid "0"): it is read by no other layer' "${check[@]}" unread.json
norm='{"type": "BatchNorm2d", "num_features": 4}, {"type": "Flatten"}'
sed "s/\[4\]/[4, 1, 1]/; s/{\"type\": \"Linear\"/$norm, &/" job.json >lone.json
ends 3 'lone.json:2: model.layers: layer 0 (BatchNorm2d "0"): 1 example of 1 × 1' "${check[@]}" lone.json
sed 's/"labels": 2/"labels": 1000000/; s/"batch-size": 1/"batch-size": 65536/
    s/"out_features": 2}/"out_features": 1000000}, {"type": "Sigmoid"}/' job.json >vast.json
ends 3 "vast.json:2: model.layers: layer 0 (Linear \"0\"): the model needs more bytes than can be planned, and this layer the most, for batches of 65536" \
    "${check[@]}" vast.json
head -c 100 job.json >cut.json
ends 3 "cut.json:" "${check[@]}" cut.json
sed 's|"rounds"|"test-set": {"values": "none.gz", "labels": "none.gz"}, "rounds"|' job.json >test-set.json
ends 3 "none.gz" "${check[@]}" test-set.json
trusting='"strategy": {"type": "FLTrust", "root-set": {"values": "none.gz"}}'
sed "s|\"rounds\"|$trusting, &|" job.json >root-set.json
ends 3 "the server's root set: " "${check[@]}" root-set.json
sed 's/"rounds": {/"strategy": {"type": "FedMedian"}, &"max-cohort": 4096, /' job.json >median.json
ends 0 "configuration ok" "${check[@]}" median.json
ends 3 "lower rounds.max-cohort, or raise --robust-memory from 64 MiB" "${check[@]}" median.json --robust-memory 67108864
common=(--state state --job job.json "${where[@]}")
ends 3 "keys/nobody" "$aggregator" "${common[@]}" --identity keys/nobody --trust keys/trust --registry keys/registry
ends 3 "role" "$aggregator" "${common[@]}" --identity keys/clients/0000 --trust keys/trust --registry keys/registry
ends 3 "is a directory" "$aggregator" "${common[@]}" "${who[@]}" --job keys
ends 3 "job.json" "$aggregator" "${common[@]}" "${who[@]}" --identity job.json
ends 3 "nowhere" "$aggregator" "${common[@]}" --identity keys/server --trust nowhere --registry keys/registry
ends 3 "nowhere" "$aggregator" "${common[@]}" --identity keys/server --trust keys/trust --registry nowhere
# Refused at the start just as by --check-config
ends 3 "the server's root set: " "$aggregator" "${common[@]}" "${who[@]}" --job root-set.json
ends 3 "raise --robust-memory from 64 MiB" "$aggregator" "${common[@]}" "${who[@]}" --job median.json --robust-memory 67108864
[ ! -e state ] || fail "a start that failed has made a state directory"

# 1: what passes by itself. Of 64 threads the stacks alone take more than is allowed.
if [ -z "$FEDGE_SANITIZE" ]; then
    limited() { (ulimit -v 300000 && "$aggregator" --job job.json "${who[@]}" --state state4 "${where[@]}" --workers 64); }
    ends 1 "thread" limited
fi

# 6: a disk that is full
if [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null; then
    full() {
        mkdir -p full && unshare -m bash -c 'mount -t tmpfs -o size=4k none full && head -c 4096 /dev/zero >full/file
            exec "$0" --state full/state "$@"' "$aggregator" --job job.json "${who[@]}" "${where[@]}"
    }
    ends 6 "No space left" full
fi

# Too few files are told of as loudly as the registry is near the limit: it has 2 devices
few_files() { (ulimit -n 1000 && "$aggregator" --job job.json "${who[@]}" --state state5 "${where[@]}" --drain "$@"); }
ends 0 "debug fewer-connections" few_files --log-level debug --max-connections 4 --max-unauthenticated 2000
ends 0 "info fewer-connections" few_files --max-connections 3 --max-unauthenticated 2000
ends 0 "warn fewer-connections" few_files --max-connections 1 --max-unauthenticated 2000
few_files >out 2>err || fail "no start with 1000 files: $(cat err)"
if grep fewer-connections err; then fail "said although the registry is far from the limit"; fi
rm -rf state5

# A good start, and what it is in the way of
run=("$aggregator" --job job.json "${who[@]}")
"${run[@]}" --state state "${where[@]}" --port-file ports >out 2>err &
pid=$!
await test -s ports
read -r port http <ports
ends 5 "port $port of 127.0.0.1 is in use" "${run[@]}" --state state2 --listen "127.0.0.1:$port" --http off
ends 5 "--http" "${run[@]}" --state state2 --listen 127.0.0.1:0 --http "127.0.0.1:$http"
ends 5 "192.0.2.1 is not an address of this machine" "${run[@]}" --state state2 --listen 192.0.2.1:0
[ ! -e state2 ] || fail "a start without a port has made a state directory"
ends 4 "$pid" "${run[@]}" --state state "${where[@]}"
ends 4 "another aggregator uses state directory state" "${run[@]}" --state state --listen "127.0.0.1:$port" --http "127.0.0.1:$http"
curl -sSf "http://127.0.0.1:$http/healthz" >health
grep -qF '"status":"ok"' health || fail "not healthy: $(cat health)"
curl -sSf "http://127.0.0.1:$http/metrics" | grep -qx 'fedge_registered_devices 2' || fail "no metrics"
[ "$(curl -sS -o /dev/null -w '%{http_code}' "http://127.0.0.1:$http/other")" = 404 ] || fail "not 404"
[ "$(curl -sS -o /dev/null -w '%{http_code}' -d x "http://127.0.0.1:$http/metrics")" = 405 ] || fail "not 405"
[ "$(curl -sSI "http://127.0.0.1:$http/healthz" | head -n 1 | tr -d '\r')" = "HTTP/1.1 200 OK" ] || fail "HEAD"
# Only for who asks by address, as localhost, or by a name that was allowed
status_for() { curl -sS -o /dev/null -w '%{http_code}' -H "Host: $1" "http://127.0.0.1:$http/$2"; }
for path in healthz metrics; do
    [ "$(status_for localhost $path)" = 200 ] || fail "not as localhost"
    [ "$(status_for evil.example $path)" = 403 ] || fail "$path was answered to evil.example"
    [ "$(status_for "evil.example:$http" $path)" = 403 ] || fail "$path was answered to evil.example"
    [ "$(status_for '' $path)" = 400 ] || fail "$path was answered to a request without a Host"
    [ "$(status_for fl.example.org $path)" = 403 ] || fail "$path was answered to fl.example.org"
done

# SIGHUP is survived, SIGTERM ends, and the same run is resumed
kill -HUP "$pid"
await grep -q 'reloaded devices=2 active=2 pending=0 revoked=0' err
"$keys" revoke --registry keys/registry --name client-0001 >/dev/null
kill -HUP "$pid"
await grep -q 'reloaded devices=2 active=1 pending=0 revoked=1' err
"$keys" activate --registry keys/registry --name client-0001 >/dev/null
end_by TERM
[ "$code" = 0 ] || fail "exit $code after SIGTERM: $(cat err)"
first=$(sed -n 's/.*run-started run=\([0-9a-f]*\).*/\1/p' err)
ends 0 "run-resumed run=$first" "${run[@]}" --state state "${where[@]}" --drain
echo 'not json' >state/format.json
ends 4 "format.json" "${run[@]}" --state state "${where[@]}"

# SIGUSR1 drains
"${run[@]}" --state state3 "${where[@]}" --port-file ports3 --log-json --http-host fl.example.org >out 2>err &
pid=$!
await test -s ports3
read -r port http <ports3
[ "$(status_for fl.example.org healthz)" = 200 ] || fail "not as --http-host"
[ "$(status_for other.example.org healthz)" = 403 ] || fail "as another than --http-host"
end_by USR1
[ "$code" = 0 ] || fail "exit $code after SIGUSR1: $(cat err)"
grep -qF '"how":"drained"' err || fail "not drained: $(cat err)"
