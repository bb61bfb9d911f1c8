"""What protects the programs is read from the programs: fedge's own code, libwebsockets and mbedTLS have all of it."""

import os
import re
import subprocess
import unittest

BIN = os.environ["FEDGE_BIN_DIR"]
PROGRAMS = ("fedge-aggregator", "fedge-client", "fedge-keys")
# Whose code a function is, by its name.
OWNERS = {"fedge": "fedge_", "libwebsockets": "lws_", "mbedTLS": "mbedtls_"}


def out(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def owner(function):
    return next((name for name, prefix in OWNERS.items() if function.startswith(prefix)), None)


class Hardening(unittest.TestCase):
    def test_code(self):
        """Calls of the stack protector and of FORTIFY in each library's functions; on x86-64, each function that
        others can call begins with the mark of control-flow protection."""
        program = os.path.join(BIN, "fedge-aggregator")
        is_global = {line.split()[-1] for line in out("nm", "--defined-only", program).splitlines() if " T " in line}
        x86_64 = os.uname().machine == "x86_64"
        stack, fortified, seen, bare = set(), set(), set(), []
        function = first = None
        for line in out("objdump", "-d", "--no-show-raw-insn", program).splitlines():
            if line.endswith(">:"):
                function = first = line[line.index("<") + 1:-2]
                if function in is_global and owner(function):
                    seen.add(owner(function))
                continue
            if x86_64 and first in is_global and owner(first) and "endbr64" not in line:
                bare.append(first)
            first = None
            if "_chk" in line and function:
                called = re.search(r"<__([a-z]+)_chk(_fail)?@", line)
                if called:
                    (stack if called[1] == "stack" else fortified).add(owner(function))
        self.assertEqual(seen, set(OWNERS))
        self.assertEqual(stack - {None}, set(OWNERS), "without -fstack-protector-strong")
        self.assertEqual(fortified - {None}, set(OWNERS), "without _FORTIFY_SOURCE")
        self.assertFalse(bare[:10], "without -fcf-protection")

    def test_link(self):
        """Addresses are random, and what the start of a program has written is read-only after it."""
        for name in PROGRAMS:
            program = os.path.join(BIN, name)
            with self.subTest(program=name):
                self.assertRegex(out("readelf", "-hW", program), r"Type:\s+DYN")
                self.assertRegex(out("readelf", "-dW", program), r"FLAGS_1.*\bNOW\b")
                segments = out("readelf", "-lW", program)
                self.assertIn("GNU_RELRO", segments)
                self.assertRegex(segments, r"GNU_STACK.* RW ")


if __name__ == "__main__":
    unittest.main(verbosity=2)
