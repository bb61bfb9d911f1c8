"""Fails where a file includes what its folder must not know: test_layering.py ROOT

Folders have an order, ORDER: a file includes headers of its own folder and of folders before it, so no two folders
include each other. Beyond that:

    edge/core <- edge/train;  edge/core <- json <- wire <- plan <- data <- site, which read train's specifications;
    edge/core <- secure;  edge, secure <- client;  edge, secure <- aggregator;
    client and aggregator never include each other; net and run of the aggregator know requests and replies alone
    (aggregator/exchange); the simulator and the server do not know each other.

Includes of the project are written from the root. edge/core and edge/train live on the C library alone (only
edge/core/os_*.c may use the system), the rest of edge adds cJSON, zlib and ISA-L, secure adds mbedTLS and libgcrypt,
and only client and aggregator may know libwebsockets. A folder that is not in ORDER is a fault, and so is one of more
than 40 sources and headers that is not the table of an axis.

The pure state machines (connections, the client's session, rounds, slot leases) do no I/O, know no clock, no threads
and no lock: their files include none of what does, and neither write lines to a log nor read a blob.
"""

import collections
import os
import re
import sys

import source_tree

ORDER = """
    cmake edge/core edge/core/codec
    edge/train edge/train/kernels edge/train/layers edge/train/losses edge/train/optimizers edge/train/model
    edge/train/fused edge/train/cuda/kernels edge/train/cuda edge/train/cuda/layers
    edge/json edge/wire edge/plan edge/plan/hooks edge/data/formats edge/data/partitions edge/data edge/site
    secure/crypto secure/identity secure/keys
    client
    aggregator/threads aggregator/reduce aggregator/reduce/mpi aggregator/reduce/cuda
    aggregator/rounds aggregator/rounds/samplers aggregator/rounds/robust aggregator/rounds/strategies
    aggregator/store aggregator/report aggregator/exchange aggregator/cluster/protocol
    aggregator/net aggregator/run/ingest aggregator/run aggregator/cluster aggregator/program
    aggregator/simulate/time aggregator/simulate/cohort aggregator/simulate/run aggregator/simulate/output
    aggregator/simulate/experiment aggregator/simulate/sweep aggregator/simulate/compare aggregator/simulate/generate
    aggregator/simulate
    examples tests
""".split()
# For the folders that begin so, the longest that fits: what they may include besides their own, as far as ORDER lets
# them, and the libraries that they may use.
LAYERS = {
    "cmake": ((), ("mbedtls/",)),
    "edge/core": (("edge/core",), ()),
    "edge/train": (("edge/core", "edge/train"), ()),
    "edge/train/cuda": (("edge/core", "edge/train"), ("cuda_runtime", "dlfcn.h", "pthread.h")),
    "edge": (("edge",), ("cjson/", "zlib.h", "isa-l/")),
    "secure": (("edge/core", "secure"), ("cjson/", "mbedtls/", "psa/", "gcrypt.h")),
    "client": (("edge", "secure"), ("",)),
    "aggregator": (("edge", "secure", "aggregator"), ("",)),
    "aggregator/threads": (("edge/core",), ("",)),
    "aggregator/reduce": (("edge/core", "edge/train/cuda", "aggregator/reduce"), ("",)),
    "aggregator/run": (("edge", "secure", "aggregator/threads", "aggregator/reduce", "aggregator/rounds", "aggregator/store",
                        "aggregator/report", "aggregator/exchange", "aggregator/cluster/protocol", "aggregator/run"), ("",)),
    "aggregator/simulate": (("edge", "secure", "aggregator/threads", "aggregator/reduce", "aggregator/rounds",
                             "aggregator/store", "aggregator/report", "aggregator/simulate"), ("",)),
    "examples": (("edge", "client"), ("cjson/", "zlib.h")),
    "tests": (("",), ("",)),
}
MAX_FILES = 40
AXES = ("edge/train/layers", "aggregator/rounds/strategies", "edge/core/codec", "edge/data/formats")
LIBRARIES = ("cjson/", "zlib.h", "isa-l/", "mbedtls/", "psa/", "gcrypt.h", "libwebsockets.h", "ev.h")
STANDARD = re.compile(
    r"(assert|complex|ctype|errno|fenv|float|inttypes|iso646|limits|locale|math|setjmp|signal|stdalign|"
    r"stdarg|stdatomic|stdbool|stddef|stdint|stdio|stdlib|stdnoreturn|string|tgmath|threads|time|wchar|"
    r"immintrin|arm_neon)\.h$"
)
# Layers, losses and their arguments, which the rest of edge reads by their tables only (docs/layers.md).
BY_TABLES = ("edge/json", "edge/wire", "edge/plan", "edge/data", "edge/site")
OF_ONE_LAYER = re.compile(r"\bFEDGE_(LAYER|LOSS)_(?!MAP\b|COUNT\b)[A-Z0-9]\w*|->u\.\w+|\.u\.\w+")
# State machines: events and the time go in, actions come out.
PURE = re.compile(
    r"(aggregator/net/conn|aggregator/rounds/rounds|aggregator/cluster/protocol/slot_lease|client/session)(_\w+)?\.[ch]$")
