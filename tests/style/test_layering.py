"""Fails where a file includes what its layer must not know: test_layering.py ROOT

    edge/core <- edge/train <- edge/io;  edge/core <- secure;  edge, secure <- client;
    edge, secure <- aggregator;  client and aggregator never include each other.
    In aggregator:  reduce, workers <- rounds <- store <- report <- server, simulate;
    report <- simulate/run <- simulate/sweep <- simulate;  simulate/time <- simulate/run.

Includes of the project are written from the root. edge/core and edge/train live on the C library
alone (only edge/core/os_*.c may use the system), edge/io adds cJSON, zlib and ISA-L, secure adds mbedTLS and
libgcrypt, and only client and aggregator may know libwebsockets. A folder without a rule here is a fault.

The pure state machines (connections, the client's session, rounds) do no I/O, know no clock, no threads and no lock:
their files include none of what does, and neither write lines to a log nor read a blob.
"""

import os
import re
import sys

import source_tree

# For each room of the aggregator: the rooms it may include besides itself.
ROOMS = {
    "keys": (),
    "reduce": (),
    "workers": (),
    "rounds": ("reduce", "workers"),
    "store": ("rounds",),
    "report": ("rounds", "store"),
    "server": ("workers", "reduce", "rounds", "store", "report"),
    "server/ranks": ("workers", "reduce", "rounds", "store", "server"),
    "simulate/time": ("rounds", "simulate/limits.h"),
    "simulate/generate": ("store", "simulate/limits.h"),
    "simulate/run": (
        "workers", "reduce", "rounds", "store", "report", "simulate/time", "simulate/limits.h",
    ),
    "simulate/sweep": (
        "workers", "reduce", "rounds", "store", "report", "simulate/run", "simulate/limits.h",
    ),
    "simulate": ("store",),
}
# For each layer: the layers it may include, and the libraries it may use.
LAYERS = {
    "edge/core": (("edge/core/",), ()),
    "edge/train": (("edge/core/", "edge/train/"), ()),
    "edge/train/cuda": (("edge/core/", "edge/train/"), ("cuda_runtime", "dlfcn.h", "pthread.h")),
    "edge/io": (("edge/",), ("cjson/", "zlib.h", "isa-l/")),
    "secure": (("edge/core/", "secure/"), ("cjson/", "mbedtls/", "psa/", "gcrypt.h")),
    "client": (("edge/", "secure/", "client/"), ("",)),
    **{
        f"aggregator/{room}": (("edge/", "secure/", *(f"aggregator/{r}" for r in (room, *others))), ("",))
        for room, others in ROOMS.items()
    },
    "examples": (("edge/", "client/", "examples/"), ("cjson/", "zlib.h")),
    "tests": (("",), ("",)),
    "cmake": ((), ("mbedtls/",)),
}
LIBRARIES = ("cjson/", "zlib.h", "isa-l/", "mbedtls/", "psa/", "gcrypt.h", "libwebsockets.h", "ev.h")
STANDARD = re.compile(
    r"(assert|complex|ctype|errno|fenv|float|inttypes|iso646|limits|locale|math|setjmp|signal|stdalign|"
    r"stdarg|stdatomic|stdbool|stddef|stdint|stdio|stdlib|stdnoreturn|string|tgmath|threads|time|wchar|"
    r"immintrin|arm_neon)\.h$"
)
# Layers, losses and their arguments, which edge/io reads by their tables only (docs/layers.md).
OF_ONE_LAYER = re.compile(r"\bFEDGE_(LAYER|LOSS)_(?!MAP\b|COUNT\b)[A-Z0-9]\w*|->u\.\w+|\.u\.\w+")
# State machines: events and the time go in, actions come out.
PURE = re.compile(r"(aggregator/server/conn|aggregator/rounds/rounds|client/session)(_\w+)?\.[ch]$")
IMPURE_INCLUDE = re.compile(
    r"(edge/core/os|client/(link|store|worker)|aggregator/server/(engine\w*|transport\w*|listener)|libwebsockets|ev|"
    r"pthread|threads|time|unistd|fcntl|sys/\w+)\.h$")
IMPURE_CALL = re.compile(
    r"\b(FEDGE_LOG|fedge_log_(?:write|failure)|fedge_os_\w+|fedge_blob_(?:new|read|move)\w*|pthread_\w+|time|clock\w*|"
    r"f?printf|fopen|open)\(")
INCLUDE = re.compile(r'\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')


def layer_of(path):
    fitting = [name for name in LAYERS if path.startswith(name + "/")]
    return max(fitting, key=len) if fitting else None


