"""Fails where a retired word comes back: test_words.py ROOT

One word for one thing, and the field's word where it has one. There are three tables, of rows (pattern, better, where):
left what a thing was called, then what it is called now, then the folders in which the row holds.

    RETIRED  whole identifiers
    WORDS    single words of identifiers: [piece] is one of fedge_codec_piece and of PIECE_BYTES
    PHRASES  prose: comments, messages (strings with a space in them, --help among them) and the pages of docs

Prose may quote a name of the wire, of a file or of an option, in quotation marks, after hyphens or as `code`: these are
exempt. A space in a phrase fits any white space, line ends included.
"""

import os
import re
import sys

import source_tree

EVERYWHERE = ("",)
RETIRED = [
    (r"\w*patience", "spin backoff; a time limit", EVERYWHERE),
    (r"\w*fleet\w*", "client profiles", EVERYWHERE),
    (r"\w*population\w*", "client data sets", EVERYWHERE),
    (r"\w*closer\w*", "round finalizer", EVERYWHERE),
    (r"fedge_(last_)?counted\w*", "last accepted", EVERYWHERE),
    (r"fedge_variates\w*", "control variates", EVERYWHERE),
    (r"\w*timetable\w*", "virtual clock, event queue", EVERYWHERE),
    (r"\w*tested_set\w*", "evaluation set", EVERYWHERE),
    (r"fedge_(run_)?totals", "run summary", EVERYWHERE),
    (r"torn", "mid-step", EVERYWHERE),
    (r"cent(er|re)", "global model", EVERYWHERE),
    (r"\w*settled?\w*", "validate, derive or agree", EVERYWHERE),
    (r"rectifies|couples|steps_sgd", "fuses_relu, batch_coupled, fuses_sgd", EVERYWHERE),
    (r"fewest", "min_efficient_batch", EVERYWHERE),
    (r"\w+_again_?scratch|again_scratch|fedge_norm_again", "recompute", EVERYWHERE),
    (r"fedge_mail|fedge_latch\w*", "completion, barrier", EVERYWHERE),
    (r"\w*relief\w*", "back pressure", EVERYWHERE),
    (r"fedge_fold\w*", "encode and accumulate", EVERYWHERE),
    (r"fedge_action|FEDGE_ACTION_\w+|fedge_span", "of two things: say which", EVERYWHERE),
    (r"fedge_global(?!_model)(_\w+)?", "server run", EVERYWHERE),
    (r"fedge_letter\w*", "rank message", EVERYWHERE),
    (r"fedge_claim\w*", "slot lease", EVERYWHERE),
    (r"fedge_hold(_\w+)?", "slot holder", EVERYWHERE),
    (r"fedge_(found|findings)(_\w+)?", "recovered updates", EVERYWHERE),
    (r"fedge_meet(_\w+)?", "rendezvous", EVERYWHERE),
    (r"fedge_share(_\w+)?", "rank worker", EVERYWHERE),
    (r"fedge_upload_rooms?(_\w+)?", "upload buffer", EVERYWHERE),
    (r"fedge_turns(_\w+)?|FEDGE_TURNS?_\w+", "handshake queue, eviction score", EVERYWHERE),
    (r"fedge_reach(_\w+)?", "host probe", EVERYWHERE),
    (r"fedge_codec_encode_pieces|FEDGE_CODEC_PIECE", "chunk", EVERYWHERE),
    (r"fedge_inflater_span", "range", EVERYWHERE),
    (r"fedge_client_engine\w*", "training backend", EVERYWHERE),
    (r"fedge_kept(?!_updates)(_\w+)?", "client state", EVERYWHERE),
    (r"fedge_verdicts?(_\w+)?", "chain cache; result", EVERYWHERE),
]
WORDS = [
    (r"guests?", "unauthenticated peer", EVERYWHERE),
    (r"door", "admission", EVERYWHERE),
    (r"vain", "failed", EVERYWHERE),
    (r"lately", "recently", EVERYWHERE),
    (r"beats", "heartbeat", EVERYWHERE),
    (r"errands?", "task", EVERYWHERE),
    (r"outlets?", "callbacks", EVERYWHERE),
    (r"lend|lent", "device pointer", EVERYWHERE),
    (r"handover", "restart state", EVERYWHERE),
    (r"spot", "index", EVERYWHERE),
    (r"corner", "origin", EVERYWHERE),
    (r"stretch|slices?|spans?|pieces?", "chunk, range", EVERYWHERE),
    (r"places|rooms", "index, offset; buffer, capacity", EVERYWHERE),
    (r"shares", "fraction, part, shard", EVERYWHERE),
    (r"rests?ing|rests", "not-before", EVERYWHERE),
    (r"told|chooses", "broadcast state; sparsifies", EVERYWHERE),
    (r"turns", "step, round or position: say which", EVERYWHERE),
    (r"middle", "median, midpoint", EVERYWHERE),
    (r"verdicts?", "result", EVERYWHERE),
    (r"claims?|meets?", "slot lease; rendezvous", EVERYWHERE),
    (r"material", "credentials", EVERYWHERE),
    (r"sightings?", "peer check", EVERYWHERE),
    (r"saver", "checkpoint writer", EVERYWHERE),
    (r"carved?", "arena", EVERYWHERE),
    (r"slides?", "window shape", EVERYWHERE),
    (r"measurer", "evaluator", EVERYWHERE),
    (r"crew", "worker pool", EVERYWHERE),
    (r"appraisal", "final evaluation", EVERYWHERE),
]
PHRASES = [
    (r"in vain", "say what failed", EVERYWHERE),
    (r"(is|are) told (?!how|what)", "say which message brings it, or what sets it", EVERYWHERE),
    (r"what stands|stands? already", "say what is there", EVERYWHERE),
    (r"so many\b(?! that)", "name the count", EVERYWHERE),
    (r"Who (has|is|asks|waits|comes|writes|reads|wants|says|takes|makes)\b", "name the caller or the thread", EVERYWHERE),
    (r"/\*\s(?![A-Z])(of|for|by|likewise|that|which|who)\b", "let it stand alone: bytes of the file", EVERYWHERE),
    (r"whoever|somebody|made anew", "name the caller, the thread or the peer", EVERYWHERE),
]
# What the words also mean, and where.
ALLOWED = {
    "patience": ("aggregator/rounds/selection.", "edge/plan/job.c", "edge/plan/plan.h"),  # of early stopping
    "center": ("edge/train/",),  # of a normalisation
    "fewest": ("aggregator/net/transport_admission.c",),  # the thread with the fewest connections
}
OTHERS = ("tests" + os.sep, "examples" + os.sep)
COMMENT_OR_TEXT = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"(?:\s*"(?:\\.|[^"\\\n])*")*', re.S)
IDENTIFIER = re.compile(r"\b[A-Za-z_]\w*\b")
CODE_OF_PAGE = re.compile(r"^```.*?^```|`[^`\n]+`", re.S | re.M)
NAME = r"--[\w-]+|'[\w.:/-]+'|\[\w+\]|[\w.-]+=\S*|"
NAME_IN_PAGE = re.compile(NAME + r'"[\w.:/-]+"')
NAME_IN_MESSAGE = re.compile(NAME + r'\\"[\w.:/-]+\\"')


def blank(found):
    """Spaces in the place of what was found; its line ends stay."""
    return re.sub(r"[^\n]", " ", found.group())


def phrase(pattern):
    return re.compile(r"(?<![\w-])" + pattern.replace(" ", r"[\s*\"]+"), re.I if pattern.islower() else 0)


def prose_of_code(text):
    """The text of comments and messages, each where it was."""
    out, at = [], 0
    for found in COMMENT_OR_TEXT.finditer(text):
        out.append(re.sub(r"[^\n]", " ", text[at:found.start()]))
        part = found.group()
        is_message = part.startswith('"') and " " in part
        is_comment = part.startswith("/*")
        name = NAME_IN_PAGE if is_comment else NAME_IN_MESSAGE
        out.append(name.sub(blank, part) if is_comment or is_message else blank(found))
        at = found.end()
    return "".join(out)


def identifier_faults(path, text, seen):
    place = path.replace(os.sep, "/")
    text = COMMENT_OR_TEXT.sub(lambda found: "\n" * found.group().count("\n"), text)
    for number, line in enumerate(text.splitlines(), 1):
        for word in IDENTIFIER.findall(line):
            if word not in seen:
                parts = word.lower().split("_")
                seen[word] = [(better, where) for old, better, where in COMPILED_RETIRED if old.fullmatch(word)]
                seen[word] += [(better, where) for old, better, where in COMPILED_WORDS if any(map(old.fullmatch, parts))]
            for better, where in seen[word]:
                if place.startswith(where) and not place.startswith(ALLOWED.get(word, ("-",))):
                    yield f"{path}:{number}: {word} is retired: {better}"


def prose_faults(path, prose):
    place = path.replace(os.sep, "/")
    for old, better, where in COMPILED_PHRASES:
        for found in old.finditer(prose) if place.startswith(where) else ():
            number = prose.count("\n", 0, found.start()) + 1
            yield f"{path}:{number}: \"{' '.join(found.group().split())}\" is not plain: {better}"


COMPILED_RETIRED = [(re.compile(old, re.I), better, where) for old, better, where in RETIRED]
COMPILED_WORDS = [(re.compile(old, re.I), better, where) for old, better, where in WORDS]
COMPILED_PHRASES = [(phrase(old), better, where) for old, better, where in PHRASES]


def check(root):
    faults = []
    seen = {}
    for path in source_tree.files(root, source_tree.CODE + (".md",)):
        if path.startswith(OTHERS):
            continue
        text = "\n".join(source_tree.lines(root, path))
        if path.endswith(".md"):
            faults.extend(prose_faults(path, NAME_IN_PAGE.sub(blank, CODE_OF_PAGE.sub(blank, text))))
        else:
            faults.extend(identifier_faults(path, text, seen))
            faults.extend(prose_faults(path, prose_of_code(text)))
    return faults


def self_test():
    """Some are brought back, in a tree of their own, and must be found; so must nothing else."""
    good = {
        "aggregator/rounds/selection.c": "uint32_t patience = 3;\n",
        "aggregator/a.c": '/* the crew */\nconst char *x = "patience";\nint close, closed;\n',
        "edge/json/f.c": '/* so many that it ends */\nf("in-vain", "--in vain");\n',
        "docs/g.md": "`in vain`\n```\nin vain\n```\n",
        "tests/b.c": "fedge_crew(); /* in vain */\n",
    }
    bad = {
        "aggregator/crew.c": "fedge_crew_new();\n",
        "aggregator/c.c": "fedge_cuda_patience x;\n",
        "edge/plan/d.c": "int patience;\n",
        "aggregator/d.c": "float *center;\n",
        "edge/e.c": "FEDGE_ACTION_SEND;\n",
        "edge/h.c": "int at_the_door;\n",
        "edge/json/comment.h": "/* It tries in\n * vain. */\n",
        "edge/json/message.c": 'f("tries in "\n  "vain");\n',
        "edge/json/who.h": "/* A lock. Who has it waits. */\n",
        "docs/guides/page.md": "It tries in\nvain.\n",
    }
    source_tree.expect(check, good, bad)


if __name__ == "__main__":
    sys.exit(source_tree.main(check, self_test))
