"""Fails where a function with external linkage has no caller but tests: test_callers.py ROOT

Such a function is dead weight, or belongs to the tests. What a public header declares is for others to call; for the
rest, KEPT says why. A table or a macro of a header that names a function calls it.
"""

import re
import sys

import source_tree

PUBLIC = ("client/fedge_client.h", "edge/train/model.h", "aggregator/rounds/strategy_plugin_api.h",
          "aggregator/rounds/metric_plugin_api.h")
OTHERS = ("tests/", "examples/")
KEPT = {
    "fedge_chain_cache_hits": "a signature that is not checked again leaves no other trace",
    "fedge_graph_watch": "tests look at each layer of a step",
    "fedge_job_load": "a job's file alone, without strategies: tests of training and benches",
    "fedge_journal_num_syncs": "an fsync leaves no other trace",
    "fedge_naive_accumulate": "the readable reference",
    "fedge_naive_between": "the readable reference",
    "fedge_naive_dots": "the readable reference",
    "fedge_naive_launch_accumulate": "the readable reference",
    "fedge_naive_launch_attention": "the readable reference",
    "fedge_naive_launch_attention_backward": "the readable reference",
    "fedge_naive_launch_batchnorm": "the readable reference",
    "fedge_naive_launch_batchnorm_backward": "the readable reference",
    "fedge_naive_launch_conv2d": "the readable reference",
    "fedge_naive_launch_conv2d_backward": "the readable reference",
    "fedge_naive_launch_linear": "the readable reference",
    "fedge_naive_launch_linear_backward": "the readable reference",
    "fedge_naive_launch_loss": "the readable reference",
    "fedge_naive_launch_norm": "the readable reference",
    "fedge_naive_launch_norm_backward": "the readable reference",
    "fedge_naive_launch_recurrent": "the readable reference",
    "fedge_naive_launch_recurrent_backward": "the readable reference",
    "fedge_naive_launch_squares": "the readable reference",
    "fedge_naive_nearest": "the readable reference",
    "fedge_plain_conv2d_backward": "the readable reference",
    "fedge_plain_conv2d_forward": "the readable reference",
    "fedge_plain_linear_backward": "the readable reference",
    "fedge_plain_linear_forward": "the readable reference",
    "fedge_simulation_demand": "what a run will take, before it takes it",
    "fedge_strategy_job_parse": "a job's text with its strategy: tests, fuzzers and benches; programs read files",
    "fedge_sum_kernels_at": "each kind of kernels is tested, on a CPU that has several",
}
COMMENT = re.compile(r"/\*.*?\*/", re.S)
DEFINED = re.compile(r"^(?!static|typedef|extern|#)[A-Za-z_][\w \*]*?\b(fedge_\w+)\([^;{]*\)\s*\{", re.M)
NAME = re.compile(r"\bfedge_\w+")


def check(root):
    defined, named, public = {}, {}, set()
    for path in source_tree.files(root, source_tree.CODE):
        path = path.replace("\\", "/")
        if path.startswith(OTHERS):
            continue
        text = COMMENT.sub("", "\n".join(source_tree.lines(root, path)))
        names = NAME.findall(text)
        for name in names:
            named[name] = named.get(name, 0) + 1
        if path in PUBLIC:
            public.update(names)
        elif not path.endswith((".h", ".cuh")):
            # Several definitions are variants of one function, of which one is built.
            for name in DEFINED.findall(text):
                defined.setdefault(name, []).append(path)
    faults = []
    for name, paths in sorted(defined.items()):
        # Its definitions and its declaration name it; whoever else does calls it.
        uncalled = named[name] <= len(paths) + 1 and name not in public
        if uncalled and name not in KEPT:
            faults.append(f"{paths[0]}: {name} has no caller but tests: move it there, or say in KEPT why it stays")
    if defined.keys() & KEPT.keys():  # not in the self-test's tree
        faults += [f"tests/style/test_callers.py: {name} is in KEPT, but is gone or has a caller" for name in KEPT
                   if name not in defined or named[name] > len(defined[name]) + 1]
    return faults


def self_test():
    """Each rule is broken once, in a tree of its own, and must be found; so must nothing else."""
    good = {
        "edge/core/a.h": "int fedge_a(void);\nint fedge_table(void);\n#define FEDGE_TABLE {fedge_table}\n",
        "edge/core/a.c": "int fedge_a(void)\n{\n}\n\nint fedge_table(void)\n{\n}\nstatic int fedge_own(void)\n{\n}\n",
        "edge/core/b.c": "int x = fedge_a();\n",
        "client/fedge_client.h": "int fedge_public(void);\n",
        "client/c.c": "int fedge_public(void)\n{\n}\n",
    }
    bad = {
        "edge/core/dead.h": "/* fedge_dead */ int fedge_dead(int a,\n               int b);\n",
        "edge/core/dead.c": "int fedge_dead(int a,\n               int b)\n{\n}\n",
        "tests/edge/core/test_dead.c": "int y = fedge_dead(1, 2);\n",
    }
    source_tree.expect(check, good, bad, ["edge/core/dead.c"])


if __name__ == "__main__":
    sys.exit(source_tree.main(check, self_test))
