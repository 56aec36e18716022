from pathlib import Path

import torch
from pair_data import pair_features

from longtail.data.loader import EvalLoader
from longtail.engine.predicting import predictor
from longtail.engine.run import Run
from longtail.methods.pairs import MatchOpenPairs
from longtail.metrics.bias_sweep import bias_sweep
from longtail.recipes.compcos import choose_threshold, compcos
from longtail.scoring.evaluators import collect
from longtail.testing import check_recipe

QUICK = {"epochs": 2, "batch": 16, "hidden": 12, "embedder": [10], "dim": 6, "network": "vectors"}


def test_compcos_in_the_closed_world() -> None:
    check_recipe(compcos, pair_features(), batchformer="on", words="fixed", **QUICK)


def test_compcos_in_the_open_world() -> None:
    check_recipe(compcos, pair_features(open_world=True), **QUICK)


def test_the_threshold_is_the_best_on_validation(tmp_path: Path) -> None:
    data, run = pair_features(open_world=True), Run(tmp_path)
    method = compcos(run, data, **{**QUICK, "epochs": 6, "lr": 0.01})  # type: ignore[arg-type]
    assert isinstance(method, MatchOpenPairs)

    def auc() -> float:
        loader = EvalLoader(data.val, size=data.size, batch=16)
        predictions = collect(loader, predictor(method, run.machine))
        logits = predictions.logits["logits"]
        sweep = bias_sweep(logits, predictions.target, (data.counts > 0).numpy())
        assert sweep is not None
        return sweep.auc

    chosen, best = float(method.threshold), auc()
    for threshold in [-torch.inf, *method.feasibility[data.counts == 0].tolist()]:
        method.threshold.fill_(threshold)
        assert auc() <= best + 1e-9
    choose_threshold(method, run, data, size=data.size)
    assert float(method.threshold) == chosen
