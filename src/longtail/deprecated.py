"""Old spellings of public names: they work for one more release, with a warning.

`longtail/__init__.py` installs a finder, so that the old names stand here alone and no module
carries them along.
"""

from __future__ import annotations

import functools
import importlib
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from importlib.abc import Loader, MetaPathFinder
else:  # importlib needs only their methods, and importing them slows every command down
    Loader = MetaPathFinder = object

P = ParamSpec("P")
R = TypeVar("R")

MOVED: Mapping[str, str] = {
    "longtail.analysis.figures": "longtail.report.figures",
    "longtail.analysis.looking": "longtail.analysis.saliency",
    "longtail.data.cifar": "longtail.data.readers.cifar",
    "longtail.data.decoding": "longtail.data.images.decoding",
    "longtail.data.digits": "longtail.data.readers.digits",
    "longtail.data.duplicates": "longtail.data.inspect.duplicates",
    "longtail.data.facts": "longtail.data.inspect.facts",
    "longtail.data.folders": "longtail.data.readers.folders",
    "longtail.data.lists": "longtail.data.readers.lists",
    "longtail.data.opening": "longtail.data.open",
    "longtail.data.parquet": "longtail.data.readers.parquet",
    "longtail.data.survey": "longtail.data.inspect.survey",
    "longtail.data.teaching": "longtail.data.teacher_labels",
    "longtail.files": "longtail.records.files",
    "longtail.metrics.evaluators": "longtail.scoring.evaluators",
    "longtail.metrics.files": "longtail.records.predictions",
    "longtail.metrics.row": "longtail.records.row",
    "longtail.metrics.summary": "longtail.scoring.long_tail",
    "longtail.recipes.choosing": "longtail.recipes.auto",
    "longtail.recipes.parts": "longtail.recipes.builders",
    "longtail.recipes.sweeps": "longtail.experiments.sweeps",
    "longtail.report.document": "longtail.report.page",
    "longtail.runs.again": "longtail.runs.restore",
    "longtail.runs.answers": "longtail.runs.predictions",
}
"""Old module path -> new module path."""

RENAMED: Mapping[str, Mapping[str, str]] = {
    "longtail.analysis": {"where_it_looks": "saliency_map", "look": "attention_maps"},
    "longtail.analysis.saliency": {"where_it_looks": "saliency_map"},
    "longtail.analysis.transformers": {
        "Seen": "Attention",
        "answering": "head_tokens",
        "look": "attention_maps",
    },
    "longtail.core": {"Groups": "longtail.records.groups.Groups"},
    "longtail.data.dataset": {
        "Memory": "longtail.data.images.stores.ArrayImages",
        "Pictures": "longtail.data.images.stores.ImageStore",
        "Store": "longtail.data.images.stores.ImageStore",
    },
    "longtail.data.images.decoding": {
        "Blobs": "longtail.data.images.stores.EncodedImages",
        "Files": "longtail.data.images.stores.FileImages",
    },
    "longtail.data.loader": {"InOrder": "EvalLoader", "Loader": "TrainLoader"},
    "longtail.data.open": {
        "as_split": "longtail.data.assembly.as_split",
        "evaluated_crop": "longtail.data.assembly.evaluated_crop",
        "joined_labels": "longtail.data.assembly.joined_labels",
        "open_to_judge": "open_for_evaluation",
    },
    "longtail.data.source": {"several": "listing"},
    "longtail.data.teacher_labels": {
        "Apart": "SplitViews",
        "AskTeacher": "AddTeacherLabels",
        "CachedTeacherLabels": "longtail.data.label_cache.CachedTeacherLabels",
        "InTurn": "Compose",
        "LabelFile": "longtail.data.label_cache.LabelFile",
        "Remembered": "longtail.data.label_cache.CachedTeacherLabels",
        "cache_key": "longtail.data.label_cache.cache_key",
        "cached_labels": "longtail.data.label_cache.cached_labels",
        "digest": "longtail.data.label_cache.digest",
        "to_config": "longtail.data.label_cache.to_config",
    },
    "longtail.data.views": {"Plain": "CenterCrop", "Weak": "CropFlip"},
    "longtail.engine.averaging": {"lent": "temporary_weights", "overlay": "load_partial"},
    "longtail.losses": {"effective_number": "class_balanced_weights"},
    "longtail.losses.weights": {"effective_number": "class_balanced_weights"},
    "longtail.metrics.conformal": {"judge": "evaluate_sets"},
    "longtail.metrics.priors": {"told": "known_prior_recall"},
    "longtail.nn.mae_files": {
        "read_weights": "longtail.nn.encoders.read_weights",
        "write_weights": "longtail.nn.encoders.write_weights",
    },
    "longtail.nn.files": {"filled": "load_weights"},
    "longtail.nn.pretrained": {"learnt_from": "pretraining_data"},
    "longtail.recipes.batchformer": {
        "Use": "Mode",
        "neck": "batchformer_neck",
        "rates": "lr_scales",
    },
    "longtail.recipes.builders": {
        "Kept": "KeepRule",
        "beginning": "build_backbone",
        "classifying_head": "default_head",
        "kept": "select_weights",
        "rate_of": "scaled_lr",
        "usual_optimizer": "default_optimizer",
    },
    "longtail.recipes.masked_autoencoder": {"picture": "draw_reconstructions"},
    "longtail.recipes.teachers": {
        "begin_with": "record_origin",
        "data_seen": "training_data",
        "teacher_of": "find_teacher",
    },
    "longtail.records.predictions": {"Predictions": "SplitPredictions"},
    "longtail.report.agreement": {"Judged": "TestPredictions", "judged": "read_test_predictions"},
    "longtail.report.figures": {
        "draw": "write_figures",
        "metric_by_epoch": "longtail.report.curves.metric_by_epoch",
        "training_curves": "longtail.report.curves.training_curves",
        "search_plot": "longtail.report.sweep_figures.search_plot",
        "write_sweep_figures": "longtail.report.sweep_figures.write_sweep_figures",
    },
    "longtail.report.folders": {"Answers": "Predictions"},
    "longtail.runs": {"Answers": "Predictions"},
    "longtail.runs.images": {"Fit": "Preprocessing"},
    "longtail.runs.predicting": {"Part": "FilePredictions"},
    "longtail.runs.predictions": {"Answers": "Predictions", "answered": "to_predictions"},
    "longtail.runs.restore": {"again": "restore_method"},
}
"""Module -> old name -> new name; with its module, where it has moved as well."""

