"""Which run a folder contains.

Data, recipe with its keywords, seeds, test-time averaging and adjustment identify it; the machine
may change.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

import longtail
from longtail import processes
from longtail.data.dataset import Dataset
from longtail.data.names import KNOWN
from longtail.data.open import open_dataset
from longtail.data.readers.functions import is_function
from longtail.data.request import DataRequest, data_flags, flag_words
from longtail.engine.machine import Machine
from longtail.errors import LongtailError
from longtail.naming import expand_user
from longtail.recipes.signatures import Recipe, read
from longtail.records.documents import FORMAT
from longtail.records.kinds import read_recipe
from longtail.records.layout import RunFolder

Tta = Literal["none", "flip"]
Adjust = Literal["none", "validation"]


@dataclass(frozen=True)
class RunConfig:
    """Everything that identifies a run."""

    recipe: Recipe
    keywords: Mapping[str, Any]
    data: DataRequest
    seed: int
    view_seed: int
    tta: Tta
    adjust: Adjust = "none"
    epoch_plan: str = ""

    def command(self, out: Path) -> str:
        """The command that starts or resumes this run; values that are defaults are left out."""
        words = [
            "longtail",
            "train",
            self.recipe.name,
            "--data",
            self.data.source,
            "--out",
            str(out),
        ]
        given = {
            **self.data.flags(),
            "seed": self.seed,
            "view_seed": self.view_seed,
            "tta": self.tta,
            "adjust": self.adjust,
            "epoch_plan": self.epoch_plan,
            **self.keywords,
        }
        usual = {
            **{name: flag.default for name, flag in data_flags().items()},
            "seed": 0,
            "view_seed": self.seed,
            "tta": "none",
            "adjust": "none",
            "epoch_plan": "",
        }
        usual |= {name: parameter.default for name, parameter in self.recipe.parameters.items()}
        words += flag_words({name: value for name, value in given.items() if value != usual[name]})
        return shlex.join(words)

    def record(self, dataset: Dataset, machine: Machine, out: Path) -> dict[str, Any]:
        """The content of recipe.json."""
        plan = {"epoch_plan": self.epoch_plan} if self.epoch_plan else {}
        return {
            "format": FORMAT,
            "command": self.command(out),
            "recipe": self.recipe.name,
            "target": self.recipe.target,
            "keywords": dict(self.keywords),
            "data": {
                "source": self.data.source,
                "name": dataset.name,
                **self.data.flags(),
                "mirror": dataset.mirror,
                "geometry": self.data.geometry or dataset.geometry,
                "hash": dataset.hash,
                "groups": dataset.groups.to_json(),
            },
            "seed": self.seed,
            "view_seed": self.view_seed,
            "tta": self.tta,
            "adjust": self.adjust,
            **plan,
            "versions": versions(),
            "hardware": hardware(machine),
        }


def with_geometry(record: Mapping[str, Any], geometry: str) -> dict[str, Any]:
    """A run's record with the geometry of its data, where an older version recorded none."""
    return {**record, "data": {"geometry": geometry, **record["data"]}}


def lacks_geometry(out: Path) -> bool:
    """Whether a folder contains a run of a version that recorded no geometry."""
    files = RunFolder(out)
    known = files.has_checkpoint() and files.recipe.exists()
    return known and "geometry" not in read_recipe(out)["data"]


def request_of(
    record: Mapping[str, Any], *, root: str | Path | None = None, trust: bool = False
) -> DataRequest:
    """The data that a run requested, with another root if one is given.

    A flag that is newer than the run has its default. Where the data was a folder of images, `root`
    is that folder in its new place. Where it was a function, that is code which runs only with
    `trust`: a run folder that came from elsewhere may name any.
    """
    data = record["data"]
    request = DataRequest.from_flags(str(data["source"]), data)
    there = expand_user(request.source).exists()
    if is_function(request.source) and not there:
        if not trust:
            raise LongtailError(
                f"the data {request.source} is code outside longtail, and this would run it: "
                "pass --trust if you trust it"
            )
        return request if root is None else replace(request, root=str(root))
    if root is not None:
        return request.with_root(root)
    if request.source not in KNOWN and not there:
        raise LongtailError(
            f"expected the run's images at {request.source}, got nothing there, "
            f"seen from {Path.cwd()}: pass their new place with --root"
        )
    return request