def fault_of(root, path, layer, own, system):
    """What is wrong with one include, or None. [own]: "..." form, [system]: <...> form."""
    may_include, may_use = LAYERS[layer]
    if own:
        if not os.path.exists(os.path.join(root, own)):
            return f'"{own}" is not a path from the root'
        if not own.startswith(may_include):
            return f'{layer} must not include "{own}"'
        return None
    if layer_of(system) and os.path.exists(os.path.join(root, system)):
        return f'<{system}> is a file of the project: write it with "..."'
    if system.startswith(LIBRARIES):
        return None if system.startswith(may_use) else f"{layer} must not use <{system}>"
    if layer.startswith("edge/") and not STANDARD.match(system) and not (may_use and system.startswith(may_use)):
        if not os.path.basename(path).startswith("os_") or layer != "edge/core":
            return f"{layer} must not use the system's <{system}>: only edge/core/os_*.c may"
    return None


def check(root):
    faults = []
    for path in source_tree.files(root, source_tree.CODE):
        layer = layer_of(path)
        if layer is None:
            faults.append(f"{path}: no rule for this folder; give its layer one in tests/style/test_layering.py")
            continue
        for number, line in enumerate(source_tree.lines(root, path), 1):
            include = INCLUDE.match(line)
            fault = include and fault_of(root, path, layer, *include.groups())
            if fault:
                faults.append(f"{path}:{number}: {fault}")
            if PURE.match(path):
                impure = include and IMPURE_INCLUDE.match(include[1] or include[2]) or IMPURE_CALL.search(line)
                if impure:
                    faults.append(f"{path}:{number}: {impure[0]}: a state machine does no I/O and knows no clock")
            named = layer == "edge/io" and OF_ONE_LAYER.search(line)
            if named:
                faults.append(f"{path}:{number}: {named[0]}: what one layer or loss is, its table says")
    return faults


def self_test():
    """Each rule is broken once, in a tree of its own, and must be found; so must nothing else."""
    good = {
        "edge/core/a.h": "#include <stdint.h>\n",
        "edge/core/os.h": "",
        "edge/core/os_posix.c": '#include "edge/core/a.h"\n#include <unistd.h>\n',
        "edge/train/b.h": '#include "edge/core/a.h"\n',
        "edge/io/c.h": '#include "edge/train/b.h"\n#include <zlib.h>\nFEDGE_LAYER_MAP(FEDGE_LAYER_##X)\n',
        "secure/d.h": '#include "edge/core/a.h"\n#include <mbedtls/ssl.h>\n',
        "client/e.h": '#include "secure/d.h"\n#include <libwebsockets.h>\n',
        "aggregator/store/f.h": '#include "edge/io/c.h"\n#include <sys/socket.h>\n',
        "aggregator/simulate/main.h": "",
        "client/session.h": '#include "edge/core/a.h"\n#include <string.h>\nlog(x); fedge_log_str(x);\n',
        "tests/g.c": '#include "client/e.h"\n#include "aggregator/store/f.h"\n',
    }
    bad = {
        "edge/core/up.c": '#include "edge/train/b.h"\n',
        "edge/core/system.c": "#include <unistd.h>\n",
        "edge/train/up.c": '#include "edge/io/c.h"\n',
        "edge/train/library.c": "#include <zlib.h>\n",
        "edge/train/os_no.c": "#include <unistd.h>\n",
        "edge/io/up.c": '#include "secure/d.h"\n',
        "edge/io/layer.c": "case FEDGE_LAYER_CONV2D:\n",
        "edge/io/argument.c": "n = layer->u.linear.in_features;\n",
        "secure/up.c": '#include "edge/io/c.h"\n',
        "client/across.c": '#  include "aggregator/store/f.h"\n',
        "aggregator/rounds/across.c": '#include "client/e.h"\n',
        "aggregator/rounds/relative.c": '#include "f.h"\n',
        "aggregator/rounds/angle.c": "#include <edge/core/a.h>\n",
        "aggregator/rounds/up.c": '#include "aggregator/store/f.h"\n',
        "aggregator/simulate/run/up.c": '#include "aggregator/simulate/main.h"\n',
        "aggregator/server/conn.c": "#include <pthread.h>\n",
        "aggregator/server/conn_x.c": '    FEDGE_LOG(log, 1, "x");\n',
        "aggregator/rounds/rounds.c": "    now_ms = fedge_os_unix_ms();\n",
        "client/session_x.c": '#include "edge/core/os.h"\n',
        "newfolder/x.c": "",
    }
    source_tree.expect(check, good, bad)


if __name__ == "__main__":
    sys.exit(source_tree.main(check, self_test))
