#!/usr/bin/env python3
"""The parts of docs/reference that the programs and their sources say: help texts, metrics, limits, arguments.

    python3 -B tests/docs/reference.py --write    # after a change of what they say; builds must be fresh

Without --write it names the pages that differ, and ends with 1. FEDGE_BIN_DIR (build/release/bin) has the programs. A
generated part of a page stands between the comments <!-- generated: NAME --> and <!-- end -->.
"""

import glob
import json
import os
import re
import subprocess
import sys

SOURCE = os.environ.get("FEDGE_SOURCE_DIR") or os.path.normpath(os.path.join(os.path.dirname(__file__), "../.."))
BIN = os.environ.get("FEDGE_BIN_DIR") or os.path.join(SOURCE, "build/release/bin")
PART = re.compile(r"(<!-- generated: (.*?) -->\n)(.*?)(<!-- end -->)", re.S)
PATIENCE_S = 60

# What a limit is for; its default, in which {NAME:unit} is a constant of a header; the option or key that changes it.
LIMITS = {
    "connections": """
        devices connected at a time | {FEDGE_DEFAULT_CONNECTIONS} | `--max-connections`, up to {FEDGE_MAX_CONNECTIONS}
        unauthenticated peers, in all | {FEDGE_DEFAULT_UNAUTHENTICATED} | `--max-unauthenticated`, up to {FEDGE_MAX_UNAUTHENTICATED}
        unauthenticated peers, from one address | {FEDGE_DEFAULT_PER_ADDRESS} | `--max-per-address`
        silence of an unauthenticated peer | {FEDGE_NEWCOMER_TIMEOUT_MS:ms} |
        TLS handshake, then the upgrade | {FEDGE_HANDSHAKE_TIMEOUT_S:s} each |
        from the upgrade to HELLO | {FEDGE_CONN_HELLO_TIMEOUT_MS:ms} |
        one message, from its first byte to its last | {FEDGE_CONN_FRAME_TIMEOUT_MS:ms} |
        time for a peer to read why it is disconnected | {FEDGE_CONN_CLOSE_TIMEOUT_MS:ms} |
        silence until a ping | 20 s | `--heartbeat`, up to {FEDGE_MAX_HEARTBEAT_S:s}
        silence until the connection ends | {FEDGE_SILENT_TIMEOUT_MS:ms}, or three heartbeats if longer |
        connections of the HTTP port; the oldest silent one makes room | {FEDGE_HTTP_MAX_CONNECTIONS} |
        accept backlog | {FEDGE_LISTEN_BACKLOG} |
        network threads | one for two CPUs; {FEDGE_MAX_NETWORK_THREADS} at most | `--network-threads`
        failed handshakes of a thread in a second that make a flood | {FEDGE_FLOOD_SIZE} |
        pause between the return of two devices after a stop | {FEDGE_RETURN_EVERY_MS:ms} |
        addresses remembered from which devices have connected | {FEDGE_PEERS_REMEMBERED} |
        life of a session ticket | {FEDGE_TICKET_LIFETIME_MS:days} |
        certificate of a peer | {FEDGE_MAX_CERTIFICATE_SIZE:bytes} |
        refusals logged one by one | {FEDGE_REFUSALS_PER_SECOND} a second |
        log lines about one device | {FEDGE_LINES_PER_SECOND} a second, {FEDGE_LINES_BURST} at once |
    """,
    "messages": """
        JSON of a message (part of the protocol) | {FEDGE_MESSAGE_MAX_META:bytes} |
        payload of a message (part of the protocol) | {FEDGE_MESSAGE_MAX_PAYLOAD:bytes} |
        messages queued for one client | {FEDGE_CONN_MAX_QUEUED} |
        messages arriving on all connections; messages queued for all | {FEDGE_CONN_WAITING_BYTES:bytes} each |
        requests that wait for the run | {FEDGE_ENGINE_INBOX_BYTES:bytes} |
        sections of an update; metrics of an update | {FEDGE_MAX_SECTIONS}; {FEDGE_MAX_METRICS} |
        damaged uploads of one task | {FEDGE_ENGINE_MAX_BAD_UPLOADS} |
        client: repeats of a damaged transfer | {FEDGE_SESSION_MAX_REPEATS} |
        client: bytes of a result a server may ask for again | {FEDGE_SESSION_MAX_RESENT} times its size |
    """,
    "run": """
        workers | one per CPU, 8 at most | `--workers`, up to {FEDGE_INGEST_MAX_WORKERS}
        queue of a worker | {FEDGE_INGEST_QUEUE_BYTES:bytes} |
        memory for unpacked updates | {FEDGE_UPLOAD_BUFFERS_BYTES:bytes}, one update at least |
        updates per sync; the longest that one waits for others | {FEDGE_INGEST_MAX_GROUP}; {FEDGE_INGEST_GROUP_NS:ns} |
        cohort | 4096 | `max-cohort` of the job, up to {FEDGE_JOURNAL_MAX_SLOTS}
        clients at work in an asynchronous round | {FEDGE_ROUNDS_MAX_SLOTS} |
        updates that the log line of an asynchronous round names | {FEDGE_ROUND_SUMMARY_MAX_BUFFERED} |
        devices that the log line of a round names | {FEDGE_ROUND_SUMMARY_MAX_DEVICES}; of more, none |
        runs in a state directory | {FEDGE_MAX_RUNS} |
        `rounds.jsonl`; one of its lines | {FEDGE_ROUND_LOG_MAX_SIZE:bytes}; {FEDGE_ROUND_LOG_MAX_LINE:bytes} |
        ranks | {FEDGE_RANKS_MAX} |
        silence of a rank | {FEDGE_RANKS_SILENCE_MS:ms}, and 1 s for each 10 MB of sums | environment `FEDGE_RANK_SILENCE_S`
        silence of a machine of `--hosts` at work; at a start | 40 s; 20 s | `start_ranks.sh`
    """,
    "identities": """
        devices in the registry | {FEDGE_REGISTRY_MAX_DEVICES} |
        certificates of one device | {FEDGE_REGISTRY_MAX_CERTIFICATES} |
        PEM file | {FEDGE_X509_MAX_PEM:bytes} |
        host names in a certificate; addresses | {FEDGE_X509_MAX_HOSTS} each |
    """,
    "files": """
        job; plan | {FEDGE_JOB_MAX_SIZE:bytes}; {FEDGE_PLAN_MAX_SIZE:bytes} |
        client file | {FEDGE_SITE_MAX_SIZE:bytes} |
        parameters; tensors; layers of a model | {FEDGE_MAX_ELEMENTS}; {FEDGE_MAX_TENSORS}; {FEDGE_MAX_LAYERS} |
        data set, decoded; examples | {FEDGE_DATASET_MAX_BYTES:bytes}; {FEDGE_DATASET_MAX_EXAMPLES} |
        client: one model, result or value | {FEDGE_STORE_DEFAULT_MAX_BYTES:bytes} |
        client: plans and models, with a new plan | {FEDGE_CLIENT_MAX_BLOBS} |
        client: addresses of servers, in all | {FEDGE_LINK_MAX_URLS:bytes} |
        file of `--hosts` | 64 KiB | `start_ranks.sh`
        line of a csv file; of a log | {FEDGE_CSV_MAX_LINE:bytes}; {FEDGE_LOG_MAX_LINE:bytes} |
        clients of a simulation; rounds | {FEDGE_SIMULATE_MAX_CLIENTS}; {FEDGE_SIMULATE_MAX_ROUNDS} |
        path | {FEDGE_MAX_PATH:bytes} |
    """,
}