IMPURE_INCLUDE = re.compile(
    r"(edge/core/os|client/(link|store|worker)|aggregator/(run/engine\w*|net/transport\w*|net/listener)|libwebsockets|ev|"
    r"pthread|threads|time|unistd|fcntl|sys/\w+)\.h$")
IMPURE_CALL = re.compile(
    r"\b(FEDGE_LOG|fedge_log_(?:write|failure)|fedge_os_\w+|fedge_blob_(?:new|read|move)\w*|pthread_\w+|time|clock\w*|"
    r"f?printf|fopen|open)\(")
INCLUDE = re.compile(r'\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')




def below(path, folder):
    return path == folder or path.startswith(folder + "/") or folder == ""


def layer_of(folder):
    fitting = [name for name in LAYERS if below(folder, name)]
    return max(fitting, key=len) if fitting else None


def order_of(folder):
    """The place of a folder in ORDER; of tests and examples all folders have the same."""
    top = folder.split("/")[0]
    name = top if top in ("tests", "examples") else folder
    return ORDER.index(name) if name in ORDER else None


def fault_of(root, path, layer, own, system):
    """What is wrong with one include, or None. [own]: "..." form, [system]: <...> form."""
    folder = os.path.dirname(path)
    may_include, may_use = LAYERS[layer]
    if own:
        other = os.path.dirname(own)
        if not os.path.exists(os.path.join(root, own)):
            return f'"{own}" is not a path from the root'
        if other == folder:
            return None
        if not any(below(other, name) for name in may_include) and layer != "tests":
            return f'{layer} must not include "{own}"'
        if order_of(other) is None or order_of(other) >= order_of(folder) and layer != "tests":
            return f'{folder} must not include "{own}", whose folder comes after it (ORDER)'
        return None
    if order_of(os.path.dirname(system)) is not None and os.path.exists(os.path.join(root, system)):
        return f'<{system}> is a file of the project: write it with "..."'
    if system.startswith(LIBRARIES):
        return None if system.startswith(may_use) else f"{layer} must not use <{system}>"
    if layer.split("/")[0] == "edge" and not STANDARD.match(system) and not (may_use and system.startswith(may_use)):
        if not os.path.basename(path).startswith("os_") or layer != "edge/core":
            return f"{layer} must not use the system's <{system}>: only edge/core/os_*.c may"
    return None


