"""Linear models of scikit-learn as models of devices. Skipped where there is no scikit-learn (Debian: python3-sklearn)."""

import contextlib
import importlib.util
import io
import json
import os
import sys
import unittest
import warnings

import numpy as np
from python_client import PACKAGE, harness

sys.path.insert(0, PACKAGE)
FEATURES = 6


def points(labels, dtype, seed):
    """Points around their label's centre; each device lacks a label, unless there are two."""
    draw = np.random.default_rng(seed)
    centres = np.random.default_rng(1).normal(size=(labels, FEATURES)) * 3
    kept = [label for label in range(labels) if label != seed or labels == 2]
    y = draw.choice(kept, 200)
    return (centres[y] + draw.normal(size=(200, FEATURES))).astype(dtype), y


class Estimators(unittest.TestCase):
    def setUp(self):
        warnings.simplefilter("ignore")  # a few iterations do not converge

    def federated(self, make, train, labels, dtype, rounds=6):
        """Accuracy of the mean model of three devices, by the adapters of three clients, as rounds of the library use them."""
        from fedge import models
        devices = []
        for seed in range(3):
            model = make()
            train(model, *points(labels, dtype, 9))  # one batch sets the shapes
            devices.append((models.adapter_of(model), points(labels, dtype, seed)))
        mean = {tensor.name: np.zeros(np.shape(tensor.initial), np.float32) for tensor in models.tensors_of(devices[0][0].model)}
        for _ in range(rounds):
            results = []
            for adapter, data in devices:
                views = {name: array.copy() for name, array in mean.items()}
                adapter.check({name: array.shape for name, array in views.items()})
                train(adapter.attach(views), *adapter.batch(data))
                adapter.detach(views)
                adapter.release()
                results.append(views)
            mean = {name: np.mean([result[name] for result in results], axis=0) for name in mean}
        adapter, _ = devices[0]
        x, y = points(labels, dtype, 7)
        return np.mean(adapter.attach(mean).predict(*adapter.batch((x,))) == y)

    def test_models_that_are_not_linear(self):
        import fedge
        from sklearn.ensemble import RandomForestClassifier
        from sklearn.neural_network import MLPClassifier
        forest, x, y = RandomForestClassifier(2), *points(4, np.float32, 1)
        for model, message in ((MLPClassifier((5,)), "mlp.coefs_"), (MLPClassifier((5,), max_iter=1).fit(x, y), "mlp.coefs_"),
                               (forest.fit(x, y), "the linear ones work")):
            with self.assertRaisesRegex(fedge.Error, f"{type(model).__name__} has .*{message}"):
                fedge.Client(model)

    def test_the_arrays_of_a_network(self):
        """As the message says: arrays that are written into a network are what it predicts with and trains on."""
        from sklearn.neural_network import MLPClassifier
        x, y = points(4, np.float32, 9)
        one, other = (MLPClassifier((5,), random_state=seed).partial_fit(x, y, classes=range(4)) for seed in (1, 2))
        self.assertNotEqual(one.predict_proba(x).tolist(), other.predict_proba(x).tolist())
        for i in range(2):
            other.coefs_[i][...], other.intercepts_[i][...] = one.coefs_[i], one.intercepts_[i]
        self.assertEqual(one.predict_proba(x).tolist(), other.predict_proba(x).tolist())
        other.partial_fit(x, y)
        self.assertTrue(0 < np.abs(one.coefs_[0] - other.coefs_[0]).max() < 0.05)

    def test_sgd_learns_labels_that_a_device_lacks(self):
        from sklearn.linear_model import SGDClassifier
        for labels in (2, 4):
            for dtype in (np.float32, np.float64):
                with self.subTest(labels=labels, dtype=dtype.__name__):
                    self.assertGreater(self.federated(
                        lambda: SGDClassifier(loss="log_loss", random_state=1),
                        lambda model, x, y: model.partial_fit(x, y, classes=np.arange(labels)), labels, dtype), 0.85)

    def test_logistic_regression_goes_on_from_the_round(self):
        from fedge import models
        from sklearn.linear_model import LogisticRegression
        for labels in (2, 4):
            with self.subTest(labels=labels):
                x, y = points(labels, np.float32, 9)
                model = LogisticRegression(warm_start=True, max_iter=200).fit(x, y)
                best = model.coef_.copy()
                adapter = models.adapter_of(model)
                views = {name: np.asarray(value, np.float32) for name, _, _, value in models.tensors_of(model)}
                adapter.attach(views).set_params(max_iter=1).fit(x, y)
                adapter.detach(views)
                self.assertLess(np.abs(views["coef_"] - best).max(), 0.05)  # one iteration from zero is far away
        self.assertGreater(self.federated(lambda: LogisticRegression(warm_start=True, max_iter=5),
                                          lambda model, x, y: model.fit(x, y), 2, np.float32), 0.85)

    def test_what_would_ignore_the_round_is_refused(self):
        import fedge
        from sklearn.linear_model import LogisticRegression, SGDClassifier
        with self.assertRaisesRegex(fedge.Error, "LogisticRegression would begin at zero in every round: set warm_start=True"):
            fedge.Client(LogisticRegression())
        with self.assertRaisesRegex(fedge.Error, "set average=False"):
            fedge.Client(SGDClassifier(average=True))
        fedge.Client(SGDClassifier())

    def test_a_job_of_one_has_its_shapes(self):
        import fedge
        from fedge import job, models
        from sklearn.linear_model import SGDClassifier
        model = SGDClassifier()
        with self.assertRaisesRegex(fedge.Error, "fit it to one batch first"):
            models.tensors_of(model)
        model.partial_fit(*points(4, np.float32, 9), classes=np.arange(4))
        path = os.path.join(harness.make_folder(), "job.json")
        with contextlib.redirect_stdout(io.StringIO()):
            job.write_job(model, path, name="mine")
        with open(path, encoding="utf-8") as file:
            made = json.load(file)
        self.assertEqual(made["model"]["tensors"], [{"name": "coef_", "shape": [4, FEATURES]}, {"name": "intercept_", "shape": [4]}])
        with self.assertRaisesRegex(fedge.Error, r"'coef_' is \[3, 6\] in the job and \[4, 6\]"):
            models.adapter_of(model).check({"coef_": (3, FEATURES), "intercept_": (3,)})


if __name__ == "__main__":
    if not importlib.util.find_spec("sklearn"):
        raise SystemExit(harness.SKIPPED)
    unittest.main(verbosity=2)
