"""libexec/fedge/start-ranks, beside an mpirun that says what it was given and fails for some machines."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

SCRIPT = os.path.join(os.environ["FEDGE_BINARY_DIR"], "libexec", "fedge", "start-ranks")
PATIENCE_S = 600
AT_ONCE = 16  # as the script has it
# In place of the real one: machine "gone" never answers, "shut" refuses, and "later" answers once it may.
MPIRUN = """#!/bin/sh
case "$2" in
gone:1) exec sleep 600 ;;
shut:1) exit 1 ;;
later:1) [ -e may ]; exit ;;
FEDGE_SUPERVISED) printf '%s\\n' "$*" >started; exec cat "$4" /proc/self/status ;;
esac
"""


class StartRanks(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="fedge-start-ranks-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.temporary = self.place("tmp")
        os.mkdir(self.temporary)
        self.write("mpirun", MPIRUN)
        os.chmod(self.place("mpirun"), 0o755)
        self.environment = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}", "TMPDIR": self.temporary,
                            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def place(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.place(name), "w", encoding="ascii") as file:
            file.write(text)

    def begin(self, *words):
        script = subprocess.Popen([SCRIPT, *words], cwd=self.folder, env=self.environment, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        self.addCleanup(script.stdout.close)
        self.addCleanup(script.stderr.close)
        return script

    def run_script(self, *words):
        """Its exit code, what it said, and what mpirun wrote."""
        script = self.begin(*words)
        out, said = script.communicate(timeout=PATIENCE_S)
        self.assertEqual(os.listdir(self.temporary), [])
        return script.returncode, said, out

    def started(self):
        with open(self.place("started"), encoding="ascii") as file:
            return file.read().rstrip("\n")

    def test_who_does_not_answer_is_left_out(self):
        self.write("hosts", "# mine\none slots=2\n\ngone\nshut slots=3\n  two # last")
        code, said, out = self.run_script("run", "hosts", "1", "", "program", "--job", "a file")
        self.assertEqual(code, 0)
        self.assertEqual(said, "".join(f"fedge-aggregator: {name} does not answer; it is left out\n"
                                       for name in ("gone", "shut")))
        self.assertTrue(out.startswith("one slots=2\n  two # last\nName:"), out)
        self.assertEqual(self.started(), "-x FEDGE_SUPERVISED --hostfile /proc/self/fd/9 program --job a file")

    def test_the_file_itself_where_all_answer(self):
        self.write("hosts", "".join(f"m{i}\n" for i in range(2 * AT_ONCE + 1)))
        code, said, _ = self.run_script("run", "hosts", "1", "", "program")
        self.assertEqual((code, said), (0, ""))
        self.assertEqual(self.started(), "-x FEDGE_SUPERVISED --hostfile hosts program")

    def test_nothing_is_probed_at_the_first_start(self):
        self.write("hosts", "one\nshut\n")
        code, said, out = self.run_script("run", "hosts", "0", "--drain", "program")
        self.assertEqual((code, said), (0, ""))
        self.assertEqual(self.started(), "-x FEDGE_SUPERVISED --hostfile hosts program --drain")
        # mpirun is not reached by a HUP.
        blocked = int(next(line for line in out.split("\n") if line.startswith("SigBlk:")).split()[1], 16)
        self.assertTrue(blocked >> (signal.SIGHUP - 1) & 1)

    def until_it_says(self, script, words):
        line = script.stderr.readline()
        while words not in line:
            self.assertTrue(line, f"it ended and did not say {words}")
            line = script.stderr.readline()

    def test_the_first_machine_has_the_run(self):
        """It is waited for; a signal ends the pause, and the ranks begin by draining."""
        self.write("hosts", "later\none\n")
        script = self.begin("run", "hosts", "3", "", "program")
        for pause_s in (1, 2):
            self.until_it_says(script, "later does not answer; it is left out")
            self.until_it_says(script, "later, the first machine of hosts, has the run: start it, or change the file; "
                               f"trying again in {pause_s} s")
        self.assertFalse(os.path.exists(self.place("started")))
        self.write("may", "")
        script.send_signal(signal.SIGUSR1)
        self.assertEqual(script.wait(PATIENCE_S), 0)
        self.assertEqual(self.started(), "-x FEDGE_SUPERVISED --hostfile hosts program --drain")

    def test_a_stop_ends_the_probes(self):
        self.write("hosts", "one\ngone\n")
        script = self.begin("run", "hosts", "1", "", "program")
        while "600" not in self.processes_of(script.pid):
            time.sleep(0.05)
        script.terminate()
        self.assertEqual(script.wait(PATIENCE_S), 143)
        while self.processes_of(script.pid):
            time.sleep(0.05)
        self.assertEqual(os.listdir(self.temporary), [])

    @staticmethod
    def processes_of(session):
        return subprocess.run(["ps", "-o", "args=", "-s", str(session)], stdout=subprocess.PIPE, text=True, check=False).stdout

    def test_what_is_refused(self):
        cases = (("a\nb slots=2\na slots=1\n", "hosts names a twice: give it one line, with slots=2"),
                 ("Big\nbig\n", "hosts names big twice: give it one line, with slots=2"),
                 ("\ta:2\na\r\n", "hosts names a twice: give it one line, with slots=2"),
                 ("# none\n \n", "hosts names no machine"),
                 ("a\n" + "# b\n" * 20000, "hosts has more than 65536 bytes"))
        for text, said in cases:
            with self.subTest(said):
                self.write("hosts", text)
                for words, more in (("check", "hosts"), ""), (("check", "hosts", "; so"), "; so"), (
                        ("run", "hosts", "0", "", "program"), ""):
                    self.assertEqual(self.run_script(*words), (3, f"fedge-aggregator: {said}{more}\n", ""))
        self.assertEqual(self.run_script("check", "none"), (3, "fedge-aggregator: none is no file\n", ""))
        self.write("hosts", "a\nb.a\n")
        self.assertEqual(self.run_script("check", "hosts"), (0, "", ""))

    def test_no_mpirun(self):
        self.write("hosts", "a\n")
        os.unlink(self.place("mpirun"))
        for name in ("awk", "grep", "id", "sh", "wc"):
            os.symlink(shutil.which(name), self.place(name))
        self.environment["PATH"] = self.folder
        self.assertEqual(self.run_script("run", "hosts", "0", "", "program"),
                         (3, "fedge-aggregator: cannot start mpirun: install openmpi-bin\n", ""))


if __name__ == "__main__":
    unittest.main()
