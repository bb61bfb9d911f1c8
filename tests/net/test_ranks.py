"""One aggregator on several ranks: what comes of a run is what one process makes of it."""

import unittest

import harness
from ranks import Ranks


class RanksTest(harness.NetTest):
    def ranks(self, count, **options):
        made = Ranks(**options)
        made.ranks = count
        self._federations.append(made)
        return made

    def play(self, made):
        made.start_aggregator()
        made.start_clients()
        return made.complete()

    def test_quickstart(self):
        job = {"clients": 8, "rounds__num_server_rounds": 2, "rounds__min_train_nodes": 8}
        alone = self.play(self.federation(**job))
        together = self.ranks(2, **job)
        result = self.play(together)
        self.assertEqual(result["model_sha256"], alone["model_sha256"])
        said = [line["rank"] for line in together.aggregator.events("listening")]
        self.assertEqual(sorted(said), [0, 1])
        # Four clients a rank; each rank has logged its own.
        self.assertEqual(len(together.aggregator.events("client-connected")), 8)


if __name__ == "__main__":
    unittest.main()
