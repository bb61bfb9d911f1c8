"""The man pages say what the programs' --help-all or --help says: the same options, commands and words."""

import os
import re
import shutil
import subprocess
import unittest

BIN = os.environ["FEDGE_BIN_DIR"]
MAN = os.path.join(os.environ["FEDGE_BINARY_DIR"], "man")
COMMANDS = {
    "fedge-aggregator": (),
    "fedge-client": (),
    "fedge-keys": ("ca", "request", "sign", "install", "renew", "list", "revoke", "activate", "demo"),
    "fedge-simulate": ("compare", "generate", "model"),
}
PATIENCE_S = 600


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_S)


def help_of(*command):
    text = run(*command, "--help").stdout
    return run(*command, "--help-all").stdout if "--help-all" in text else text


def plain(page):
    """A page's text without what sets it."""
    lines = [re.sub(r"^\.(TP|PP)$|^\.S[HS] ", "", line) for line in page.splitlines() if not line.startswith(".TH")]
    text = re.sub(r"\\f[BR]|\\&", "", "\n".join(lines))
    return text.replace("\\-", "-").replace("\\(aq", "'").replace("\\e", "\\")


def words(text):
    return re.findall(r"[^\s\[\]]+", text)


class ManPages(unittest.TestCase):
    def pages(self):
        for program, commands in COMMANDS.items():
            with open(os.path.join(MAN, f"{program}.1"), encoding="utf-8") as file:
                yield program, commands, file.read()

    def test_they_have_every_option_and_no_other(self):
        for program, commands, page in self.pages():
            helps = [help_of(f"{BIN}/{program}", *command) for command in ((), *((c,) for c in commands))]
            for text, part in zip(helps, plain(page).split("\"COMMAND ")):
                said = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", part))
                with self.subTest(f"{program}: {text.splitlines()[0]}"):
                    self.assertEqual(said, set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)))

    def test_they_have_every_word_of_the_help(self):
        for program, commands, page in self.pages():
            there = words(plain(page))
            for command in ((), *((c,) for c in commands)):
                text = help_of(f"{BIN}/{program}", *command)
                said = words(re.sub(r"Usage: |Signals:|Exit( status)?:", "", text))
                with self.subTest(f"{program} {' '.join(command)}"):
                    self.assertEqual([word for word in said if word not in there], [])

    def test_each_option_is_an_entry_of_its_own(self):
        for program, _, page in self.pages():
            entries = re.findall(r"^\.TP\n\\fB\\-", page, re.MULTILINE)
            with self.subTest(program):
                self.assertGreaterEqual(len(entries), 2)
                self.assertNotRegex(page, r"(?m)^(?!\.TP\n).*\n\\fB\\-")

    def test_they_are_well_formed(self):
        if not shutil.which("groff"):
            self.skipTest("groff is not installed")
        for program in COMMANDS:
            done = run("groff", "-man", "-Kutf8", "-Tutf8", "-ww", "-z", os.path.join(MAN, f"{program}.1"))
            with self.subTest(program):
                self.assertEqual(done.stderr, "")


if __name__ == "__main__":
    unittest.main()
