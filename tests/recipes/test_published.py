"""Published rows: settings that recipes accept, values that papers print, bands that follow from
them, and runs that match.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from longtail.data.names import KNOWN
from longtail.deprecated import current_keywords
from longtail.errors import LongtailError
from longtail.nn.networks import NETWORKS
from longtail.recipes.published import (
    Published,
    match,
    merged,
    published,
    quotes,
    smokes,
    tables,
    train_images,
)
from longtail.recipes.signatures import read

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PUBLISHED, SMOKES, IMAGES = published(), smokes(), train_images()

# From the tables of the papers, typed a second time.
PRINTED = {
    "cifar100-lt-ride": 48.0,
    "cifar100-lt-balanced-softmax": 50.7,
    "cifar100-lt-balanced-softmax-batchformer": 51.7,
    "cifar100-lt-200-balanced-softmax": 46.4,
    "cifar100-lt-200-balanced-softmax-batchformer": 47.5,
    "cifar100-lt-paco": 51.9,
    "cifar100-lt-paco-batchformer": 52.4,
    "cifar100-lt-200-paco": 47.1,
    "cifar100-lt-200-paco-batchformer": 47.8,
    "imagenet-lt-balanced-softmax": 50.1,
    "imagenet-lt-balanced-softmax-batchformer": 51.1,
    "imagenet-lt-resnet10-balanced-softmax": 41.0,
    "imagenet-lt-resnet10-balanced-softmax-batchformer": 43.2,
    "imagenet-lt-resnet10-ride": 44.7,
    "imagenet-lt-resnet10-ride-batchformer": 45.7,
    "imagenet-lt-resnet10-ride-batchformer-two-stages": 47.6,
    "imagenet-lt-resnet50-ride": 53.6,
    "imagenet-lt-resnet50-ride-batchformer": 54.1,
    "imagenet-lt-resnet50-ride-batchformer-two-stages": 55.7,
    "inaturalist18-ride": 72.5,
    "inaturalist18-ride-batchformer": 74.1,
    "imagenet-lt-paco": 57.0,
    "imagenet-lt-paco-batchformer": 57.4,
    "places-lt-paco": 41.2,
    "places-lt-paco-batchformer": 41.6,
    "places-lt-balms": 37.8,
    "places-lt-balms-batchformer": 38.2,
    "imagenet-lt-livt": 60.9,
    "imagenet-lt-livt-384": 63.8,
    "imagenet-lt-mae": 54.5,
    "inaturalist18-livt": 76.1,
    "inaturalist18-livt-384": 81.0,
    "places-lt-livt": 40.8,
    "places-lt-livt-384": 42.6,
    "cifar10-lt-livt": 86.3,
    "cifar10-lt-10-livt": 91.3,
    "cifar100-lt-livt": 58.2,
    "cifar100-lt-10-livt": 69.2,
    "cifar10-lt-mae": 79.2,
    "cifar10-lt-ldam-drw": 77.0,
    "cifar10-lt-50-ldam-drw": 79.3,
    "cifar100-lt-ldam-drw": 42.0,
    "cifar100-lt-50-ldam-drw": 45.1,
    "cifar10-lt-ldam-drw-sam": 81.9,
    "cifar100-lt-ldam-drw-sam": 45.4,
    "cifar10-lt-vit": 62.6,
    "cifar10-lt-vit-crt": 68.9,
    "cifar10-lt-deit3": 59.1,
    "cifar10-lt-deit-lt-ldam": 84.8,
    "cifar10-lt-deit-lt-paco": 87.5,
    "cifar10-lt-50-deit-lt-ldam": 87.5,
    "cifar10-lt-50-deit-lt-paco": 89.8,
    "cifar100-lt-deit-lt-ldam": 52.0,
    "cifar100-lt-deit-lt-paco": 55.6,
    "cifar100-lt-50-deit-lt-ldam": 54.1,
    "cifar100-lt-50-deit-lt-paco": 60.5,
    "imagenet-lt-deit-lt-ldam": 55.6,
    "imagenet-lt-deit-lt-paco": 59.1,
    "inaturalist18-deit-lt-ldam": 72.9,
    "inaturalist18-deit-lt-paco": 75.1,
    "cifar100-lt-balanced-softmax-paco-view": 52.0,
    "cifar100-lt-balanced-softmax-paco-view-batchformer": 52.6,
    "cifar100-lt-200-balanced-softmax-paco-view": 47.31,
    "cifar100-lt-200-balanced-softmax-paco-view-batchformer": 48.13,
    "imagenet-lt-balanced-softmax-batchformer-unshared": 42.4,
    "cifar10-lt-10-mae": 89.5,
    "cifar100-lt-mae": 50.9,
    "cifar100-lt-10-mae": 66.1,
    "cifar10-lt-livt-cb": 82.0,
    "cifar10-lt-10-livt-cb": 89.9,
    "cifar100-lt-livt-cb": 52.0,
    "cifar100-lt-10-livt-cb": 66.8,
    "cifar10-lt-livt-ldam": 78.6,
    "cifar10-lt-10-livt-ldam": 88.6,
    "cifar100-lt-livt-ldam": 52.56,
    "cifar100-lt-10-livt-ldam": 66.1,
    "cifar10-lt-livt-lade": 68.8,
    "cifar10-lt-10-livt-lade": 81.7,
    "cifar100-lt-livt-lade": 56.7,
    "cifar100-lt-10-livt-lade": 68.2,
    "cifar10-lt-livt-ib": 75.4,
    "cifar10-lt-10-livt-ib": 79.2,
    "cifar100-lt-livt-ib": 50.8,
    "cifar100-lt-10-livt-ib": 51.6,
    "cifar10-lt-livt-bal-ce": 84.4,
    "cifar10-lt-10-livt-bal-ce": 90.7,
    "cifar100-lt-livt-bal-ce": 56.8,
    "cifar100-lt-10-livt-bal-ce": 68.1,
    "imagenet-lt-mae-tiny": 37.0,
    "imagenet-lt-livt-bal-ce-tiny": 41.4,
    "imagenet-lt-livt-bce-tiny": 21.6,
    "imagenet-lt-livt-tiny": 40.8,
    "imagenet-lt-mae-small": 49.5,
    "imagenet-lt-livt-bal-ce-small": 54.0,
    "imagenet-lt-livt-bce-small": 39.8,
    "imagenet-lt-livt-small": 54.1,
    "imagenet-lt-livt-bal-ce": 60.1,
    "imagenet-lt-livt-bce": 52.4,
    "imagenet-lt-mae-large": 57.4,
    "imagenet-lt-livt-bal-ce-large": 62.1,
    "imagenet-lt-livt-bce-large": 53.4,
    "imagenet-lt-livt-large": 62.6,
    "imagenet-lt-vit": 31.6,
    "imagenet-bal-vit": 38.7,
    "imagenet-bal-deit3": 67.2,
    "imagenet-bal-mae": 69.2,
    "imagenet-lt-deit3": 48.4,
    "inaturalist18-vit": 54.6,
    "inaturalist18-mae": 69.4,
    "inaturalist18-deit3": 61.0,
    "places-lt-mae": 30.3,
    "places-lt-deit3": 34.2,
    "inaturalist18-livt-ce-imagenet-lt": 56.4,
    "inaturalist18-livt-bal-bce-imagenet-lt": 60.7,
    "cifar10-lt-deit": 70.2,
    "cifar10-lt-50-deit": 77.5,
    "cifar100-lt-deit": 31.3,
    "cifar100-lt-50-deit": 39.1,
    "cifar10-lt-50-vit": 70.1,
    "cifar100-lt-vit": 35.0,
    "cifar100-lt-50-vit": 39.0,
    "cifar10-lt-50-vit-crt": 74.5,
    "cifar100-lt-vit-crt": 38.9,
    "cifar100-lt-50-vit-crt": 42.2,
    "cifar10-lt-50-deit3": 68.2,
    "cifar100-lt-deit3": 38.1,
    "cifar100-lt-50-deit3": 44.1,
    "cifar10-lt-50-ldam-drw-sam": 84.8,
    "cifar100-lt-50-ldam-drw-sam": 49.4,
    "cifar10-lt-paco-sam": 86.8,
    "cifar10-lt-50-paco-sam": 88.6,
    "cifar100-lt-paco-sam": 52.8,
    "cifar100-lt-50-paco-sam": 56.6,
    "cifar10-lt-deit-lt-weak-views": 54.2,
    "cifar10-lt-deit-lt-strong-views": 69.6,
    "cifar10-lt-deit-lt-strong-mixed-views": 79.4,
    "cifar10-lt-deit-lt-paco-without-sam-and-drw": 84.5,
    "cifar10-lt-deit-lt-paco-without-sam": 87.3,
    "cifar100-lt-deit-lt-paco-without-sam-and-drw": 48.9,
    "cifar100-lt-deit-lt-paco-without-sam": 54.5,
    "cifar10-lt-vit-ldam": 52.75,
    "cifar10-lt-deit-lt-paco-tiny": 80.8,
    "cifar10-lt-deit-lt-paco-small": 85.5,
    "cifar100-lt-deit-lt-paco-tiny": 49.3,
    "cifar100-lt-deit-lt-paco-small": 54.3,
    "imagenet-lt-vit-deit-lt": 37.5,
    "inaturalist18-vit-deit-lt": 54.2,
    "imagenet-lt-ldam-drw-sam": 53.1,
    "imagenet-lt-paco-sam": 57.5,
    "inaturalist18-ldam-drw-sam": 70.1,
    "inaturalist18-paco-sam": 73.4,
    "imagenet-lt-resnet10-balanced-softmax-batchformer-batch-16": 43.2,
    "imagenet-lt-resnet10-balanced-softmax-batchformer-batch-32": 43.6,
    "imagenet-lt-resnet10-balanced-softmax-batchformer-batch-64": 43.3,
    "imagenet-lt-resnet10-balanced-softmax-batchformer-batch-256": 42.4,
    "imagenet-lt-resnet10-balanced-softmax-batchformer-batch-512": 42.5,
    "imagenet-lt-resnet10-balanced-softmax-batchformer-layers-2": 43.2,
    "imagenet-lt-resnet10-balanced-softmax-batchformer-layers-4": 42.7,
    "imagenet-lt-resnet10-balanced-softmax-batchformer-layers-8": 43.3,
    "imagenet-lt-resnet10-balanced-softmax-batchformer-layers-16": 43.1,
    "inaturalist18-livt-ce-imagenet-bal": 55.9,
    "inaturalist18-livt-bal-bce-imagenet-bal": 59.0,
    "cifar10-lt-logit-adjustment": 77.7,
    "cifar100-lt-logit-adjustment": 43.9,
    "cifar100-lt-ride-four": 49.1,
    "pacs-resnet50-swad": 88.1,
    "imagenet-moco-v2": 67.5,
    "imagenet-moco-v2-batchformer": 68.4,
    "imagenet-moco-v3": 68.9,
    "imagenet-moco-v3-batchformer": 69.8,
    "imagenet-resnet50": 78.9,
    "imagenet-resnet50-batchformer": 78.9,
    "pacs-baseline": 79.1,
    "pacs-baseline-batchformer": 79.8,
    "pacs-erm": 82.0,
    "pacs-erm-batchformer": 82.4,
    "pacs-coral": 80.2,
    "pacs-coral-batchformer": 80.9,
    "pacs-irm": 78.9,
    "pacs-irm-batchformer": 79.4,
    "pacs-vrex": 81.3,
    "pacs-vrex-batchformer": 82.2,
    "pacs-mixstyle": 83.1,
    "pacs-mixstyle-batchformer": 83.7,
    "pacs-swad": 82.9,
    "pacs-swad-batchformer": 83.7,
    "pacs-resnet50-vrex": 85.0,
    "pacs-resnet50-vrex-batchformer": 85.6,
    "pacs-resnet50-irm": 85.8,
    "pacs-resnet50-irm-batchformer": 86.8,
    "pacs-resnet50-swad-batchformer": 88.6,
    "officehome-swad": 62.1,
    "officehome-swad-batchformer": 64.3,
    "officehome-resnet50-irm": 69.9,
    "officehome-resnet50-irm-batchformer": 70.6,
    "officehome-resnet50-swad": 70.6,
    "officehome-resnet50-swad-batchformer": 71.1,
    "vlcs-swad": 76.3,
    "vlcs-swad-batchformer": 76.9,
    "terra-swad": 42.1,
    "terra-swad-batchformer": 44.8,
    "mit-states-cge": 6.3,
    "mit-states-cge-batchformer": 6.7,
    "ut-zappos-cge": 31.5,
    "ut-zappos-cge-batchformer": 34.6,
    "c-gqa-cge": 3.7,
    "c-gqa-cge-batchformer": 3.8,
    "visda2017-mdd": 76.8,
    "visda2017-mdd-batchformer": 77.8,
    "cub-ce-gzsl": 66.3,
    "cub-ce-gzsl-batchformer": 67.0,
}
# Classes with more than 100 images, with fewer than 20, and those between
GROUPS: dict[tuple[str, float | None], tuple[int, ...]] = {
    ("imagenet-lt", None): (385, 479, 136),
    ("cifar100-lt", 100.0): (35, 35, 30),
    ("cifar100-lt", 200.0): (30, 31, 39),
    ("inaturalist18", None): (842, 4076, 3224),
}
ours = [entry for entry in PUBLISHED.values() if entry.source.startswith("our own: ")]


@pytest.mark.parametrize("entry", PUBLISHED.values(), ids=lambda entry: entry.name)
def test_a_row_can_be_requested(entry: Published) -> None:
    recipe = read(entry.recipe)
    assert recipe.name == entry.recipe, "a row names the recipe as runs do"
    keywords = entry.all_keywords(dict.fromkeys(entry.needed_keywords, "somewhere"))
    assert not {*entry.needs, *entry.begins_with} & set(entry.keywords)
    assert entry.is_folder == (entry.data not in KNOWN)
    assert entry.is_folder or (entry.data, entry.imbalance) in IMAGES
    assert entry.source
    assert entry.band
    assert entry.smoke is None or entry.smoke in SMOKES
    if entry.value is None:  # others start from it
        assert any(entry.name in row.begins_with.values() for row in PUBLISHED.values())
    else:
        assert entry.low is not None
        assert entry.high is not None
        assert entry.low < entry.value < entry.high, "a value lies in its own band"
    network = keywords["network"]
    if network.startswith("timm:"):
        import timm

        assert timm.is_model(network.removeprefix("timm:"))
    else:
        assert network in {*NETWORKS, "vectors"} or f"{network}_experts" in NETWORKS


def test_files_share_their_tables_and_no_name() -> None:
    one = {"settings": {"a": {"x": 1}}, "images": [{"data": "d", "images": 1}]}
    two = {"settings": {"b": {"x": 2}}, "rows": {"r": {}}, "images": [{"data": "e", "images": 2}]}
    content = merged({"one.toml": one, "two.toml": two})
    assert content["settings"] == {"a": {"x": 1}, "b": {"x": 2}}
    assert [entry["data"] for entry in content["images"]] == ["d", "e"]
    assert content["smokes"] == {}
    with pytest.raises(LongtailError, match=r"settings.a is in one.toml and in two.toml"):
        merged({"one.toml": one, "two.toml": {"settings": {"a": {}}}})
    with pytest.raises(LongtailError, match=r"unknown table of one.toml 'setings'"):
        merged({"one.toml": {"setings": {}}})


def test_enlarged_images_of_cifar_are_cropped_from_the_originals() -> None:
    """The authors take random parts of 32 pixels, and evaluate 224 of 256 of the enlarged image."""
    for entry in PUBLISHED.values():
        if entry.data.startswith("cifar"):
            keywords = {**entry.keywords, **dict.fromkeys(entry.needs)}
            size = read(entry.recipe).keywords(keywords)["size"]
            assert (entry.geometry == "crop") == (size is not None), entry.name


def test_rows_name_the_differences_of_their_recipe() -> None:
    differences = {name: "; ".join(PUBLISHED[name].differs) for name in PUBLISHED}
    # The released code of logit adjustment has Nesterov's momentum, as we have
    assert all(
        ("Nesterov" in differences[name])
        == (PUBLISHED[name].recipe == "balanced_softmax" and "logit-adjustment" not in name)
        for name in PRINTED
    )
    assert all(
        ("reflection" in differences[name]) <= PUBLISHED[name].data.startswith("cifar")
        for name in PRINTED
    )
    assert "reflection" in differences["cifar100-lt-paco"]


@pytest.mark.parametrize("entry", PUBLISHED.values(), ids=lambda entry: entry.name)
def test_columns_and_groups_fit_together(entry: Published) -> None:
    known = {"top1", "top5", "balanced", "many", "medium", "few", "seen", "unseen", "ece", "mce"}
    known |= {"hm", "best_seen", "best_unseen", "attribute", "object", *entry.test_domains}
    assert {name.rpartition("/")[2] for name in entry.columns} <= known
    if entry.test_domains:  # the value is about their mean; two are not, as they are printed
        assert {*entry.columns} == {*entry.test_domains}
        mean = statistics.fmean(entry.columns.values())
        assert entry.value == pytest.approx(mean, abs=0.003)
    assert all(0 < value < 1 for value in entry.columns.values())
    sizes = entry.group_sizes or GROUPS.get((entry.data, entry.imbalance), ())
    for table in entry.in_tables:
        numbers = entry.numbers(table)
        for head in ("", "cls/", "dist/"):
            groups = [numbers.get(f"{head}{name}") for name in ("many", "medium", "few")]
            value = numbers.get(f"{head}top1")
            if sizes and value is not None and None not in groups:
                # Groups partition the classes of a balanced test set, so their mean is the
                # accuracy. They were published with one decimal, and some for another seed.
                pairs = zip(groups, sizes, strict=True)
                mean = sum(of * size for of, size in pairs if of is not None) / sum(sizes)
                assert mean == pytest.approx(value, abs=0.012), (table, head)


def test_a_row_starts_from_a_row_on_the_same_data() -> None:
    started = [entry for entry in PUBLISHED.values() if entry.begins_with]
    assert started
    for entry in started:
        for other in entry.begins_with.values():
            before = PUBLISHED[other]
            same = (before.data, before.imbalance) == (entry.data, entry.imbalance)
            assert same or entry.is_pretrained, "only an encoder may have seen other data"
            assert not before.begins_with


def test_tables_have_names_and_rows() -> None:
    assert {"imagenet-lt-livt", "imagenet-lt-mae", "imagenet-lt-livt-384"} <= {*tables()["livt-2"]}
    assert len(tables()["livt-6"]) == 16
    assert {name for rows in tables().values() for name in rows} == {
        entry.name
        for entry in PUBLISHED.values()
        if entry.value and not entry.source.startswith("our own")
    }


def test_a_table_may_print_other_numbers_of_a_row_and_quote_others() -> None:
    row = PUBLISHED["cifar10-lt-deit-lt-paco"]
    assert row.in_tables == ("deit-lt-2", "deit-lt-5", "deit-lt-6", "deit-lt-s.3")
    assert [row.numbers(table)["top1"] for table in row.in_tables] == [0.875, 0.875, 0.875, 0.873]
    assert [row.numbers(f"deit-lt-{table}")["many"] for table in ("6", "s.3")] == [0.945, 0.938]
    assert "cls/few" in row.column_names
    for entry in PUBLISHED.values():
        assert {*entry.printed} <= {*entry.in_tables}, entry.name
        assert not entry.quoted or entry.value is not None, entry.name
    assert {*quotes()} <= {*tables()}
    for copied in quotes().values():
        assert len({quote.method for quote in copied}) == len(copied)
        for quote in copied:
            assert quote.row == "" or quote.row in PUBLISHED


def test_rows_that_start_from_different_runs_are_separated_by_their_folder() -> None:
    row = made(PUBLISHED["cifar10-lt-deit-lt-paco"])
    row["keywords"]["teacher"] = "elsewhere/seed=0"
    assert match(row) is PUBLISHED["cifar10-lt-deit-lt-paco"], "the first row with these settings"
    row["keywords"]["teacher"] = "runs/reproduce/cifar10-lt-paco/seed=0"
    assert match(row) is PUBLISHED["cifar10-lt-deit-lt-paco-without-sam"]


def test_values_are_those_that_were_printed() -> None:
    values = {name: PUBLISHED[name].value or 0.0 for name in PRINTED}
    assert {name: round(100 * value, 3) for name, value in values.items()} == PRINTED
    starts = {entry.name for entry in PUBLISHED.values() if entry.value is None}
    assert {*PUBLISHED} - {entry.name for entry in ours} - starts == {*PRINTED}


def test_bands_are_wide_enough_and_say_why() -> None:
    for entry in PUBLISHED.values():
        if entry.low is None or entry.high is None:
            continue
        middle, wide = (entry.low + entry.high) / 2, (entry.high - entry.low) / 2
        assert wide >= 0.01 - 1e-6
        if "gives no deviation" in entry.band:
            assert middle == pytest.approx(entry.value)
            assert wide == pytest.approx(0.01)
    # Table S.3: 54.8 with a standard error of 0.42 over three seeds.
    paco = PUBLISHED["cifar100-lt-deit-lt-paco"]
    assert (paco.low, paco.high) == pytest.approx(
        (0.548 - 3 * 0.0042 * 3**0.5, 0.548 + 3 * 0.0042 * 3**0.5), abs=1e-3
    )


@pytest.mark.parametrize("entry", ours, ids=lambda entry: entry.name)
def test_our_rows_agree_with_the_results(entry: Published) -> None:
    folder, arm = entry.source.removeprefix("our own: benchmarks/results/").split("/")
    results = [
        json.loads(path.read_text())
        for path in sorted((BENCHMARKS / "results" / folder).glob(f"{arm}-seed*.json"))
    ]
    values = [result["row"]["test"]["top1"] for result in results]
    assert len(values) == 3
    wide = max(0.01, 3 * statistics.stdev(values))
    assert (entry.value, entry.low, entry.high) == pytest.approx(
        (
            statistics.fmean(values),
            statistics.fmean(values) - wide,
            statistics.fmean(values) + wide,
        ),
        abs=1e-5,
    )
    for result in results:
        assert match(result["row"]) is entry, "the runs that made the row match it"


def test_smokes_say_what_the_results_say_and_run_what_the_plan_ran() -> None:
    plan = json.loads((BENCHMARKS / "plans" / "digits_lt_smokes.json").read_text())
    assert set(plan["arms"]) == set(SMOKES)
    variances = []
    for arm, smoke in SMOKES.items():
        settings = {**plan["settings"], **plan["arms"][arm]}
        recipe = settings.pop("recipe")
        assert smoke.keywords == current_keywords(recipe, settings)
        used = [row.recipe for row in PUBLISHED.values() if row.smoke == arm]
        assert set(used) == {recipe}, "a smoke has the recipe of its rows"
        paths = sorted((BENCHMARKS / "results" / "digits_lt_smokes").glob(f"{arm}-seed?.json"))
        values = [json.loads(path.read_text())["row"]["test"]["top1"] for path in paths]
        assert len(values) == 3
        assert smoke.value == pytest.approx(statistics.fmean(values), abs=1e-5)
        assert smoke.low > 0.2, "far above chance"
        variances.append(statistics.variance(values))
    wide = 3 * statistics.fmean(variances) ** 0.5
    assert {round(100 * wide)} == {
        round(100 * (smoke.high - smoke.low) / 2) for smoke in SMOKES.values()
    }


def made(entry: Published, **changes: Any) -> Any:
    """The row that a run with these settings would have, as far as matching reads it."""
    started = {name: f"runs/reproduce/{other}/seed=0" for name, other in entry.begins_with.items()}
    keywords = entry.all_keywords({**dict.fromkeys(entry.needed_keywords, "somewhere"), **started})
    data = {
        "name": entry.data,
        "protocol": entry.protocol,
        "geometry": "crop",
        "counts_before": [IMAGES[entry.data, entry.imbalance] - 5, 5],
    }
    row = {
        "recipe": entry.recipe,
        "keywords": keywords,
        "data": data,
        "tta": entry.tta,
        "split_seed": 0,
    }
    before = f"{entry.learnt_from or 'ImageNet-1K'}, 100 images"
    return {**row, "pretraining": before if entry.is_pretrained else None, **changes}


@pytest.mark.parametrize(
    "entry",
    [entry for entry in PUBLISHED.values() if not entry.is_folder],
    ids=lambda entry: entry.name,
)
def test_a_run_with_the_settings_of_a_row_matches_it_and_no_other(entry: Published) -> None:
    row = made(entry)
    assert match(row) is (None if entry.value is None else entry)
    assert (
        match(row | {"keywords": {**row["keywords"], "epochs": row["keywords"]["epochs"] - 1}})
        is None
    )
    assert match(row | {"keywords": {**row["keywords"], "unheard": 1}}) is None
    assert match(row | {"data": {**row["data"], "counts_before": [7, 5]}}) is None
    other = match(row | {"pretraining": None if row["pretraining"] else "other data"})
    # Fine-tuning differs in what the encoder has seen alone (LiVT's tables 3 and 5)
    assert other is None or entry.data == "inaturalist18"
    assert other is not entry
    assert match(row | {"adjustment": {"tau": 1.0}}) is None
    padded = match(row | {"data": {**row["data"], "geometry": "pad"}})
    square = entry.data in ("cifar10-lt", "cifar100-lt", "digits-lt")
    if entry.value is not None:
        assert (padded is entry) == (square and entry.geometry is None)


def test_a_run_from_before_a_keyword_was_there_matches() -> None:
    row = made(PUBLISHED["cifar100-lt-ride"])
    del row["keywords"]["class_temperature"]
    assert match(row) is PUBLISHED["cifar100-lt-ride"]


def test_verdicts() -> None:
    entry = PUBLISHED["cifar100-lt-balanced-softmax"]
    assert [entry.verdict(value) for value in (0.496, 0.497, 0.507, 0.517, 0.518)] == [
        "below",
        "inside",
        "inside",
        "inside",
        "above",
    ]


def test_reading_it_needs_no_torch() -> None:
    code = (
        "import sys, longtail.recipes.published; assert not {'torch', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "entry", [entry for entry in PUBLISHED.values() if entry.needs], ids=lambda entry: entry.name
)
def test_rows_say_nothing_about_what_they_are_given(entry: Published) -> None:
    idle: dict[str, tuple[str, ...]] = {
        "teacher": ("teacher_network", "teacher_epochs", "teacher_rho", "teacher_schedule")
    }
    idle["weights"] = (
        "mask",
        "decoder_width",
        "decoder_depth",
        "decoder_heads",
        "pretrain_epochs",
        "pretrain_batch",
        "pretrain_lr",
    )
    assert not [
        name for given in entry.needs for name in idle.get(given, ()) if name in entry.keywords
    ]
