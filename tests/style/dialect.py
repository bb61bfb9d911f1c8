"""The tokens of C, and the choices of test_dialect.py: where each is not kept, and the edits that keep it."""

import bisect
import collections
import re

TOKEN = re.compile(r"""
    (?P<space>(?:\s|\\\n)+)
  | (?P<comment>//[^\n]*|/\*.*?\*/)
  | (?P<text>(?:u8|[uUL])?"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
  | (?P<word>[A-Za-z_]\w*)
  | (?P<number>\.?\d(?:[eEpP][+-]|[\w.])*)
  | (?P<sign>->|\+\+|--|<<=|>>=|<<|>>|<=|>=|==|!=|&&|\|\||\.\.\.|[-+*/%&|^]=|\#\#|.)
""", re.X | re.S)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\/]|\\\n|\\.|/(?!\*)|/\*.*?\*/)*", re.M | re.S)
CLOSES = {")": "(", "]": "[", "}": "{"}
# What may stand before an operand; after anything else a "*" or "&" has two of them.
BEFORE_OPERAND = set("( { [ ; , && || ! = ? : return == != += -= < > <= >= + - / % | ^ case else do }".split())

Token = collections.namedtuple("Token", "kind text start end line last_line directive")
Fault = collections.namedtuple("Fault", "line what edits")  # edits: (start, end, text), none: by hand


class Source:
    """Tokens without white space; [code]: the places of those that are neither comments nor of directives."""

    def __init__(self, text):
        self.text = text
        self.ends = [match.start() for match in re.finditer("\n", text)]
        directives = [match.span() for match in DIRECTIVE.finditer(text)]
        self.tokens = []
        at = number = 0
        while at < len(text):
            match = TOKEN.match(text, at)
            at = match.end()
            if match.lastgroup == "space":
                continue
            start = match.start()
            while number < len(directives) and directives[number][1] <= start:
                number += 1
            inside = number < len(directives) and directives[number][0] <= start
            self.tokens.append(Token(match.lastgroup, match[0], start, at, self.line_of(start),
                                     self.line_of(at - 1), inside))
        self.code = [t for t in self.tokens if t.kind != "comment" and not t.directive]
        self.all_code = [t for t in self.tokens if t.kind != "comment"]

    def line_of(self, place):
        return bisect.bisect_left(self.ends, place) + 1

    def others(self, start, end):
        """Comments and directives between two places."""
        first = bisect.bisect_left(self.tokens, start, key=lambda t: t.start)
        found = []
        for token in self.tokens[first:]:
            if token.start >= end:
                break
            if token.kind == "comment" or token.directive:
                found.append(token)
        return found


def pairs(tokens):
    """The place of the other bracket for each one; what does not match is left out."""
    found, stack = {}, []
    for place, token in enumerate(tokens):
        if token.kind != "sign":
            continue
        if token.text in "([{":
            stack.append(place)
        elif token.text in CLOSES:
            if stack and tokens[stack[-1]].text == CLOSES[token.text]:
                found[place] = stack[-1]
                found[stack.pop()] = place
    return found


# ---- braces ------------------------------------------------------------------------------------