def check(root):
    faults = []
    files = collections.Counter()
    for path in source_tree.files(root, source_tree.CODE):
        folder = os.path.dirname(path).replace(os.sep, "/")
        layer = layer_of(folder)
        if layer is None or order_of(folder) is None:
            faults.append(f"{path}: no rule for this folder; give it its place in ORDER of tests/style/test_layering.py")
            continue
        files[folder] += 1
        if files[folder] == MAX_FILES + 1 and layer not in ("tests", "examples") and folder not in AXES:
            faults.append(f"{path}: its folder has more than {MAX_FILES} files: divide it by subject")
        for number, line in enumerate(source_tree.lines(root, path), 1):
            include = INCLUDE.match(line)
            fault = include and fault_of(root, path, layer, *include.groups())
            if fault:
                faults.append(f"{path}:{number}: {fault}")
            if PURE.match(path):
                impure = include and IMPURE_INCLUDE.match(include[1] or include[2]) or IMPURE_CALL.search(line)
                if impure:
                    faults.append(f"{path}:{number}: {impure[0]}: a state machine does no I/O and knows no clock")
            named = any(below(folder, name) for name in BY_TABLES) and OF_ONE_LAYER.search(line)
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
        "edge/plan/c.h": '#include "edge/train/b.h"\n#include <zlib.h>\nFEDGE_LAYER_MAP(FEDGE_LAYER_##X)\n',
        "secure/crypto/d.h": '#include "edge/core/a.h"\n#include <mbedtls/ssl.h>\n',
        "client/e.h": '#include "secure/crypto/d.h"\n#include <libwebsockets.h>\n',
        "aggregator/store/f.h": '#include "edge/plan/c.h"\n#include <sys/socket.h>\n',
        "aggregator/run/g.h": '#include "aggregator/store/f.h"\n',
        "aggregator/net/h.h": '#include "aggregator/store/f.h"\n',
        "client/session.h": '#include "edge/core/a.h"\n#include <string.h>\nlog(x); fedge_log_str(x);\n',
        "tests/g.c": '#include "client/e.h"\n#include "aggregator/store/f.h"\n',
        **{f"edge/json/{i}.h": "" for i in range(MAX_FILES)},
        **{f"edge/train/layers/{i}.h": "" for i in range(MAX_FILES + 1)},
    }
    bad = {
        "edge/core/up.c": '#include "edge/train/b.h"\n',
        "edge/core/system.c": "#include <unistd.h>\n",
        "edge/train/up.c": '#include "edge/plan/c.h"\n',
        "edge/train/library.c": "#include <zlib.h>\n",
        "edge/train/os_no.c": "#include <unistd.h>\n",
        "edge/json/up.c": '#include "edge/plan/c.h"\n',
        "edge/plan/across.c": '#include "secure/crypto/d.h"\n',
        "edge/plan/layer.c": "case FEDGE_LAYER_CONV2D:\n",
        "edge/plan/argument.c": "n = layer->u.linear.in_features;\n",
        "secure/crypto/up.c": '#include "edge/plan/c.h"\n',
        "client/across.c": '#  include "aggregator/store/f.h"\n',
        "aggregator/rounds/across.c": '#include "client/e.h"\n',
        "aggregator/rounds/relative.c": '#include "f.h"\n',
        "aggregator/rounds/angle.c": "#include <edge/core/a.h>\n",
        "aggregator/rounds/up.c": '#include "aggregator/store/f.h"\n',
        "aggregator/run/net.c": '#include "aggregator/net/h.h"\n',
        "aggregator/net/run.c": '#include "aggregator/run/g.h"\n',
        "aggregator/simulate/run/server.c": '#include "aggregator/run/g.h"\n',
        "aggregator/net/conn.c": "#include <pthread.h>\n",
        "aggregator/net/conn_x.c": '    FEDGE_LOG(log, 1, "x");\n',
        "aggregator/rounds/rounds.c": "    now_ms = fedge_os_unix_ms();\n",
        "client/session_x.c": '#include "edge/core/os.h"\n',
        "newfolder/x.c": "",
    }
    source_tree.expect(check, good, bad, sorted([*bad, "edge/json/up.c"]))


if __name__ == "__main__":
    sys.exit(source_tree.main(check, self_test))
