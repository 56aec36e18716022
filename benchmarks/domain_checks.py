"""Compare ERM on features with logistic regression, and each penalty with that of ERM.

    python benchmarks/domain_checks.py FEATURES.npz --work WORK

FEATURES.npz is what `convert_features.py` writes, with a column `domain`. Logistic regression is
scikit-learn's where that is installed; otherwise the same objective is minimised with scipy, whose
minimum is the same, because it is strictly convex. The accuracy of ERM is that of the results of
the plan `pacs_features_domains`, whose rows are the same. For the penalties, the arms of ERM,
CORAL, IRM and V-REx with `--without` as test domain are trained with the settings of that plan and
seed 0, or read if WORK has them: as in the plan, which keeps the best epoch on validation, and
with the last epoch.
Writes `benchmarks/results/speed/domain_checks.json`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import measured
import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from scipy.optimize import minimize

import longtail
from longtail.data.dataset import Dataset, Split
from longtail.data.open import open_data
from longtail.losses.domains import DomainPenalty, coral, irm, vrex
from longtail.nn import Classifier

PLAN = Path(__file__).parent / "plans" / "pacs_features_domains.json"
RESULTS = Path(__file__).parent / "results" / "pacs_features_domains"
STRENGTHS = (0.0001, 0.001, 0.01, 0.1)
SHORT = ("art", "cartoon", "photo", "sketch")
PENALTIES: dict[str, DomainPenalty] = {"coral": coral, "irm": irm, "vrex": vrex}
Matrix = NDArray[np.float64]
Fitted = Callable[[Matrix], Matrix]


def rows_of(split: Split) -> tuple[Matrix, NDArray[np.int64]]:
    """Features (N, D) and classes (N,) of a split."""
    vectors = split.inputs.vectors()
    assert vectors is not None
    return vectors.numpy().astype(np.float64), split.target.numpy()


def with_scipy(x: Matrix, y: NDArray[np.int64], strength: float) -> Fitted:
    """Minimise |W|^2 / 2 + strength * the sum of cross entropies, as scikit-learn does.

    The bias is not penalised.
    """
    classes = int(y.max()) + 1
    rows, target = torch.from_numpy(x), torch.from_numpy(y)
    shape = (x.shape[1] + 1, classes)

    def objective(flat: Matrix) -> tuple[float, Matrix]:
        weight = torch.from_numpy(flat.reshape(shape)).requires_grad_()
        logits = rows @ weight[:-1] + weight[-1]
        loss = strength * F.cross_entropy(logits, target, reduction="sum")
        loss = loss + weight[:-1].square().sum() / 2
        (gradient,) = torch.autograd.grad(loss, weight)
        return loss.item(), gradient.numpy().ravel()

    start = np.zeros(shape).ravel()
    options = {"maxiter": 1000, "maxfun": 2000}
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
    solution = found.x.reshape(shape)
    return lambda other: other @ solution[:-1] + solution[-1]


def with_sklearn(x: Matrix, y: NDArray[np.int64], strength: float) -> Fitted:
    """Fit scikit-learn's logistic regression."""
    linear = import_module("sklearn.linear_model")  # optional, and not a dependency
    fitted = linear.LogisticRegression(C=strength, max_iter=1000).fit(x, y)
    return fitted.decision_function  # type: ignore[no-any-return]


def solver() -> tuple[str, Callable[[Matrix, NDArray[np.int64], float], Fitted]]:
    """The name of what is installed, and its function."""
    try:
        sklearn = import_module("sklearn")
    except ImportError:
        return "scipy, scikit-learn's objective", with_scipy
    return f"scikit-learn {sklearn.__version__}", with_sklearn