class Branches:
    def __init__(self, source):
        self.source = source
        self.tokens = source.code
        self.pairs = pairs(self.tokens)

    def text(self, place):
        return self.tokens[place].text if place < len(self.tokens) else ""

    def after_condition(self, place):
        """Past the parentheses that follow a keyword."""
        if self.text(place + 1) != "(" or place + 1 not in self.pairs:
            raise IndexError
        return self.pairs[place + 1] + 1

    def end(self, place):
        """Past the statement that begins here."""
        word = self.text(place)
        if word == "{":
            return self.pairs[place] + 1
        if word == "if":
            past = self.end(self.after_condition(place))
            return self.end(past + 1) if self.text(past) == "else" else past
        if word in ("for", "while", "switch"):
            return self.end(self.after_condition(place))
        if word == "do":
            return self.after_condition(self.end(place + 1)) + 1
        while place < len(self.tokens):
            if self.text(place) == ";":
                return place + 1
            if self.text(place) == "}":
                break
            place = self.pairs[place] + 1 if self.text(place) in ("(", "[", "{") else place + 1
        raise IndexError

    def chains(self):
        """For each if, for and while the (place before, first, past the last) of its bodies."""
        tails = set()
        for place, token in enumerate(self.tokens):
            try:
                if token.text == "do" and token.kind == "word":
                    tails.add(self.end(place + 1))
                elif token.text in ("for", "while") and token.kind == "word" and place not in tails:
                    first = self.after_condition(place)
                    yield [(first - 1, first, self.end(first))]
                elif token.text == "if" and self.text(place - 1) != "else":
                    yield list(self.bodies(place))
            except (IndexError, KeyError):
                continue  # a macro makes it what it is

    def bodies(self, place):
        first = self.after_condition(place)
        past = self.end(first)
        yield first - 1, first, past
        if self.text(past) != "else":
            return
        if self.text(past + 1) == "if":
            yield from self.bodies(past + 1)
        else:
            yield past, past + 1, self.end(past + 1)

    def is_short(self, before, first, past):
        """One statement on one line, with nothing else but a comment at its end."""
        if self.text(first) == "{":
            inner, beyond = first + 1, past - 1
            if inner == beyond or self.text(inner) in ("{", "if", "for", "while", "do", "switch"):
                return False
            try:
                if self.end(inner) != beyond or self.is_declaration(inner):
                    return False
            except (IndexError, KeyError):
                return False
        else:
            inner, beyond = first, past
        line = self.tokens[inner].line
        if self.tokens[beyond - 1].last_line != line:
            return False
        end = self.tokens[past].start if past < len(self.tokens) and self.text(first) != "{" else \
            self.tokens[past - 1].end
        aside = [t for t in self.source.others(self.tokens[before].end, end)
                 if t.line <= line or self.text(first) == "{"]
        return all(t.kind == "comment" and t.start > self.tokens[inner].start and t.last_line == line for t in aside)

    def is_declaration(self, place):
        return self.tokens[place].kind == "word" and self.text(place) not in ("return", "goto") and (
            self.tokens[place + 1].kind == "word")

    def faults(self):
        for chain in self.chains():
            wanted = not all(self.is_short(*body) for body in chain)
            for before, first, past in chain:
                if self.text(first) == ";" or (self.text(first) == "{") == wanted:
                    continue
                line = self.tokens[before].line
                if wanted:
                    yield Fault(line, "braces are missing: a body of more than one line, or one beside it",
                                self.added(before, past))
                else:
                    yield Fault(line, "braces around what is one line, as the bodies beside it",
                                self.removed(first, past - 1))

    def added(self, before, past):
        end = self.tokens[past - 1].end
        for token in self.source.tokens[bisect.bisect_left(self.source.tokens, end, key=lambda t: t.start):]:
            if token.kind != "comment" or token.line != self.tokens[past - 1].last_line:
                break
            end = token.end
        return [(self.tokens[before].end,) * 2 + (" {",), (end, end, "\n}")]

    def removed(self, opening, closing):
        text, token = self.source.text, self.tokens[closing]
        start, end = token.start, token.end
        line_start = text.rfind("\n", 0, start) + 1
        line_end = text.find("\n", end)
        if not text[line_start:start].strip() and not text[end:line_end].strip():
            start, end = line_start, line_end + 1
        return [(self.tokens[opening].start, self.tokens[opening].end, ""), (start, end, "")]


# ---- NULL --------------------------------------------------------------------------------------


