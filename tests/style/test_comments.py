#!/usr/bin/env python3
"""Comments name what there is: each source file and each fedge_ identifier in a comment exists in the tree.

Files of other projects are in FOREIGN. Names with capital words (fedge_strategy_NAME, NAME.c) stand for many.
"""

import re
import sys

import source_tree

NAMED = source_tree.CODE + (".py", ".sh")
FOREIGN = ("libwebsockets.h", "ev.h", "ops-ws.c", "ssl_msg.c", "ssl_misc.h", "ssl_tls.c", "ssl_tls13_server.c", "mpi.h",
           "nccl.h", "cublas_api.h", "llm.c", "mbedtls_config.h", "mbedtls_config_default.h",
           "fedge/strategy.h")  # as it is installed
COMMENT = re.compile(r"/\*.*?\*/", re.S)
FILE = re.compile(r"(?<![\w/.*-])[A-Za-z][\w/-]*\.(?:c|h|cu|cuh|py|sh)(?![\w.])")
NAME = re.compile(r"\b(?:fedge|FEDGE)_\w*[A-Za-z0-9]\b(?![*…_])")
PATTERN = re.compile(r"[a-z]_[A-Z]|[A-Z]{2}\w*\.|_other\.c")
WORD = re.compile(r"\b[A-Za-z_]\w+\b")


def check(root):
    paths = [path.replace("\\", "/") for path in source_tree.files(root, NAMED)]
    ends = {"/".join(path.split("/")[-n:]) for path in paths for n in range(1, path.count("/") + 2)}
    comments, known = [], set()
    for path in source_tree.files(root, NAMED + (".cmake", ".in"), ("CMakeLists.txt",)):
        text = "\n".join(source_tree.lines(root, path))
        known.update(WORD.findall(COMMENT.sub(" ", text)))
        if path.endswith(source_tree.CODE):
            comments += [(path, text.count("\n", 0, found.start()) + 1, found[0]) for found in COMMENT.finditer(text)]
    beginnings = {name[:end] for name in known for end in range(len(name)) if name[end] == "_"}
    faults = []
    for path, line, comment in comments:
        faults += [f"{path}:{line}: there is no file {name}" for name in FILE.findall(comment)
                   if name not in ends and not name.endswith(FOREIGN) and not PATTERN.search(name)]
        faults += [f"{path}:{line}: there is no {name}" for name in NAME.findall(comment)
                   if name not in known and name not in beginnings and not PATTERN.search(name)]
    return faults


def self_test():
    source_tree.expect(
        check,
        {"edge/good.c": "/* good.h, edge/good.h, llm.c, fedge_good, fedge_good_NAME, NAME.c, fedge_go… */\n",
         "edge/good.h": "void fedge_good_one(void), fedge_good(void);\n"},
        {"edge/file.c": "/* see gone.h */\n", "edge/folder.c": "/* see secure/good.h */\n",
         "edge/name.c": "/* as fedge_gone */\n"})


if __name__ == "__main__":
    sys.exit(source_tree.main(check, self_test))
