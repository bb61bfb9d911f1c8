"""One side of a comparison: a program that lives through it, so that both can take turns."""

import os
import subprocess


class Half:
    """A program that says what it is when it is ready, then answers each line that it reads with a line of numbers."""

    def __init__(self, command):
        env = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True)
        self.about = self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{' '.join(self.process.args)} ended early")
        return line.strip()

    def ask(self, what):
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()

    def turn(self, what):
        self.ask(what)
        return [float(number) for number in self.answer().split()]

    def close(self):
        self.process.stdin.close()
        self.process.wait()
