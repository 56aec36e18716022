"""The source of custom recipes, which tests write into modules."""

RECIPES = """
import torch
from longtail.core import Stage
from longtail.data.loader import TrainLoader
from longtail.data.views import CropFlip
from longtail.engine.optim import sgd
from longtail.losses import BinaryCrossEntropy
from longtail.methods import Classify
from longtail.nn import Linear, build
from longtail.recipes.builders import validation


def fit(run, data, method):
    view = CropFlip(data.size, pad=0, flip=False)
    loader = TrainLoader(data.train, view=view, batch=64, seed=run.view_seed, workers=0)
    evals = validation(data, data.size)
    optimizer = sgd(lr=0.1)
    stage = Stage(
        name="train", method=method, data=loader, epochs=1, optimizer=optimizer, evals=evals
    )
    return run.fit(stage)


def binary(run, data):
    network = build({"name": "fast_cnn", "size": data.size, "width": 4})
    head = Linear(network.dim, len(data.classes))
    return fit(run, data, Classify(network, head, BinaryCrossEntropy()))


class NanInEval(Linear):
    def forward(self, features):
        return super().forward(features) * (1.0 if self.training else float("nan"))


def diverging(run, data):
    network = build({"name": "fast_cnn", "size": data.size, "width": 4})
    head = NanInEval(network.dim, len(data.classes))
    return fit(run, data, Classify(network, head, BinaryCrossEntropy()))
"""
