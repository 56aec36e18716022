"""Wrong words, odd environments and broken outputs: list, show, doctor and demo."""

from __future__ import annotations

from hostile_cases import Case, Place

ATTACK = "open('executed', 'w').close()\n"
"""A module of a stranger's folder that shows that it was imported."""


def strangers_modules(place: Place) -> None:
    """Modules in the working folder with the names of things that longtail imports."""
    for name in ("wandb", "tensorboard", "torch", "timm", "numpy", "typer", "PIL", "onnx", "rich"):
        place.write(f"{name}.py", ATTACK)


def not_executed(place: Place, output: str) -> None:
    assert not (place / "executed").exists(), "a module of the working folder was executed"


def refused(name: str, *argv: str, message: str, point: int = 0) -> Case:
    """A case of wrong words that ends with exit code 2."""
    return Case(name, argv, point=point, message=message)


def safe(verb: str, *argv: str) -> Case:
    """A verb in a folder that has modules of a stranger."""
    return Case(
        f"{verb}-strangers-modules",
        (verb, *argv),
        point=12,
        code=0,
        setup=strangers_modules,
        check=not_executed,
    )


CASES = [
    refused("no-such-verb", "trian", message="No such command 'trian'"),
    refused("list-extra-word", "list", "recipes", message="unexpected extra argument"),
    refused("list-unknown-flag", "list", "--all", message="No such option"),
    Case(
        "list-ascii-terminal", ("list",), code=0, env={"PYTHONIOENCODING": "ascii"}, message="auto"
    ),
    Case("list-no-home", ("list",), code=0, env={"HOME": None, "XDG_CACHE_HOME": None}),
    Case("list-one-column", ("list",), code=0, env={"COLUMNS": "1"}),
    Case("list-zero-columns", ("list",), code=0, env={"COLUMNS": "0"}),
    Case("list-negative-columns", ("list",), code=0, env={"COLUMNS": "-5"}),
    Case("list-nonsense-columns", ("list",), code=0, env={"COLUMNS": "wide"}),
    Case("list-dumb-terminal", ("list",), code=0, env={"TERM": "dumb", "NO_COLOR": "1"}),
    Case(
        "list-full-disk", ("list",), point=16, stdout="/dev/full", message="error: .*No space left"
    ),
    safe("list"),
    refused("show-unknown", "show", "balanced_softmx", message="did you mean balanced_softmax"),
    refused("show-nothing", "show", message="Missing argument"),
    refused("show-empty", "show", "", message="unknown recipe ''"),
    refused("show-colon", "show", ":", message="error: "),
    refused("show-no-module", "show", "nowhere.module:function", message="not found", point=13),
    refused("show-no-function", "show", "json:nothing", message="unknown function in json"),
    refused("show-path", "show", "../../etc/passwd:x", message="error: ", point=13),
    refused(
        "show-control", "show", "\x1b[31mred", message=r"unknown recipe '\\x1b\[31mred'", point=15
    ),
    Case("show-null-flag", ("show", "cross_entropy", "--cite"), code=0, message="no citation|@"),
    safe("show", "cross_entropy"),
    refused("doctor-extra", "doctor", "now", message="unexpected extra argument"),
    Case("doctor-no-home", ("doctor",), code=0, env={"HOME": None, "XDG_CACHE_HOME": None}),
    Case("doctor-threads", ("doctor",), code=0, env={"OMP_NUM_THREADS": "many"}, message="next:"),
    safe("doctor"),
    refused(
        "demo-negative-threads", "demo", "--threads", "-1", message="error: .*thread", point=11
    ),
    refused("demo-zero-threads", "demo", "--threads", "0", message="error: .*thread", point=11),
    refused(
        "demo-huge-threads",
        "demo",
        "--threads",
        "1" + "0" * 22,
        message="error: .*thread",
        point=11,
    ),
    Case(
        "demo-out-is-a-file",
        ("demo", "--out", "demo"),
        setup=lambda place: place.write("demo", "precious"),
        message="error: ",
    ),
    refused("demo-out-in-a-device", "demo", "--out", "/dev/null/x", message="error: ", point=3),
]
