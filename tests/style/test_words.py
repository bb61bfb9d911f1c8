"""Fails where a retired identifier comes back: test_words.py ROOT

One word for one thing, and the field's word where it has one. Left is what a thing was called, right what it is called
now. Only whole identifiers of code count; what a word also means elsewhere is allowed where it says so.
"""

import os
import re
import sys

import source_tree

RETIRED = {
    r"\w*crew\w*": "worker pool",
    r"\w*patience": "spin backoff; a time limit",
    r"\w*appraisal\w*": "final evaluation",
    r"\w*fleet\w*": "client profiles",
    r"\w*population\w*": "client data sets",
    r"\w*closer\w*": "round finalizer",
    r"fedge_(last_)?counted\w*": "last accepted",
    r"fedge_variates\w*": "control variates",
    r"\w*timetable\w*": "virtual clock, event queue",
    r"\w*tested_set\w*": "evaluation set",
    r"fedge_(run_)?totals": "run summary",
    r"torn": "mid-step",
    r"cent(er|re)": "global model",
    r"\w*settled?\w*": "validate, derive or agree",
    r"rectifies|couples|steps_sgd": "fuses_relu, batch_coupled, fuses_sgd",
    r"fewest": "min_efficient_batch",
    r"\w+_again_?scratch|again_scratch|fedge_norm_again": "recompute",
    r"fedge_mail|fedge_latch\w*": "completion, barrier",
    r"\w*relief\w*": "back pressure",
    r"fedge_fold\w*": "encode and accumulate",
    r"fedge_action|FEDGE_ACTION_\w+|fedge_span": "of two things: say which",
}
# What the words also mean, and where.
ALLOWED = {
    "patience": ("aggregator/rounds/selection.", "edge/plan/job.c", "edge/plan/plan.h"),  # of early stopping
    "center": ("edge/train/",),  # of a normalisation
    "fewest": ("aggregator/net/transport_admission.c",),  # the thread with the fewest connections
}
OTHERS = ("tests" + os.sep, "examples" + os.sep)
COMMENT_OR_TEXT = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)
WORD = re.compile(r"\b[A-Za-z_]\w*\b")


def check(root):
    faults = []
    retired = [(re.compile(word, re.I), better) for word, better in RETIRED.items()]
    seen = {}
    for path in source_tree.files(root, source_tree.CODE):
        if path.startswith(OTHERS):
            continue
        place = path.replace(os.sep, "/")
        text = COMMENT_OR_TEXT.sub(lambda found: "\n" * found.group().count("\n"),
                                   "\n".join(source_tree.lines(root, path)))
        for number, line in enumerate(text.splitlines(), 1):
            for word in WORD.findall(line):
                if word not in seen:
                    seen[word] = next((better for old, better in retired if old.fullmatch(word)), None)
                if seen[word] and not place.startswith(ALLOWED.get(word, ("-",))):
                    faults.append(f"{path}:{number}: {word} is retired: {seen[word]}")
    return faults


def self_test():
    """Some are brought back, in a tree of their own, and must be found; so must nothing else."""
    good = {
        "aggregator/rounds/selection.c": "uint32_t patience = 3;\n",
        "aggregator/a.c": '/* the crew */\nconst char *x = "patience";\nint close, closed;\n',
        "tests/b.c": "fedge_crew();\n",
    }
    bad = {
        "aggregator/crew.c": "fedge_crew_new();\n",
        "aggregator/c.c": "fedge_cuda_patience x;\n",
        "edge/plan/d.c": "int patience;\n",
        "aggregator/d.c": "float *center;\n",
        "edge/e.c": "FEDGE_ACTION_SEND;\n",
    }
    source_tree.expect(check, good, bad)


if __name__ == "__main__":
    sys.exit(source_tree.main(check, self_test))