def read(path):
    with open(os.path.join(SOURCE, path), encoding="utf-8") as file:
        return file.read()


def definitions():
    """Each constant of the headers and its text."""
    found = {}
    for folder in ("edge", "secure", "client", "aggregator"):
        for path in sorted(glob.glob(f"{folder}/**/*.h", root_dir=SOURCE, recursive=True)):
            text = re.sub(r"/\*.*?\*/", "", read(path), flags=re.S).replace("\\\n", " ")
            for name, value in re.findall(r"^ *#define (FEDGE_\w+) +(\S.*?) *$", text, re.M):
                found.setdefault(name, value)
    return found


def value_of(name, known):
    """Of a constant: an expression of C of integers, casts, other constants and the size of a pointer's machine."""
    if name not in known:
        raise KeyError(f"no header defines {name}: change LIMITS in tests/docs/reference.py")
    text = re.sub(r"\((?:u?int\d+_t|size_t)\)", "", known[name].replace("sizeof(size_t)", "8"))
    text = re.sub(r"\b(\d+|0x[0-9a-fA-F]+)[uUlL]+\b", r"\1", text)
    text = re.sub(r"\(([^()?]*) \? ([^():]*) : ([^()]*)\)", r"(\2 if \1 else \3)", text)
    text = re.sub(r"\bFEDGE_\w+", lambda other: str(value_of(other[0], known)), text)
    return eval(text.replace("/", "//"), {"__builtins__": {}})  # pylint: disable=eval-used  # of our own headers


def shown(value, unit):
    if unit == "bytes":
        for name, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
            if value >= size and value % size == 0:
                return f"{value // size} {name}"
        return f"{value:,} bytes"
    if unit in ("ms", "ns", "s", "days"):
        seconds = value / {"ms": 1e3, "ns": 1e9, "s": 1, "days": 1e3}[unit]
        return f"{seconds / 86400:g} days" if unit == "days" else f"{seconds:,g} s" if seconds >= 1 else f"{seconds * 1e3:g} ms"
    return f"2^{value.bit_length() - 1}" if value >= 1 << 20 and value & (value - 1) == 0 else f"{value:,}"