def open_run_data(
    record: Mapping[str, Any],
    machine: Machine,
    *,
    root: str | Path | None = None,
    trust: bool = False,
) -> Dataset:
    """Open the data that a run was trained on, as training opened it."""
    return open_dataset(
        request_of(record, root=root, trust=trust),
        device=machine.device,
        size=record["keywords"].get("size"),
        legacy="geometry" not in record["data"],
    )


def check_identity(out: Path, record: Mapping[str, Any], *, geometry: str) -> None:
    """Accept a folder that is new, empty, or contains this run; refuse others and show differences.

    A run that failed before its first checkpoint, perhaps because of an unusable keyword, may be
    replaced by another. `geometry` is that of the folder's data where it recorded none.
    """
    if out.exists() and not out.is_dir():
        raise LongtailError(f"expected a folder for --out, got a file at {out}: choose another")
    if not RunFolder(out).recipe.exists():
        if others := RunFolder(out).other_files():
            raise LongtailError(
                f"expected an empty folder or a run at {out}, "
                f"got other files ({', '.join(others[:3])}): choose another --out"
            )
        return
    differences = list(_differences(with_geometry(read_recipe(out), geometry), record))
    if differences and RunFolder(out).has_checkpoint():
        lines = "\n".join(f"  {line}" for line in differences)
        raise LongtailError(
            f"{out} contains another run:\n{lines}\nchoose another --out, or request the same run"
        )


def check_outside(out: Path, data: str) -> None:
    """Refuse to write a run inside its training images: its folder would be one more class."""
    if data in KNOWN or not expand_user(data).is_dir():
        return
    images = expand_user(data).resolve()
    if out.resolve().is_relative_to(images):
        raise LongtailError(
            f"expected a folder outside of the data for --out, got {out}, which is inside of "
            f"{images}: choose another, such as --out {images.parent / 'runs' / out.name}"
        )


def _differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> Iterable[str]:
    def differ(name: str, old: object, new: object) -> Iterable[str]:
        if old != new:
            yield f"{name}: {old} in the folder, {new} requested"

    yield from differ("recipe", there["recipe"], here["recipe"])
    if there["recipe"] == here["recipe"]:
        # A keyword that is newer than the folder has its default there.
        usual = {
            name: parameter.default for name, parameter in read(here["target"]).parameters.items()
        }
        for name in sorted({*there["keywords"], *here["keywords"]}):
            yield from differ(
                name,
                there["keywords"].get(name, usual.get(name)),
                here["keywords"].get(name, "(unknown)"),
            )
    following = there["view_seed"] == there["seed"] and here["view_seed"] == here["seed"]
    for name in ("seed", "tta") if following else ("seed", "view_seed", "tta"):
        yield from differ(name, there[name], here[name])
    yield from differ("adjust", there.get("adjust", "none"), here["adjust"])
    yield from differ("epoch plan", there.get("epoch_plan", ""), here.get("epoch_plan", ""))
    # The content decides, flags only explain: a root may move, and a default may be given.
    old, new = there["data"], here["data"]
    yield from differ("mirror", old.get("mirror", new["mirror"]), new["mirror"])
    yield from differ("geometry", old["geometry"], new["geometry"])
    yield from differ("scoring", old.get("scoring"), new["scoring"])
    if (old["hash"], old["protocol"]) != (new["hash"], new["protocol"]):
        for name in ("name", *data_flags()):
            if name not in ("root", "mirror", "geometry", "scoring"):
                default = data_flags()[name].default if name in data_flags() else None
                yield from differ(f"data {name}", old.get(name, default), new[name])
        yield from differ("images and labels", old["hash"][:12], new["hash"][:12])


def versions() -> dict[str, str]:
    """The versions that a score may depend on."""
    named = {
        name: importlib.metadata.version(name)
        for name in ("torch", "torchvision", "timm", "numpy", "pillow")
    }
    return {"longtail": longtail.__version__, "python": platform.python_version(), **named}


def hardware(machine: Machine) -> dict[str, Any]:
    """What a run computes on."""
    kind = torch.cuda.get_device_name() if machine.device.startswith("cuda") else platform.machine()
    return {
        **asdict(machine),
        "kind": kind,
        "cores": os.cpu_count(),
        "processes": processes.world_size(),
        "system": platform.system(),
    }
