"""What every recipe must do."""

from __future__ import annotations

import importlib.util
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from longtail.core import B, Batches, Method, Stage
from longtail.data.dataset import Dataset
from longtail.data.loader import EvalLoader
from longtail.data.open import open_data
from longtail.engine.journal import Journal
from longtail.engine.machine import Machine
from longtail.engine.run import Run
from longtail.errors import LongtailError
from longtail.nn.networks import build, size_of
from longtail.recipes.signatures import read
from longtail.records.files import read_lines
from longtail.runs.model import check_rebuilt, deployed
from longtail.testing.requiring import require

Recipe = Callable[..., Method[Any]]


def check_recipe(recipe: Recipe, data: Dataset | str = "digits-lt", /, **keywords: Any) -> None:
    """Check that a recipe can be rehearsed, resumes to the bit and deploys what it trained.

    It is trained several times: choose keywords that make that a matter of seconds. It catches:

    - keywords that cannot be flags of the command line, where the recipe can be imported;
    - a result that is no method, or that does not deploy a classifier for the data's classes;
    - files that a dry run writes;
    - a stage that was killed and resumed and does not end with the weights and the journal of an
      uninterrupted run, because of state outside the checkpoint or unseeded random numbers;
    - a finished run that trains again, or loads other weights;
    - a deployed network that its spec does not rebuild, or that predicts something else.

    Args:
        recipe: a function `(run, data, *, keywords)` that returns the trained method.
        data: a dataset, or a name or path for `longtail.data.open.open_data`.
        keywords: those of the recipe.

    >>> from longtail.recipes.supervised import cross_entropy
    >>> check_recipe(cross_entropy, network="fast_cnn", epochs=1, batch=128)
    """
    dataset = open_data(data) if isinstance(data, str) else data
    _check_signature(recipe)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for dry in ("rehearse", "estimate"):
            run = Run(folder / dry, dry=dry)
            method = _call(recipe, run, dataset, keywords)
            _check_deployed(method, dataset)
            require(
                not (folder / dry).exists(),
                f"a dry run wrote files: {_files(folder / dry)}; write them with run.write",
            )
        run = Run(folder / "whole")
        method = _call(recipe, run, dataset, keywords)
        expected = _result(folder / "whole", method)
        _check_round_trip(method, dataset, run.machine)
        loaded = _call(recipe, _Trained(folder / "whole"), dataset, keywords)
        _compare(_result(folder / "whole", loaded), expected, "loaded after it was finished")
        for name, steps in _stages(recipe, dataset, keywords, folder / "counted").items():
            require(
                steps > 1,
                f"stage {name!r} has one batch and cannot be interrupted: choose a smaller batch",
            )
            for step in sorted({1, steps // 2, steps - 1}):
                killed = folder / f"killed-{name}-{step}"
                try:
                    _call(recipe, _Dying(killed, name, step), dataset, keywords)
                except _Killed:
                    resumed = _call(recipe, Run(killed), dataset, keywords)
                    label = f"killed after batch {step} of stage {name!r} and resumed"
                    _compare(_result(killed, resumed), expected, label)
                else:
                    raise AssertionError(f"the recipe continues after {name!r} was killed")


def _check_signature(recipe: Recipe) -> None:
    """Read the keywords as the command line does, where it can."""
    module, name = recipe.__module__, recipe.__qualname__
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        spec = None
    if spec is None or "." in name:
        return  # a notebook, a test: only the function itself can be called
    try:
        read(f"{module}:{name}")
    except LongtailError as error:
        raise AssertionError(f"the keywords cannot be flags: {error}") from error


def _call(recipe: Recipe, run: Run, data: Dataset, keywords: Mapping[str, Any]) -> Method[Any]:
    method = recipe(run, data, **keywords)
    require(
        isinstance(method, Method),
        f"expected a trained method, got a {type(method).__name__}: return what run.fit gave",
    )
    return method


def _check_deployed(method: Method[Any], data: Dataset) -> None:
    try:
        check_rebuilt(deployed(method, data))
    except LongtailError as error:
        raise AssertionError(str(error)) from error


def _check_round_trip(method: Method[Any], data: Dataset, machine: Machine) -> None:
    """The network that is rebuilt from the spec and the weights predicts as the method does."""
    network = deployed(method, data)
    split = next((s for s in (data.test, data.val) if len(s)), data.train)
    size = size_of(network.spec)
    image = next(EvalLoader(split, size=size, batch=16).epoch())["image"]
    rebuilt = build(json.loads(json.dumps(network.spec)), trust=True).eval()
    rebuilt.load_state_dict(network.state_dict())
    # The memory layout changes the last bit of the result.
    machine.place_module(rebuilt)
    image = machine.place_batch({"image": image})["image"]
    with torch.no_grad():
        predicted = method.predict(image)
        require(torch.equal(network.eval()(image), predicted), "deploy() is not predict")
        require(
            torch.equal(rebuilt(image), predicted), "the spec does not rebuild what was deployed"
        )


def _result(folder: Path, method: nn.Module) -> dict[str, Any]:
    """What a run leaves: the method's tensors, and its journals without times."""
    state = {name: tensor.detach().cpu().clone() for name, tensor in method.state_dict().items()}
    journals = {
        str(path.relative_to(folder)): [
            {name: value for name, value in line.items() if name not in Journal.TIMES}
            for line in read_lines(path)
        ]
        for path in sorted(folder.glob("*/*.jsonl"))
    }
    return {"weights": state, "journals": journals}


def _compare(result: Mapping[str, Any], expected: Mapping[str, Any], label: str) -> None:
    ours, theirs = result["weights"], expected["weights"]
    differ = [
        name
        for name in {**ours, **theirs}
        if name not in ours or name not in theirs or not torch.equal(ours[name], theirs[name])
    ]
    require(
        not differ,
        f"{label}, the run has other weights than one without interruption: {differ[:3]}; "
        "keep what training needs in the method's state, and draw no unseeded numbers",
    )
    require(
        result["journals"] == expected["journals"],
        f"{label}, the run has another journal than one without interruption",
    )


def _files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))[:5]


