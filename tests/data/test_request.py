import inspect
import subprocess
import sys
from typing import Any

import pytest

from longtail.data.request import DataRequest, data_flags, data_help, flag_words, parse_field
from longtail.errors import LongtailError
from longtail.runs import train


def test_python_has_every_field_with_its_default() -> None:
    parameters = inspect.signature(train).parameters
    for name, field in data_flags().items():
        assert parameters[name].default == field.default
        assert data_help()[name].endswith(".")


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("imbalance", "10", 10.0),
        ("imbalance", "none", None),
        ("profile", "step", "step"),
        ("split_seed", "3", 3),
        ("mirror", "false", False),
        ("geometry", "stretch", "stretch"),
        ("scoring", "top1", "top1"),
    ],
)
def test_a_field_is_read_from_text(name: str, text: str, value: Any) -> None:
    read = parse_field(name, text)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("imbalance", "ten", "expected imbalance to be float, got 'ten'"),
        ("imbalance", "inf", "finite"),
        ("profile", "none", "exp or step or pareto, got 'none'"),
        ("mirror", "yes", "expected mirror to be bool"),
        ("imbalence", "10", "did you mean imbalance"),
    ],
)
def test_what_cannot_be_read_is_refused(name: str, text: str, message: str) -> None:
    with pytest.raises(LongtailError, match=message):
        parse_field(name, text)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"protocol": "none"}, "expected --protocol holdout or paper or adapt, got 'none'"),
        ({"geometry": "fold"}, "expected --geometry pad or crop or stretch, got 'fold'"),
        ({"on_bad_image": None}, "expected --on-bad-image refuse or skip, got None"),
        ({"split_seed": -1}, "--split-seed must be 0 or more"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(LongtailError, match=message):
        DataRequest("digits-lt", **flags)


def test_a_request_comes_back_from_its_flags_and_says_what_is_not_the_default() -> None:
    request = DataRequest("photos", root="here", imbalance=50.0, mirror=False)
    assert DataRequest.from_flags("photos", {**request.flags(), "name": "x"}) == request
    assert request.words() == ["--root", "here", "--imbalance", "50.0", "--no-mirror"]
    assert not DataRequest("photos").words()
    assert flag_words({"sizes": [8, 16]}) == ["--sizes", "8,16"]


def test_what_moved_is_found_at_another_root() -> None:
    assert DataRequest("digits-lt").with_root("there").root == "there"
    assert DataRequest("list.csv").with_root("there").root == "there"
    assert DataRequest("photos", root=None).with_root("there") == DataRequest("there")


def test_it_imports_no_torch() -> None:
    code = "import sys, longtail.data.request; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