def operand_before(tokens, matching, place):
    """The place where the operand that ends here begins; None when it is of a kind that is not looked at."""
    while True:
        token = tokens[place]
        if token.text in (")", "]"):
            if place not in matching:
                return None
            opening = matching[place]
            called = opening and (tokens[opening - 1].kind == "word" or tokens[opening - 1].text in (")", "]"))
            if called and tokens[opening - 1].text not in ("return", "if", "while"):
                place = opening - 1
                continue
            place = opening
        elif token.kind != "word":
            return None
        if place and tokens[place - 1].text in (".", "->"):
            place -= 2
            continue
        break
    while place > 1 and tokens[place - 1].text in ("*", "&") and tokens[place - 2].text in BEFORE_OPERAND:
        place -= 1
    return place


def is_condition(tokens, matching, first, after):
    """Whether what lies from first to before after is asked for being true, with no other use of its value."""
    before = tokens[first - 1].text
    following = tokens[after].text
    if following in ("==", "!="):
        return False
    if before in ("&&", "||") or following in ("&&", "||", "?"):
        return True
    if before == "(" and following == ")" and matching.get(first - 1) == after:
        return tokens[first - 2].text in ("if", "while", "assert")
    return False


def null_faults(source):
    tokens = source.all_code
    matching = pairs(tokens)
    for place, token in enumerate(tokens):
        if token.text not in ("==", "!=") or place + 2 >= len(tokens) or tokens[place + 1].text != "NULL":
            continue
        first = operand_before(tokens, matching, place - 1)
        known = first is not None and first > 0 and tokens[first - 1].text in BEFORE_OPERAND - {"!"}
        cut = (tokens[place - 1].end, tokens[place + 1].end, "")
        if token.text == "==":
            edits = [(tokens[first].start,) * 2 + ("!",), cut] if known else []
            yield Fault(token.line, "\"== NULL\": write !p", edits)
        elif known and is_condition(tokens, matching, first, place + 2):
            yield Fault(token.line, "\"!= NULL\" in a condition: write p", [cut])


# ---- sizeof ------------------------------------------------------------------------------------


def sizeof_faults(source):
    tokens = source.all_code
    matching = pairs(tokens)
    for place, token in enumerate(tokens):
        if token.text != "sizeof" or token.kind != "word" or tokens[place + 1].text == "(":
            continue
        last = place + 1
        while tokens[last].text in ("*", "&"):
            last += 1
        if tokens[last].text == "(":
            last = matching[last]
        while last + 1 < len(tokens):
            following = tokens[last + 1].text
            if following in ("(", "["):
                last = matching[last + 1]
            elif following in (".", "->"):
                last += 2
            else:
                break
        yield Fault(token.line, "\"sizeof x\": write sizeof(x)",
                    [(token.end, tokens[place + 1].start, "("), (tokens[last].end,) * 2 + (")",)])


# ---- asserts -----------------------------------------------------------------------------------


def assert_faults(source):
    for token in source.all_code:
        if token.text == "_Static_assert":
            yield Fault(token.line, "\"_Static_assert\": write static_assert, of <assert.h>",
                        [(token.start, token.end, "static_assert")])


# ---- statuses ----------------------------------------------------------------------------------


def statuses_in(tokens):
    """The names of the variables of type fedge_status."""
    return {"status"} | {after.text for before, after in zip(tokens, tokens[1:])
                         if before.text == "fedge_status" and after.kind == "word"}


class Guard:
    """An if without else that asks for a status alone: [name], whether its body [first, past) runs when it [failed]."""

    def __init__(self, branches, place, names):
        self.branches = branches
        opening, closing = place + 1, branches.pairs[place + 1]
        condition = [t.text for t in branches.tokens[opening + 1:closing]]
        self.assigned = None  # if ((status = call) != FEDGE_OK)
        if condition[:1] == ["("] and condition[2:3] == ["="] and branches.pairs[opening + 1] == closing - 3:
            condition = [condition[1]] + condition[-2:]
            self.assigned = condition[0]
        if len(condition) == 3 and condition[0] == "FEDGE_OK":
            condition.reverse()
        self.name = condition[-1] if len(condition) < 3 else condition[0]
        self.failed = len(condition) == 1 or condition[1:] == ["!=", "FEDGE_OK"]
        plain = len(condition) == 1 or condition[:-1] == ["!"] or condition[1:] in (["!=", "FEDGE_OK"], ["==", "FEDGE_OK"])
        first = closing + 1
        past = branches.end(first)
        self.is_one = plain and self.name in names and branches.text(past) != "else"
        if branches.text(first) == "{":
            first, past = first + 1, past - 1
        self.body = [t.text for t in branches.tokens[first:past]]