KEYWORDS: Mapping[str, str] = {
    "attended": "batchformer_weight",
    "batchformer_rate": "batchformer_lr_scale",
    "heat": "class_temperature",
    "plain": "plain_weight",
    "pretrained": "weights",
}
"""Old keyword of our recipes -> new keyword. Run folders and plans keep the old ones forever."""


EARLIER: Mapping[str, Mapping[str, Any]] = {
    "deit": {"crop": "part"},
    "deit_lt": {"crop": "part"},
    "paco": {"blur": 0.0},
    "vit": {"crop": "part"},
    "vit_crt": {"crop": "part"},
}
"""Recipe -> keyword -> what a run had that does not record this keyword, if not its default."""


def run_keywords(recipe: str, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """The recorded keywords of a run under their current names, and those that it had unrecorded.

    >>> run_keywords("paco", {"epochs": 40}), run_keywords("paco", {"blur": 0.5})
    ({'epochs': 40, 'blur': 0.0}, {'blur': 0.5})
    """
    recorded = current_keywords(recipe, keywords)
    earlier = EARLIER.get(recipe, {})
    return recorded | {name: earlier[name] for name in earlier if name not in recorded}


def current_keywords(recipe: str, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords of a recipe under their current names; a custom recipe has no old names.

    >>> current_keywords("ride", {"heat": 0.1, "epochs": 40})
    {'class_temperature': 0.1, 'epochs': 40}
    >>> current_keywords("mine:ride", {"heat": 0.1})
    {'heat': 0.1}
    """
    return {current_keyword(recipe, name): value for name, value in keywords.items()}


def current_keyword(recipe: str, name: str) -> str:
    """The current name of a keyword."""
    return name if ":" in recipe else KEYWORDS.get(name, name)


def install() -> None:
    """Let old module paths be imported, and old names be read from their modules."""
    if not any(isinstance(finder, _OldNames) for finder in sys.meta_path):
        sys.meta_path.insert(0, _OldNames())


class _OldNames(MetaPathFinder):
    """Finds moved modules, and the modules that have renamed attributes."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in MOVED:
            return ModuleSpec(fullname, _Moved())
        spec = PathFinder.find_spec(fullname, path, target) if fullname in RENAMED else None
        if spec is not None and spec.loader is not None:
            spec.loader = _Renamed(spec.loader)
        return spec


class _Moved(Loader):
    """Makes a module whose attributes are those of the module at the new path."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None  # the usual one

    def exec_module(self, module: ModuleType) -> None:
        new = MOVED[module.__name__]
        _warn(module.__name__, new)
        vars(module)["__getattr__"] = lambda name: getattr(importlib.import_module(new), name)


class _Renamed(Loader):
    """Runs a module as ever, then gives it a `__getattr__` for its old names."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def __getattr__(self, name: str) -> Any:  # source and resources come from the real loader
        return getattr(self.loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        old_names = RENAMED[module.__name__]

        def attribute(name: str) -> Any:
            if name not in old_names:
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            place, _, new = old_names[name].rpartition(".")
            place = place or module.__name__
            _warn(f"{module.__name__}.{name}", f"{place}.{new}")
            return getattr(importlib.import_module(place), new)

        vars(module)["__getattr__"] = attribute


def renamed_attribute(old: str, new: str) -> Any:
    """A property for a class body: the old name of an attribute, which is read from the new one."""

    def read(instance: Any) -> Any:
        _warn(f"{type(instance).__name__}.{old}", f"{type(instance).__name__}.{new}")
        return getattr(instance, new)

    return property(read)


def renamed_keywords(**names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function so that it still accepts the old names of its keywords.

    >>> @renamed_keywords(rate="lr")
    ... def train(*, lr: float) -> float:
    ...     return lr
    >>> train(lr=0.1)
    0.1
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **keywords: P.kwargs) -> R:
            for old, new in names.items():
                if old in keywords:
                    if new in keywords:
                        raise TypeError(f"{old!r} is the old name of {new!r}: pass {new!r} alone")
                    _warn(f"the keyword {old!r} of {function.__qualname__}", f"{new!r}")
                    keywords[new] = keywords.pop(old)
            return function(*args, **keywords)

        return call

    return decorate


def _warn(old: str, new: str) -> None:
    message = f"{old} is now {new}; the old name will be removed in the next release"
    warnings.warn(message, DeprecationWarning, stacklevel=3)
