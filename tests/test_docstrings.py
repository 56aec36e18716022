"""Docstrings state what a caller must know: `Args:` where there are more than four parameters."""

import ast
from collections.abc import Iterator
from pathlib import Path

import longtail
from longtail.recipes import RECIPES

SOURCE = Path(longtail.__file__).parent
MOST = 4  # parameters that one sentence can explain
# Options of commands have help texts, and keywords of recipes are explained in recipes/keywords.py.
# All losses take the arguments that losses/reduction.py explains.
EXPLAINED_ELSEWHERE = ("cli/", "losses/")
COORDINATES = ("text", "line", "rect", "image")  # elements of report/svg.py


def undocumented(source: str) -> Iterator[str]:
    """The public functions and classes with many parameters, none of which is explained."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            methods = [part for part in node.body if isinstance(part, ast.FunctionDef)]
            init = next((method for method in methods if method.name == "__init__"), None)
            functions = [(node.name, init, ast.get_docstring(node))] * (init is not None)
        elif isinstance(node, ast.FunctionDef) and node.name != "__init__":
            functions = [(node.name, node, ast.get_docstring(node))]
        else:
            continue
        for name, function, doc in functions:
            assert function is not None
            taken = [*function.args.args, *function.args.kwonlyargs]
            many = len([part for part in taken if part.arg not in ("self", "cls")]) > MOST
            if many and not name.startswith("_") and "Args:" not in (doc or ""):
                yield name


def test_a_function_without_explained_parameters_is_found() -> None:
    many = "def f(a, b, c, d, *, e):\n    {}"
    assert [*undocumented(many.format('"""Do it."""'))] == ["f"]
    assert not [*undocumented(many.format('"""Do it.\n\n    Args:\n        a: one.\n    """'))]
    assert not [*undocumented("def f(a, b, c, d): ...\ndef _g(a, b, c, d, e): ...")]
    assert [*undocumented("class A:\n    def __init__(self, a, b, c, d, e): ...")] == ["A"]


def test_many_parameters_are_explained() -> None:
    recipes = {target.partition(":")[2] for target in RECIPES.values()}
    missing = [
        f"{path.relative_to(SOURCE)}: {name}"
        for path in sorted(SOURCE.rglob("*.py"))
        if not path.relative_to(SOURCE).as_posix().startswith(EXPLAINED_ELSEWHERE)
        for name in undocumented(path.read_text(encoding="utf-8"))
        if name not in recipes and name not in COORDINATES
    ]
    assert not missing