def limits(name):
    known = definitions()
    lines = ["| limit | default | changed by |", "|---|---|---|"]
    for row in filter(None, map(str.strip, LIMITS[name].splitlines())):
        what, default, where = (cell.strip() for cell in f"{row} ".split(" |"))
        constants = re.findall(r"\{(\w+)", what + default)
        default, where = (re.sub(r"\{(\w+):?(\w*)\}", lambda found: shown(value_of(found[1], known), found[2]), text)
                          for text in (default, where))
        lines.append(f"| {what} | {default} | {where or ', '.join(f'`{constant}`' for constant in constants)} |")
    return "\n".join(lines) + "\n"


def metrics():
    """Prometheus's name, labels, type and text of each, as the HTTP port says them."""
    text = re.sub(r'"\s*\n\s*"', "", read("aggregator/net/http.c"))
    lines = ["| metric | type | meaning |", "|---|---|---|"]
    for kind, rest in re.findall(r"\badd_(head|count|level)\(answer,\s*((?:\"[^\"]*\",?\s*)+)", text):
        words = re.findall(r'"([^"]*)"', rest)
        name, about = words[0], words[-1]
        labels = re.search(rf'"{name}\{{(.*?)\}} ', text)
        labels = "{" + ",".join(re.findall(r'(\w+)=\\"', labels[1])) + "}" if labels else ""
        kind = words[1] if kind == "head" else "counter" if kind == "count" else "gauge"
        lines.append(f"| `{name}{labels}` | {kind} | {about} |")
    return "\n".join(lines) + "\n"


def help_of(program, *words):
    def run(option):
        return subprocess.run([f"{BIN}/{program}", *words, option], check=True, capture_output=True, text=True,
                              timeout=PATIENCE_S).stdout
    text = run("--help")
    return run("--help-all") if not words and "--help-all" in text else text


def as_table(text):
    """A help text with its options as rows, but for those that every program has, and without exit codes, which have a
    page; the text as it is where it has no options."""
    option = re.compile(r"^  (--[\w-]+(?: [A-Z]\S*)?(?: \.\.\.)?)(?: +(.*)|,.*)\n((?: {6,}.*\n)*)", re.M)
    if not option.search(text):
        return f"```text\n{text}```\n"
    head, tail = text[:option.search(text).start()], text[list(option.finditer(text))[-1].end():].partition("Exit:")[0]
    rows = [f"| `{name}` | {' '.join(f'{first} {more}'.split())} |\n" for name, first, more in option.findall(text)
            if name != "--help"]
    return f"```text\n{head}```\n\n| option | |\n|---|---|\n{''.join(rows)}" + (f"\n```text\n{tail}```\n" if tail else "")


def allowed(schema):
    """The values that a part of the JSON Schema allows, and its default."""
    if "enum" in schema:
        said = ", ".join(f"`{value}`" for value in schema["enum"])
    elif schema.get("type") in ("integer", "number"):
        least, most = (f"{schema[end]:,}" if isinstance(schema[end], int) else f"{schema[end]:g}"
                       for end in ("minimum", "maximum"))
        said = f"{'integer, ' if schema['type'] == 'integer' else ''}{least} … {most}"
    else:
        said = schema.get("type", "")
    default = schema.get("default", "")
    return said, "false" if default is False else "true" if default is True else f"{default}"


def arguments():
    """Those of each strategy, but for the two that all have."""
    schema = json.loads(read("docs/job.schema.json"))["$defs"]
    lines = ["| strategy | argument | values | default | meaning |", "|---|---|---|---|---|"]
    found = {}
    strategies = {part["properties"]["type"]["const"]: part for name, part in schema.items()
                  if name.startswith("strategy-") and "const" in part.get("properties", {}).get("type", {})}
    for name, strategy in strategies.items():
        for key, value in strategy["properties"].items():
            if key not in ("type", "server-learning-rate", "server-schedule") and not value.get("deprecated"):
                said, default = allowed(value)
                needed = f'"{key}"' in json.dumps([strategy.get("required"), strategy.get("anyOf")])
                row = (f"`{key}`", said, "needed" if needed else default,
                       value.get("description", "").replace("|", "\\|"))
                found.setdefault(row, []).append(f"`{name}`")
    lines += [f"| {', '.join(names)} | {' | '.join(row)} |" for row, names in found.items()]
    return "\n".join(lines) + "\n"


def generated(name):
    kind, *words = name.split()
    if kind == "arguments":
        return arguments()
    if kind == "help":
        return as_table(help_of(*words))
    return metrics() if kind == "metrics" else limits(*words)


def parts():
    """(path, name, what the page says, what it should say) of each generated part."""
    for path in sorted(glob.glob("docs/**/*.md", root_dir=SOURCE, recursive=True)):
        for part in PART.finditer(read(path)):
            yield path, part[2], part[3], generated(part[2])


def main():
    changed = sorted({path for path, _, said, now in parts() if said != now})
    for path in changed if "--write" in sys.argv else ():
        text = PART.sub(lambda part: part[1] + generated(part[2]) + part[4], read(path))
        with open(os.path.join(SOURCE, path), "w", encoding="utf-8") as file:
            file.write(text)
    print("\n".join(changed))
    return 1 if changed and "--write" not in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
