#!/bin/bash
# Every attack against every rule on both divisions, and the table: bash run.sh OUT [OPTION...], options
# being fedge-simulate's. It goes on where it was interrupted.
set -eu
here=$(dirname "$0")
out=$1
shift
rounds=200
mkdir -p "$out"
# FLTrust's root set: 100 training images.
python3 - "$here/client.json" "$out" <<'PYTHON'
import gzip, json, os, sys
files = next(iter(json.load(open(sys.argv[1]))["data"].values()))
for kind, header in (("values", 16), ("labels", 8)):
    path = os.path.join(os.path.dirname(sys.argv[1]), files[kind])
    with open(path, "rb") as file:
        data = file.read()
    data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    size = (len(data) - header) // int.from_bytes(data[4:8], "big")
    with open(os.path.join(sys.argv[2], f"root-{kind}"), "wb") as file:
        file.write(data[:4] + (100).to_bytes(4, "big") + data[8:header] + data[header:header + 100 * size])
PYTHON
f='"num-malicious-nodes": 4'
rules=(
    'mean|{"type": "FedTrimmedAvg", "beta": 0}'
    'FedMedian|{"type": "FedMedian"}'
    'FedTrimmedAvg|{"type": "FedTrimmedAvg", "beta": 0.2}'
    'FedTrimmedAvg, mixing|{"type": "FedTrimmedAvg", "beta": 0.2, "mixing": true, '"$f"'}'
    'Krum|{"type": "Krum", '"$f"'}'
    'MultiKrum|{"type": "MultiKrum", '"$f"'}'
    'Bulyan|{"type": "Bulyan", '"$f"'}'
    'RFA|{"type": "RFA"}'
    'NormClipping|{"type": "NormClipping"}'
    'FLTrust|{"type": "FLTrust", "root-set": {"values": "root-values", "labels": "root-labels"}}'
)
attacks=(none sign-flip:4:4 ipm:4:0.5 ipm:4:10 alie:4:1.5 label-flip:4 backdoor:4)
for partition in iid dirichlet:0.3; do
    printf "\n| %s |" "$partition"
    printf " %s |" "${attacks[@]}"
    echo
    printf "| ---%.0s " "$partition" "${attacks[@]}"
    echo "|"
    for rule in "${rules[@]}"; do
        name=${rule%%|*}
        job=$out/${name//[ ,]/}.json
        python3 - "$here/job.json" "${rule#*|}" "$job" <<'PYTHON'
import json, os, sys
job = json.load(open(sys.argv[1]))
job["strategy"] = json.loads(sys.argv[2])
for key, value in job["test-set"].items():
    job["test-set"][key] = os.path.join(os.path.abspath(os.path.dirname(sys.argv[1])), value)
json.dump(job, open(sys.argv[3], "w"))
PYTHON
        row="| $name |"
        for attack in "${attacks[@]}"; do
            folder=$out/$partition/${name//[ ,]/}/$attack
            mkdir -p "$folder"
            options=(--attack "$attack")
            [ "$attack" != none ] || options=()
            fedge-simulate --job "$job" --data "$here/client.json" --clients 20 --partition "$partition" \
                --rounds $rounds --evaluate-every 10 --out "$folder" --resume --quiet "${options[@]}" "$@" >&2
            accuracy=$(python3 - "$folder/summary.json" <<'PYTHON'
import json, sys
summary = json.load(open(sys.argv[1]))
success = summary.get("backdoor_success")
print("%.1f" % (100 * summary["accuracy"]) + ("" if success is None else " (%.1f)" % (100 * success)))
PYTHON
            )
            row="$row $accuracy |"
        done
        echo "$row"
    done
done
