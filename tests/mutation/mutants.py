"""Mutants of C sources: every small change of a file that is worth a try."""

import hashlib
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    path: str  # from the top of the tree
    start: int  # of the changed characters
    end: int
    new: str
    operator: str
    line: int  # from 1
    before: str  # the changed lines, on one line
    after: str

    @property
    def key(self):
        """The same while the line stays the same, wherever it stands in its file."""
        text = "\n".join((self.path, self.before, self.after))
        return hashlib.sha1(text.encode()).hexdigest()[:10]

    def apply(self, text):
        return text[: self.start] + self.new + text[self.end :]


def code_only(text):
    """The text with comments, literals and preprocessor lines blanked, at the same offsets."""
    pattern = re.compile(
        r"""/\*.*?\*/ | //[^\n]* | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'
        | ^[ \t]*\#(?:\\\n|[^\n])*""",
        re.S | re.M | re.X,
    )
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def bodies(code):
    """(start, end) of each function's body."""
    for match in re.finditer(r"\)\s*\n\{", code):
        start = match.end()
        end = code.find("\n}", start)
        if end > 0:
            yield start, end


SWAPS = [  # operator, pattern in code, replacements
    ("relation", r"(?<=\s)<(?=\s)", ["<=", ">="]),
    ("relation", r"(?<=\s)<=(?=\s)", ["<", ">"]),
    ("relation", r"(?<=\s)>(?=\s)", [">=", "<="]),
    ("relation", r"(?<=\s)>=(?=\s)", [">", "<"]),
    ("relation", r"(?<=\s)==(?=\s)", ["!="]),
    ("relation", r"(?<=\s)!=(?=\s)", ["=="]),
    ("logic", r"(?<=\s)&&(?=\s)", ["||"]),
    ("logic", r"(?<=\s)\|\|(?=\s)", ["&&"]),
    ("logic", r"(?<=[\s(])!(?=[\w(])", [""]),
    ("arithmetic", r"(?<=[\w)\]] )\+(?= [\w(*&])", ["-"]),
    ("arithmetic", r"(?<=[\w)\]] )-(?= [\w(*&])", ["+"]),
    ("arithmetic", r"(?<=[\w)\]] )\*(?= [\w(&])", ["+"]),
    ("arithmetic", r"(?<=[\w)\]] )/(?= [\w(&])", ["*"]),
    ("arithmetic", r"(?<=[\w)\]] )%(?= [\w(&])", ["/"]),
    ("arithmetic", r"\+\+", ["--"]),
    ("arithmetic", r"(?<=\s)\+=(?=\s)", ["-=", "="]),
    ("arithmetic", r"(?<=\s)-=(?=\s)", ["+="]),
    ("bits", r"(?<=[\w)\]] )&(?= [\w(~])", ["|"]),
    ("bits", r"(?<=[\w)\]] )\|(?= [\w(~])", ["&"]),
    ("bits", r"(?<=\s)<<(?=\s)", [">>"]),
    ("bits", r"(?<=\s)>>(?=\s)", ["<<"]),
    ("bits", r"(?<=\s)\|=(?=\s)", ["&=", "="]),
    ("constant", r"\btrue\b", ["false"]),
    ("constant", r"\bfalse\b", ["true"]),
]

NUMBER = re.compile(r"(?<![\w.])(\d+)([uU]?[lL]{0,2})(?![\w.])")
CONDITION = re.compile(r"\b(?:if|while) \(")
# One statement that is a call or an assignment: no declaration, no jump.
STATEMENT = re.compile(
    r"^[ \t]+(?!return\b|break\b|continue\b|goto\b|case\b|default\b|else\b|if\b|for\b|while\b|do\b|"
    r"switch\b|static\b|const\b)(?:\(void\))?[*(]*[\w.>\-\[\]]+(?:\([^;{}]*\)|"
    r" (?:=|\+=|-=|\|=|&=|\*=) [^;{}]*|\+\+|--);",
    re.M,
)


def closing(code, start):
    """The offset of the parenthesis that closes the one before [start]."""
    depth = 1
    for at in range(start, len(code)):
        depth += {"(": 1, ")": -1}.get(code[at], 0)
        if depth == 0:
            return at
    return -1


def changes(code, text, start, end):
    """(start, end, new, operator) of all changes of one function's body."""
    for operator, pattern, replacements in SWAPS:
        for match in re.compile(pattern).finditer(code, start, end):
            for new in replacements:
                yield match.start(), match.end(), new, operator
    for match in NUMBER.finditer(code, start, end):
        value = int(match.group(1))
        for other in {value + 1, max(value - 1, 0)} - {value}:
            yield match.start(), match.end(), f"{other}{match.group(2)}", "constant"
    for match in CONDITION.finditer(code, start, end):
        last = closing(code, match.end())
        if last > 0:
            inner = text[match.end() : last]
            yield match.end(), last, f"!({inner})", "condition"
    for match in STATEMENT.finditer(code, start, end):
        statement = match.group().lstrip()
        if statement.startswith("assert"):
            continue
        yield match.end() - len(statement), match.end(), ";", "statement"


def on_one_line(text, start, end, new):
    first = text.rfind("\n", 0, start) + 1
    last = text.find("\n", end)
    before, after = text[first:last], text[first:start] + new + text[end:last]
    return " ".join(before.split()), " ".join(after.split())


def mutants_of(path, text):
    """All mutants of a file, in a fixed order."""
    code = code_only(text)
    found = []
    for start, end in bodies(code):
        for at, to, new, operator in changes(code, text, start, end):
            line_start = text.rfind("\n", 0, at) + 1
            if "assert(" in code[line_start:to]:
                continue
            before, after = on_one_line(text, at, to, new)
            line = text.count("\n", 0, at) + 1
            found.append(Mutant(path, at, to, new, operator, line, before, after))
    return sorted(found, key=lambda mutant: (mutant.start, mutant.end, mutant.new))
