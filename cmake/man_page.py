"""Writes a program's man page, made of its --help-all or --help: man_page.py PROGRAM OUTPUT RELEASE [COMMAND...]

[COMMAND...]: the program's commands whose own --help is part of the page.
"""

import os
import re
import subprocess
import sys

# What a paragraph after the options begins with, and the heading that it goes under.
HEADINGS = {"Signals:": "SIGNALS", "Exit:": "EXIT STATUS", "Exit status:": "EXIT STATUS"}
OPTION = r"(?<![\w-])--?[A-Za-z][\w-]*"
PROGRAMS = ("fedge-aggregator", "fedge-client", "fedge-keys", "fedge-simulate")


def help_of(command):
    def run(option):
        return subprocess.run([*command, option], check=True, capture_output=True, text=True).stdout
    text = run("--help")
    return (run("--help-all") if "--help-all" in text else text).splitlines()


def roff(text, bold=r"(?!)"):
    """[bold]: what is to be set in bold."""
    pieces = re.split(f"({bold})", text.replace("\\", "\\e").replace("'", "\\(aq"))
    pieces[1::2] = [f"\\fB{piece}\\fR" for piece in pieces[1::2]]
    text = "".join(pieces).replace("-", "\\-")
    return f"\\&{text}" if text.startswith(".") else text


def split_usage(lines):
    """The commands after "Usage:", each on one line, and the lines after them."""
    usage = [lines[0].removeprefix("Usage: ")]
    end = 1
    while end < len(lines) and lines[end].startswith("       "):
        text = lines[end].strip()
        if text.startswith("fedge-"):
            usage.append(text)
        else:
            usage[-1] += f" {text}"
        end += 1
    return usage, lines[end:]


def blocks_of(lines):
    """("text", words), ("item", name, words) and ("end",) for an empty line, in their order."""
    blocks = []
    for line in lines:
        indent = len(line) - len(line.lstrip())
        text = line.strip()
        item = re.match(r"(\S.*?)(?:  +(\S.*))?$", text)
        follows = blocks[-1][0] if blocks else "end"
        if not text:
            blocks.append(["end"])
        elif indent == 0 or text.startswith(tuple(HEADINGS)):
            if follows == "text" and not text.startswith(tuple(HEADINGS)):
                blocks[-1][-1] += f" {text}"
            else:
                blocks.append(["text", text])
        elif indent <= 6 and (text.startswith("-") or item.group(2) or follows != "text"):
            blocks.append(["item", item.group(1), item.group(2) or ""])
        else:
            blocks[-1][-1] = f"{blocks[-1][-1]} {text}".strip()
    return [block for block in blocks if block[0] != "end"]


def body(blocks, section, heading):
    """[section]: under which the first text goes; [heading]: the macro for further sections."""
    page = []
    after_options = False
    for kind, *block in blocks:
        words = block[-1]
        wanted = section
        if kind == "item" and block[0].startswith("-"):
            wanted, after_options = "OPTIONS", True
        elif kind == "text":
            start = next((start for start in HEADINGS if words.startswith(start)), None)
            if start:
                wanted, words = HEADINGS[start], words.removeprefix(start).strip()
            elif after_options:
                wanted = "NOTES"
        if wanted != section:
            section = wanted
            page.append(f"{heading} {section}")
        if kind == "item":
            page += [".TP", roff(block[0], OPTION)]
            page += [roff(words)] if words else []
        else:
            page += [".PP", roff(words)]
    return page


def synopsis(usage):
    page = []
    for line in usage:
        page += [".PP", roff(line, r"^fedge-\S+(?: [a-z]+(?= |$))?")]
    return page


def page_of(program, release, commands):
    name = os.path.basename(program)
    usage, lines = split_usage(help_of([program]))
    blocks = blocks_of(lines)
    what = re.split(r"[.:]( |$)", next(words for kind, *_, words in blocks if kind == "text"))[0]
    page = [f'.TH {name.upper()} 1 "" "fedge {release}" "fedge"', ".SH NAME",
            f"{roff(name)} \\- {roff(what[0].lower() + what[1:])}", ".SH SYNOPSIS", *synopsis(usage),
            ".SH DESCRIPTION", *body(blocks, "DESCRIPTION", ".SH")]
    for command in commands:
        usage, lines = split_usage(help_of([program, command]))
        page += [f'.SH "COMMAND {command.upper()}"', *synopsis(usage), *body(blocks_of(lines), "", ".SS")]
    others = ", ".join(f"\\fB{roff(other)}\\fR(1)" for other in PROGRAMS if other != name)
    return "\n".join([*page, '.SH "SEE ALSO"', others, ""])


if __name__ == "__main__":
    text = page_of(sys.argv[1], sys.argv[3], sys.argv[4:])
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(text)
