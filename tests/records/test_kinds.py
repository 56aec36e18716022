"""What format 1 of each kind of file becomes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from longtail.records.documents import FORMAT, read_document
from longtail.records.kinds import CHOICE, STAGE, TEACHER, read_recipe, upgrade_folder
from longtail.records.layout import RunFolder

FORMAT1 = Path(__file__).parents[1] / "format1"


def test_a_recipe_of_format_1_says_where_its_data_came_from() -> None:
    before = json.loads((FORMAT1 / "unfinished" / "recipe.json").read_text())
    record = read_recipe(FORMAT1 / "unfinished")
    assert record["data"].pop("source") == before["data"].pop("asked") == "digits-lt"
    keywords = before["keywords"]
    for old, new in (("plain", "plain_weight"), ("attended", "batchformer_weight")):
        assert record["keywords"][new] == keywords.pop(old)
        assert old not in record["keywords"]
    assert record["keywords"].items() >= {"epochs": 8, "ema": 0.9}.items()
    assert record == before | {"format": FORMAT, "keywords": record["keywords"]}


def test_a_choice_of_format_1_gives_its_reason(tmp_path: Path) -> None:
    path = RunFolder(tmp_path).choice
    old = {"format": 1, "command": "c", "recipe": "r", "keywords": {}, "adjust": "none"}
    path.write_text(json.dumps(old | {"why": "w", "minutes": 1.5, "asked_minutes": 2}))
    assert read_document(path, CHOICE) == old | {
        "format": FORMAT,
        "reason": "w",
        "minutes": 1.5,
        "requested_minutes": 2,
    }


def test_every_file_of_an_unfinished_folder_is_upgraded(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    shutil.copytree(FORMAT1 / "unfinished", run.path)
    run.teacher_record.write_text(json.dumps({"teacher": "runs/a", "weights": "0" * 64}))
    stage = run.stage("train")
    done = {"name": "train", "epochs": 8, "minutes": 0.1, "keep": "last epoch", "best": None}
    stage.record.write_text(json.dumps(done))
    others = {path: path.read_bytes() for path in (stage.checkpoint, stage.journal, run.sessions)}
    expected = read_recipe(run.path)
    upgrade_folder(run.path)
    assert json.loads(run.recipe.read_text()) == expected
    assert json.loads(stage.record.read_text()) == {"format": FORMAT, **done}
    assert read_document(stage.record, STAGE)["minutes"] == 0.1
    assert read_document(run.teacher_record, TEACHER)["teacher"] == "runs/a"
    for path in (run.recipe, run.teacher_record, stage.record):
        assert json.loads(path.read_text())["format"] == FORMAT
    assert {path: path.read_bytes() for path in others} == others
    assert not run.choice.exists()
