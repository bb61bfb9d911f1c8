"""Strategies of the tests, one for each name in the environment variable STRATEGY; a server runs this file."""

import os
import signal
import sys
import time

import numpy as np

import fedge

NAME = os.environ["STRATEGY"]


def once(mark):
    """Whether this is the first process to come here."""
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False


def misbehave(round):
    if NAME == "Killed" and round.number == 2 and once("killed"):
        round.model[:] = 7
        round.vectors[0][:] = 7
        os.kill(os.getpid(), signal.SIGKILL)
    if NAME == "Late" and round.number == 2 and once("late"):
        round.model[:] = 7
        time.sleep(3600)
    if NAME == "Dead":
        print("out of luck")
        sys.stdout.flush()
        os._exit(5)
    if NAME == "Raise":
        raise ValueError("no such thing")
    if NAME == "Slow":
        open(f"step-{round.number}", "x", encoding="ascii").close()
        while os.path.exists("wait") and round.number == 3:
            time.sleep(0.01)


if NAME == "Mean":
    strategy = fedge.Strategy("Mean")  # the default step

    @fedge.evaluate
    def evaluate(model, round):
        weight = model["0.weight"]
        return {"round": round, "largest": float(np.abs(weight).max()), "nothing": np.nan}
elif NAME.startswith("Evaluate"):
    @fedge.evaluate
    def wrong(model, round):
        if NAME == "EvaluateWrite":
            model["0.weight"][:] = 0
        return {"EvaluateText": {"a": "x"}, "EvaluateList": [1], "EvaluateName": {"Top 5": 1},
                "EvaluateMany": {f"m{i}": i for i in range(17)}}[NAME]
elif NAME.startswith("Combine"):
    strategy = fedge.Strategy("Median")

    @strategy.combine
    def shape(tile):
        return {"CombineShape": tile.updates, "CombineText": "x"}[NAME]
elif NAME.startswith("Weight"):
    strategy = fedge.Strategy("Mean")

    @strategy.weight
    def weight(update):
        assert update.round >= 1 and update.client >= 0 and update.max_weight > 1
        return {"WeightExamples": update.num_examples, "WeightOne": 0, "WeightClient": 9 * update.client + 1, "WeightNothing": np.nan}[NAME]
elif NAME == "Equal":
    strategy = fedge.Strategy("Mean", equal_weights=True)
elif NAME == "Median":
    strategy = fedge.Strategy("Median", equal_weights=True)

    @strategy.combine
    def median(tile):
        assert tile.updates.shape == tile.integers.shape and len(tile.clients) == len(tile.num_examples)
        return np.median(tile.updates, axis=0)
elif NAME == "Accuracy":
    examples = np.load("test-values.npy"), np.load("test-labels.npy")

    @fedge.evaluate
    def accuracy(model, round):
        scores = examples[0] @ model["0.weight"].T + model["0.bias"]
        return {"accuracy": (scores.argmax(axis=1) == examples[1]).mean(), "half": 0.5}
else:
    strategy = fedge.Strategy("Momentum", arguments={"beta": (0, 0.9999), "unused": (-1, 1, 0.5)}, vectors=1)

    @strategy.step
    def momentum(round):
        misbehave(round)
        assert round.arguments["unused"] == 0.5 and round.num_updates == len(round.clients) == 3
        tensors = round.tensors(round.model)
        assert tensors["0.weight"].ndim == 2 and np.shares_memory(tensors["0.weight"], round.model)
        v = round.vectors[0]
        v[:] = round.arguments["beta"] * v.astype(np.float64) + round.mean
        round.move(v)
