"""What is a mutant, and that its key stays when lines above it come and go."""

import unittest

from mutants import mutants_of

TEXT = """/* a < b */
int f(int a, int b)
{
    const char *s = "x == 1"; /* c && d */
    int n = a + 1;
    if (a < b && !n)
        return 3;
    assert(a > b);
    g(a, b);
    return n;
}
"""


class Mutants(unittest.TestCase):
    def lines(self, operator):
        return {m.after for m in mutants_of("x.c", TEXT) if m.operator == operator}

    def test_each_operator(self):
        self.assertEqual(self.lines("arithmetic"), {"int n = a - 1;"})
        self.assertEqual(
            self.lines("constant"),
            {"int n = a + 0;", "int n = a + 2;", "return 2;", "return 4;"},
        )
        self.assertEqual(self.lines("condition"), {"if (!(a < b && !n))"})
        self.assertEqual(self.lines("relation"), {"if (a <= b && !n)", "if (a >= b && !n)"})
        self.assertEqual(self.lines("logic"), {"if (a < b || !n)", "if (a < b && n)"})
        self.assertEqual(self.lines("statement"), {";"})

    def test_applied(self):
        removed = next(m for m in mutants_of("x.c", TEXT) if m.operator == "statement")
        self.assertEqual(removed.apply(TEXT), TEXT.replace("g(a, b);", ";"))
        self.assertEqual(removed.line, 9)

    def test_keys_do_not_count_lines(self):
        keys = [m.key for m in mutants_of("x.c", TEXT)]
        self.assertEqual(len(set(keys)), len(keys))
        self.assertEqual([m.key for m in mutants_of("x.c", "\n\n" + TEXT)], keys)
        self.assertNotEqual([m.key for m in mutants_of("y.c", TEXT)], keys)


if __name__ == "__main__":
    unittest.main()
