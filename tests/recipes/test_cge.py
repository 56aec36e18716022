from pathlib import Path

import pytest
from pair_data import pair_features
from pair_files import write_layout

from longtail.data.open import open_data
from longtail.data.readers.pairs import PAIR_DATA
from longtail.data.request import data_flags
from longtail.engine.run import Run
from longtail.errors import LongtailError
from longtail.experiments.reproduce import plan
from longtail.recipes.cge import cge
from longtail.recipes.published import Published, published
from longtail.testing import check_recipe

QUICK = {"epochs": 2, "batch": 16, "hidden": 12, "graph_width": 10}


@pytest.mark.parametrize(
    "keywords",
    [{}, {"batchformer": "on"}, {"batchformer": "frozen", "dim": 6}, {"batchformer": "self"}],
)
def test_cge_on_features(keywords: dict[str, object]) -> None:
    check_recipe(cge, pair_features(), network="vectors", **QUICK, **keywords)


def test_cge_learns_vectors_where_none_are_given() -> None:
    check_recipe(cge, pair_features(words=False), network="vectors", word_dim=5, **QUICK)


ROWS = [row for row in published().values() if row.data in PAIR_DATA]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_published_rows_can_be_run(tmp_path: Path, row: Published) -> None:
    root, words = write_layout(tmp_path / "data"), tmp_path / "words.txt"
    names = ["red", "blue", "wet", "old", "shirt", "shoe", "dog"]
    words.write_text("".join(f"{word} {i} {i % 3} 1\n" for i, word in enumerate(names)))
    settings = {"word_vectors": str(words), "weights": "random"}
    with pytest.raises(LongtailError, match="needs word_vectors"):
        plan(row, tmp_path / "runs", flags={"root": str(root)})
    (job,) = plan(row, tmp_path / "runs", seeds=[0], settings=settings, flags={"root": str(root)})
    call = job.call()
    data = open_data(call["data"], **{name: call[name] for name in data_flags() if name in call})
    method = cge(Run(tmp_path / "run", dry="rehearse"), data, **job.keywords)
    assert method.deploy().dim == len(data.classes) == 9


def test_cge_refuses_classes_that_are_no_pairs() -> None:
    with pytest.raises(LongtailError, match="are no pairs of an attribute and an object"):
        check_recipe(cge, open_data("digits-lt"))