def assigned_before(tokens, place):
    """The variable that the statement before this place gives a value; None: it does something else."""
    start = place - 1
    while start > 0 and tokens[start - 1].text not in (";", "{", "}", ":") or tokens[start - 1].text == ":" and (
            "?" in [t.text for t in tokens[max(0, start - 40):start]]):
        start -= 1
    words = [t.text for t in tokens[start:place]]
    if "=" not in words or words[-1] != ";":
        return None
    left = words[:words.index("=")]
    return left[-1] if left in ([left[-1]], ["fedge_status", left[-1]], ["const", "fedge_status", left[-1]]) else None


def status_faults(source):
    """A status that is passed on by hand."""
    branches = Branches(source)
    tokens = branches.tokens
    names = statuses_in(tokens)
    for place, token in enumerate(tokens):
        if token.text != "if" or token.kind != "word" or not place or tokens[place - 1].text == "else":
            continue
        try:
            guard = Guard(branches, place, names)
        except (IndexError, KeyError):
            continue  # a macro makes it what it is
        if not guard.is_one:
            continue
        if guard.failed and guard.name == (guard.assigned or assigned_before(tokens, place)):
            if guard.body == ["return", guard.name, ";"]:
                yield Fault(token.line, "a failed call's status is returned: write FEDGE_TRY(call)", [])
            elif guard.body[:1] == ["goto"] and guard.name == "status":
                yield Fault(token.line, "a failed call's status goes to a label: write FEDGE_TRY_OR(call, label)", [])
        elif not guard.failed and guard.body[:2] == [guard.name, "="] and guard.body.count(";") == 1:
            yield Fault(token.line, "a guard chains the next call: write FEDGE_TRY or FEDGE_TRY_OR", [])


# ---- parameters --------------------------------------------------------------------------------

MOST_PARAMETERS = 8


def parameter_faults(source, allowed=()):
    """Functions of too many parameters, but for those allowed and for kernels: their arguments are a launch's."""
    tokens = source.code
    matching = pairs(tokens)
    place = head = 0
    while place < len(tokens):
        text = tokens[place].text
        if text in (";", "}") or text == "{" and tokens[place - 1].kind == "text":  # extern "C" {
            head = place + 1
        elif text == "{":
            place = matching.get(place, place)
            head = place + 1
        elif text == "(" and place in matching:
            closing = matching[place]
            called = tokens[place - 1]
            words = [t.text for t in tokens[head:place]]
            if called.kind == "word" and called.text not in allowed and len(words) > 1 and not (
                    {"typedef", "__global__", "="} & set(words)):
                depth = commas = 0
                for token in tokens[place + 1:closing]:
                    depth += (token.text in ("(", "[", "{")) - (token.text in (")", "]", "}"))
                    commas += token.text == "," and depth == 0
                if commas >= MOST_PARAMETERS:
                    yield Fault(called.line, f"{called.text} has {commas + 1} parameters: "
                                f"more than {MOST_PARAMETERS} are a struct", [])
            place = closing
        place += 1


def faults_of(source):
    return [*Branches(source).faults(), *null_faults(source), *sizeof_faults(source), *assert_faults(source)]


def mended(text):
    """The text with all edits; they are made by clang-format what they should look like."""
    edits = sorted((edit for fault in faults_of(Source(text)) for edit in fault.edits), key=lambda edit: edit[:2])
    parts, at = [], 0
    for start, end, new in edits:
        parts += [text[at:start], new]
        at = max(at, end)
    return "".join(parts) + text[at:]