def logistic(data: Dataset, fit: Callable[..., Fitted]) -> dict[str, float]:
    """Test accuracy with the strength that is best on validation, the mean over domains."""
    x, y = rows_of(data.train)
    centre, scale = x.mean(0), x.std(0) + 1e-12  # of the training rows alone
    (val, val_y), (test, test_y) = rows_of(data.val), rows_of(data.test)
    domain = data.val.columns["domain"].numpy()
    best = {"val": -1.0}
    for strength in STRENGTHS:
        logits = fit((x - centre) / scale, y, strength)
        right = logits((val - centre) / scale).argmax(1) == val_y
        value = float(np.mean([right[domain == number].mean() for number in np.unique(domain)]))
        if value > best["val"]:
            accuracy = float((logits((test - centre) / scale).argmax(1) == test_y).mean())
            best = {"val": value, "test": accuracy, "strength": strength}
    return best


@torch.no_grad()
def penalties_of(network: Classifier, data: Dataset) -> dict[str, float]:
    """Each penalty of a network, on all training rows as one batch."""
    x = data.train.inputs.vectors()
    assert x is not None
    features = network.network(x)
    rows = (features, network.head(features), data.train.target, data.train.columns["domain"])
    return {name: float(penalty(*rows)) for name, penalty in PENALTIES.items()}


def committed(short: str, data: Dataset) -> float:
    """The accuracy of ERM in the committed results on these rows, the mean over seeds."""
    results = [
        json.loads(path.read_text(encoding="utf-8"))["row"]
        for path in sorted(RESULTS.glob(f"erm-{short}-seed*.json"))
    ]
    assert {row["data"]["hash"] for row in results} == {data.hash}
    return float(np.mean([100 * row["test"]["top1"] for row in results]))


def penalties(
    plan: Mapping[str, Any], short: str, given: argparse.Namespace, *, keep: str
) -> dict[str, dict[str, float]]:
    """Each penalty in the network of ERM, and in the one that was trained with it."""
    measures: dict[str, dict[str, float]] = {}
    for arm in ("erm", *PENALTIES):
        settings = {**plan["settings"], **plan["arms"][f"{arm}-{short}"], "keep": keep}
        recipe, folder = settings.pop("recipe"), given.work / f"{arm}-{short}-{keep}"
        longtail.train(recipe, given.features, folder, device="cpu", threads=1, **settings)
        data = open_data(given.features, test_domain=settings["test_domain"])
        network = longtail.load(folder, device="cpu").network
        assert isinstance(network, Classifier)
        measures[arm] = penalties_of(network, data)
    return {
        penalty: {
            "ERM": float(f"{measures['erm'][penalty]:.4g}"),
            "trained with it": float(f"{measures[penalty][penalty]:.4g}"),
        }
        for penalty in PENALTIES
    }


def main() -> None:
    """Measure, and write the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("features", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--without", choices=SHORT, default="art")
    given = parser.parse_args()
    torch.set_num_threads(1)
    plan: dict[str, Any] = json.loads(PLAN.read_text(encoding="utf-8"))
    name, fit = solver()
    accuracy: dict[str, dict[str, float]] = {"logistic regression": {}, "ERM": {}}
    chosen = {}
    for short in SHORT:
        data = open_data(given.features, test_domain=plan["arms"][f"erm-{short}"]["test_domain"])
        best = logistic(data, fit)
        accuracy["logistic regression"][short] = 100 * best["test"]
        accuracy["ERM"][short], chosen[short] = committed(short, data), best["strength"]
        print(short, best, accuracy["ERM"][short], flush=True)
    for of in accuracy.values():
        of["mean"] = float(np.mean([*of.values()]))
    figures = {
        "solver": name,
        **{
            f"accuracy of {arm}": {short: round(value, 2) for short, value in of.items()}
            for arm, of in accuracy.items()
        },
        "ERM above logistic regression, points": round(
            accuracy["ERM"]["mean"] - accuracy["logistic regression"]["mean"], 2
        ),
        "strength of logistic regression": chosen,
        **{
            f"penalty without {given.without}, {keep} epoch": penalties(
                plan, given.without, given, keep=keep
            )
            for keep in ("best", "last")
        },
    }
    measured.write(
        "domain_checks",
        figures,
        plan="domain_checks",
        question="Is ERM as good as logistic regression, and does each penalty fall?",
        command="python benchmarks/domain_checks.py FEATURES.npz --work WORK",
        threads=1,
    )


if __name__ == "__main__":
    main()
