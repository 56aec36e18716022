"""A finished run's method, with everything that only training needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from longtail.core import Method
from longtail.data.dataset import Dataset
from longtail.engine.machine import choose
from longtail.engine.run import Run
from longtail.errors import LongtailError
from longtail.nn.networks import is_custom
from longtail.recipes import RECIPES
from longtail.recipes.signatures import read
from longtail.records.kinds import read_recipe
from longtail.records.row import read_row
from longtail.runs.identity import RunConfig, open_run_data, request_of
from longtail.runs.training import call_recipe


def restore_method(
    run: str | Path, *, root: str | Path | None = None, device: str = "cpu", trust: bool = False
) -> tuple[Method[Any], Dataset]:
    """Restore the trained method of a finished run, and its data.

    The recipe is called again, and its stages load their weights. A recipe, network or reader that
    is not longtail's is imported only with `trust`: a folder may name any module.
    `load` gives the deployed network, which is all that predictions need; this also has necks,
    momentum copies and losses.
    """
    folder = Path(run)
    read_row(folder)  # refuses a run that is not finished
    record, machine = read_recipe(folder), choose(device=device, precision="fp32")
    custom = [f"network {value}" for value in record["keywords"].values() if is_custom(value)]
    if record["recipe"] not in RECIPES:
        custom.append(f"recipe {record['recipe']}")
    if custom and not trust:
        raise LongtailError(
            f"the {custom[0]} is code outside longtail, and this would run it: "
            "pass trust=True if you trust it"
        )
    recipe = read(record["recipe"])
    config = RunConfig(
        recipe,
        recipe.keywords(record["keywords"]),
        request_of(record, root=root, trust=trust),
        record["seed"],
        record["view_seed"],
        record["tta"],
    )
    dataset = open_run_data(record, machine, root=root, trust=trust)
    if dataset.hash != record["data"]["hash"]:
        raise LongtailError(
            f"expected the data of the run ({record['data']['hash'][:12]}), "
            f"got other images or labels ({dataset.hash[:12]})"
        )
    context = Run(
        folder,
        seed=config.seed,
        view_seed=config.view_seed,
        machine=machine,
        command=config.command(folder),
    )
    return call_recipe(config, dataset, context), dataset
