"""Fails where code beside a codec's own files says its name: test_codecs.py ROOT

Codecs are found by name in a table (edge/core/codec/codec.h). What knows one of them otherwise is a special case: a text
that is exactly its name, or its table. Three faster ways know some (docs/codecs.md). Comments, and messages that
recommend one, may name it.
"""

import os
import re
import sys

import source_tree

OWN = os.path.join("edge", "core", "codec") + os.sep
OTHERS = ("tests" + os.sep, "examples" + os.sep)
LIST = os.path.join("edge", "core", "codec", "codec.h")
FASTER = ("aggregator/reduce/sum.c", "aggregator/reduce/cuda/geometry.c", "aggregator/simulate/cohort/trainer_cuda_work.c")
# The same words for other things: formats that training computes and keeps numbers in, and nothing at all.
HOMONYMS = {
    "aggregator/program/hosts.c": ("none",),
    "client/training_backend_cuda.c": ("bf16",),
    "client/options.c": ("bf16",),
    "edge/core/message.h": ("none",),
    "edge/plan/arguments.c": ("none",),
    "edge/plan/plan.c": ("int8",),
    "edge/train/kernels/half.c": ("bf16",),
    "edge/train/layers/activations.c": ("none",),
    "edge/train/model/spec.c": ("bf16", "int8"),
    "secure/crypto/ciphers.c": ("none",),
}
MAP = re.compile(r"#define FEDGE_CODEC_MAP\(X\)(.*?[^\\])\n", re.S)
COMMENT = re.compile(r"/\*.*?\*/", re.S)


def check(root):
    faults = []
    listed = re.findall(r"X\((\w+)\)", MAP.search("\n".join(source_tree.lines(root, LIST)) + "\n").group(1))
    known = re.compile(r'"(%s)"|\bfedge_codec_(?:%s)\b' % ("|".join(listed), "|".join(listed)))
    for path in source_tree.files(root, source_tree.CODE):
        place = path.replace(os.sep, "/")
        if path.startswith((OWN, *OTHERS)) or place in FASTER:
            continue
        text = COMMENT.sub(lambda found: "\n" * found.group().count("\n"), "\n".join(source_tree.lines(root, path)))
        for number, line in enumerate(text.splitlines(), 1):
            if any(found[1] not in HOMONYMS.get(place, ()) for found in known.finditer(line)):
                faults.append(f"{path}:{number}: names a codec: {line.strip()}")
    return faults


def self_test():
    """Each rule is broken once, in a tree of its own, and must be found; so must nothing else."""
    good = {
        LIST: "#define FEDGE_CODEC_MAP(X) \\\n    X(none) \\\n    X(int8)\n\n",
        OWN + "int8.c": 'const fedge_codec_ops fedge_codec_int8 = {.name = "int8"};\n',
        "aggregator/reduce/sum.c": 'x = "int8";\n',
        "edge/core/message.h": 'X(NONE, "none")\n',
        "comment.c": '/* "int8" and\n * fedge_codec_int8 */\nconst char *x = "use int8, or none";\n',
        OTHERS[0] + "test.c": 'x = "int8";\n',
    }
    bad = {
        "text.c": 'if (strcmp(name, "int8") == 0)\n',
        "table.c": "use(&fedge_codec_none);\n",
        "edge/plan/plan.c": 'x = "int8", y = "none";\n',
    }
    source_tree.expect(check, good, bad)


if __name__ == "__main__":
    sys.exit(source_tree.main(check, self_test))
