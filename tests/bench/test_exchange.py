"""federation.sh's exchange with one client at a time: a small model goes through, one that has no room is refused."""

import json
import os
import resource
import subprocess
import sys
import unittest

CLIENTS = 6
MOST = 1 << 26  # bytes of a file, should what has no room be tried
SCRIPT = os.path.join(os.environ["FEDGE_SOURCE_DIR"], "tests", "bench", "federation.py")


class OneAtATime(unittest.TestCase):
    def exchange(self, parameters):
        return subprocess.run(
            [sys.executable, "-B", SCRIPT, "--json", "exchange"], capture_output=True, text=True,
            timeout=550 * (5 if os.environ.get("FEDGE_SANITIZE") else 1), check=False, env={**os.environ, "FEDGE_BENCH_ONE_AT_A_TIME": "1", "FEDGE_BENCH_PARAMETERS": str(parameters)},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (MOST, MOST)))

    def test_a_small_model(self):
        parameters = 600_000
        done = self.exchange(parameters)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        start = f"{CLIENTS} clients one after another, {parameters:,} parameters, none: "
        self.assertEqual([row["case"] for row in rows if not row["case"].startswith(start)], [])
        value = {row["case"][len(start):]: row["value"] for row in rows}
        # Each change has come once, each model went out once.
        for name in ("received", "sent"):
            self.assertGreaterEqual(value[name], CLIENTS * 4 * parameters)
            self.assertLess(value[name], (CLIENTS + 1) * 4 * parameters)
        # Of what lies within the round and does not overlap the sum is no longer than the round.
        self.assertLessEqual(value["from start to acknowledgement, all clients' together"],
                             value["the first's start to the round's end"] + 0.01)
        self.assertGreater(value["aggregator, peak (VmHWM)"], value["aggregator before the first client"])
        for name in ("aggregator", "all", "aggregator after a round (VmRSS)", "a client, peak"):
            self.assertGreater(value[name], 0)
        for name in ("aggregator, written in a round", "a client, written in a round, the most"):
            self.assertGreaterEqual(value[name], 0)  # nothing, in memory

    def test_no_room(self):
        done = self.exchange(10 ** 13)
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        self.assertIn("10,000,000,000,000 parameters need 250000.3 GB of memory and 400000.3 GB in ", done.stderr)


if __name__ == "__main__":
    unittest.main()