def _stages(
    recipe: Recipe, data: Dataset, keywords: Mapping[str, Any], folder: Path
) -> dict[str, int]:
    """The names of the recipe's stages, and how many batches each has."""
    run = _Counting(folder)
    _call(recipe, run, data, keywords)
    return run.batches


class _Killed(BaseException):
    """Raised where a real run would be killed; not an Exception, so that no code handles it."""


class _Counting(Run):
    """A rehearsal that records the stages and their number of batches."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, dry="rehearse")
        self.batches: dict[str, int] = {}

    def fit(self, stage: Stage[B]) -> Method[B]:
        self.batches[stage.name] = stage.epochs * len(stage.data)
        return super().fit(stage)


class _Dying(Run):
    """A run that saves at every step and is killed after a batch of a stage."""

    def __init__(self, folder: Path, name: str, batch: int) -> None:
        super().__init__(folder, save_minutes=0.0)
        self.name, self.batch = name, batch

    def fit(self, stage: Stage[B]) -> Method[B]:
        if stage.name == self.name:
            stage = replace(stage, data=_DyingBatches(stage.data, self.batch))
        return super().fit(stage)


class _DyingBatches:
    """Batches that raise instead of returning batch `die_at`, counted over epochs."""

    def __init__(self, data: Batches[Any], die_at: int) -> None:
        self.data, self.die_at = data, die_at

    def __len__(self) -> int:
        return len(self.data)

    def epoch(self, index: int, *, start: int = 0) -> Iterator[Any]:
        for number, batch in enumerate(self.data.epoch(index, start=start), start):
            if index * len(self) + number == self.die_at:
                raise _Killed
            yield batch


class _Trained(Run):
    """A finished run: it raises if a stage trains."""

    def _prepare(self, stage: Stage[Any]) -> Any:
        raise AssertionError(
            f"stage {stage.name!r} trains again in a finished run: give it the same name each time"
        )
