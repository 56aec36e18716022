"""The keywords of a recipe, read from its source: no recipe is imported, so no torch either."""

from __future__ import annotations

import ast
import importlib.util
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from longtail.data.request import data_flags
from longtail.deprecated import KEYWORDS, MOVED, RENAMED, current_keyword
from longtail.errors import LongtailError
from longtail.naming import meant, search_current_folder, unknown
from longtail.recipes import RECIPES
from longtail.recipes.bounds import check_bounds

RESERVED = frozenset(
    {"recipe", "data", "out", "debug", "help"}
    | {*data_flags()}
    | {
        "seed",
        "view_seed",
        "device",
        "precision",
        "threads",
        "workers",
        "save_every",
        "dry_run",
        "tta",
        "adjust",
        "epoch_plan",
        "minutes",
        "tensorboard",
        "trust",
    }
    | {"compile", "sync_batchnorm"}
)
"""The names of the data and run flags; no recipe may use them for a keyword."""

_SCALARS = {"bool": "bool", "int": "int", "float": "float", "str": "str", "Path": "Path"}
_LISTS = frozenset({"list", "tuple", "Sequence"})


@dataclass(frozen=True)
class Parameter:
    """One keyword of a recipe: its type, its default, and how to read it from text."""

    name: str
    scalar: str  # "bool" | "int" | "float" | "str" | "Path" | "Literal"
    default: Any
    required: bool = False
    choices: tuple[Any, ...] = ()
    many: bool = False  # a list of scalars
    optional: bool = False  # None is a value

    @property
    def kind(self) -> str:
        """The type as a person would say it."""
        one = " | ".join(map(str, self.choices)) if self.choices else self.scalar
        return f"{f'list of {one}' if self.many else one}{' | none' if self.optional else ''}"

    def parse(self, text: str) -> Any:
        """Read a value from the command line; items of a list are separated by commas."""
        if self.optional and text.lower() == "none":
            return None
        if self.many:
            return [self._scalar(part.strip(), text) for part in text.split(",") if part.strip()]
        return self._scalar(text, text)

    def check(self, value: Any) -> Any:
        """Accept a value from Python; lists come back as lists and paths as text, as in JSON."""
        if value is None and self.optional:
            return None
        if self.many:
            if isinstance(value, str) or not isinstance(value, Sequence):
                raise self._wrong(value)
            return [self._accept(item, value) for item in value]
        return self._accept(value, value)

    def _accept(self, item: Any, given: Any) -> Any:
        if self.choices:
            if not any(item == choice and type(item) is type(choice) for choice in self.choices):
                raise self._wrong(given)
            return item
        kinds = {
            "bool": bool,
            "int": int,
            "float": int | float,
            "str": str | Path,
            "Path": str | Path,
        }
        if not isinstance(item, kinds[self.scalar]) or (
            isinstance(item, bool) and self.scalar != "bool"
        ):
            raise self._wrong(given)
        if isinstance(item, float) and not math.isfinite(item):
            raise self._wrong(given)
        return (
            float(item) if self.scalar == "float" else str(item) if isinstance(item, Path) else item
        )

    def _scalar(self, text: str, given: str) -> Any:
        if self.choices:
            named = {str(choice): choice for choice in self.choices}
            if text not in named:
                raise self._wrong(given)
            return named[text]
        if self.scalar == "bool":
            if text.lower() not in ("true", "false"):
                raise self._wrong(given)
            return text.lower() == "true"
        try:
            read = (
                int(text)
                if self.scalar == "int"
                else float(text)
                if self.scalar == "float"
                else text
            )
        except ValueError:
            raise self._wrong(given) from None
        if isinstance(read, float) and not math.isfinite(read):
            raise self._wrong(given)
        return read

    def _wrong(self, value: object) -> LongtailError:
        guess = meant(str(value), map(str, self.choices))
        return LongtailError(
            f"expected {self.name} to be {self.kind}, got {value!r}"
            + (f": {guess}" if guess else "")
        )


@dataclass(frozen=True)
class Recipe:
    """A recipe as its source tells it."""

    name: str
    target: str  # "package.module:function"
    parameters: Mapping[str, Parameter]
    doc: str
    source: str  # of the function, and of those that it passes `**keywords` on to
    module_source: str
    separate_rows: Mapping[str, tuple[str, ...]] | None = None
    """Beginnings of the values of keywords with which the rows of a batch do not see each other.

    The module of a recipe declares them as SEPARATE_ROWS; without that, rows see each other.
    """

    def rows_are_separate(self, keywords: Mapping[str, Any]) -> bool:
        """Whether no row of a batch has an influence on what another row adds to the gradient."""
        return self.separate_rows is not None and all(
            str(keywords[name]).startswith(beginnings)
            for name, beginnings in self.separate_rows.items()
            if name in keywords
        )

    @property
    def headline(self) -> str:
        """The first line of the docstring."""
        return self.doc.partition("\n")[0]

    @property
    def old_names(self) -> Mapping[str, str]:
        """Old names of keywords, which are still accepted, and the current ones."""
        if ":" in self.name:
            return {}
        return {old: new for old, new in KEYWORDS.items() if new in self.parameters}

    def parameter(self, name: str) -> Parameter:
        """A parameter by its name or an old name."""
        current = current_keyword(self.name, name)
        if current not in self.parameters:
            raise unknown(f"keyword of {self.name}", name, self.parameters)
        return self.parameters[current]

    def keywords(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The values of all keywords: those that are given, checked, and defaults for the rest."""
        for old, new in self.old_names.items():
            if old in given and new in given:
                raise LongtailError(f"{old} is a deprecated name of {new}: pass only one of them")
        given = {current_keyword(self.name, name): value for name, value in given.items()}
        for name in given:
            if name not in self.parameters:
                raise unknown(f"keyword of {self.name}", name, self.parameters)
        missing = [
            name
            for name, parameter in self.parameters.items()
            if parameter.required and name not in given
        ]
        if missing:
            raise LongtailError(
                f"{self.name} expects {', '.join(missing)}, got nothing for it: "
                f"pass --{missing[0].replace('_', '-')} VALUE"
            )
        checked = {name: self.parameters[name].check(value) for name, value in given.items()}
        if ":" not in self.name:  # a custom recipe may give a keyword another meaning
            check_bounds(checked)
        return {
            name: checked.get(name, parameter.default)
            for name, parameter in self.parameters.items()
        }


def read(name: str) -> Recipe:
    """Read a recipe's source by its name in `RECIPES`, or as `package.module:function`."""
    function, module, target = _function(name)
    parameters, sources = _signature(function, module, target)
    return Recipe(
        name=function.name if target in RECIPES.values() else target,
        target=target,
        parameters=parameters,
        doc=ast.get_docstring(function) or "",
        source="\n\n\n".join(sources),
        module_source=_parsed(module)[0],
        separate_rows=_declared("SEPARATE_ROWS", module),
    )


def headline(name: str) -> str:
    """The first line of a recipe's docstring; its keywords are not read.

    >>> headline("logit_adjustment") == read("logit_adjustment").headline
    True
    """
    return (ast.get_docstring(_function(name)[0]) or "").partition("\n")[0]


def _function(name: str) -> tuple[ast.FunctionDef, str, str]:
    """The definition of a recipe, its module, and both as `package.module:function`."""
    if name not in RECIPES and ":" not in name:
        raise unknown(
            "recipe", name, RECIPES, more="; for a custom recipe pass package.module:function"
        )
    target = RECIPES.get(name, name)
    module, _, function = target.partition(":")
    functions = {
        node.name: node for node in _parsed(module)[1].body if isinstance(node, ast.FunctionDef)
    }
    if function not in functions:
        raise unknown(
            f"function in {module}",
            function,
            (name for name in functions if not name.startswith("_")),
        )
    return functions[function], module, target


@cache
def _parsed(module: str) -> tuple[str, ast.Module]:
    text = _source(module)
    return text, ast.parse(text)


def _text(node: ast.FunctionDef, module: str) -> str:
    """The source of a function; `ast.get_source_segment` would split the module's text anew."""
    lines = _parsed(module)[0].splitlines()
    return "\n".join(lines[node.lineno - 1 : node.end_lineno])


@cache
def _definition(name: str, module: str) -> tuple[ast.expr | ast.FunctionDef, str] | None:
    """What a name stands for in a module, and the module where that is written.

    A value (`Augment = Literal[...]`) or a function, defined in the module or imported into it.
    """
    for node in reversed(_parsed(module)[1].body):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node, module
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                return node.value, module
        elif isinstance(node, ast.ImportFrom):
            for imported in node.names:
                if name == (imported.asname or imported.name):
                    origin = importlib.util.resolve_name(
                        "." * node.level + (node.module or ""), _package(module)
                    )
                    origin = MOVED.get(origin, origin)
                    new = RENAMED.get(origin, {}).get(imported.name, imported.name)
                    return _definition(new, origin) if _file(origin) else None
    return None


def _value_of(name: str, module: str) -> tuple[ast.expr, str] | None:
    definition = _definition(name, module)
    if definition is None or isinstance(definition[0], ast.FunctionDef):
        return None
    return definition[0], definition[1]


def _declared(name: str, module: str) -> Any:
    """A literal that a module declares, or takes over from another; None if it does not."""
    while (value := _value_of(name, module)) and isinstance(value[0], ast.Name):
        name, module = value[0].id, value[1]
    return None if value is None else ast.literal_eval(value[0])


def _source(module: str) -> str:
    path = _file(module)
    if path is None:
        raise LongtailError(
            f"expected a Python module with recipes, got {module!r}, which is not found: "
            "run from its folder, or install it"
        )
    return path.read_text(encoding="utf-8")


def _package(module: str) -> str:
    path = _file(module)
    return module if path is not None and path.name == "__init__.py" else module.rpartition(".")[0]


def _file(module: str) -> Path | None:
    """The source of a module. No package that it lies in is imported: that might import torch."""
    top, *inner = module.split(".")
    if top != "longtail":  # only for code that the person names: the folder may be a stranger's
        search_current_folder(module)
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    name = top
    for part in inner:
        if spec is None or spec.submodule_search_locations is None:
            return None
        name = f"{name}.{part}"
        spec = PathFinder.find_spec(name, spec.submodule_search_locations)
    return (
        Path(spec.origin)
        if spec is not None and spec.origin is not None and spec.origin.endswith(".py")
        else None
    )


def _signature(
    node: ast.FunctionDef, module: str, target: str
) -> tuple[dict[str, Parameter], list[str]]:
    """The keywords of a recipe, and the source of the functions that declare them.

    A recipe that passes `**keywords` on to another function has the keywords of that function too,
    but for those that it sets in the call.
    """
    if len(node.args.posonlyargs) + len(node.args.args) != 2 or node.args.vararg:
        raise LongtailError(
            f"expected a recipe `(run, data, *, keywords)`, got other parameters in {target}: "
            "keep two, then keywords only"
        )
    parameters = dict(_keyword_only(node, module, target))
    sources = [_text(node, module)]
    fixed = set(parameters)
    while node.args.kwarg is not None:
        call, (node, module) = _forwarding(node, module, target)
        sources.append(_text(node, module))
        fixed |= {keyword.arg for keyword in call.keywords if keyword.arg is not None}
        inherited = dict(_keyword_only(node, module, target, inherited=True))
        parameters |= {
            name: parameter for name, parameter in inherited.items() if name not in fixed
        }
    return parameters, sources


def _forwarding(
    node: ast.FunctionDef, module: str, target: str
) -> tuple[ast.Call, tuple[ast.FunctionDef, str]]:
    """The call that a function passes its `**keywords` to, and the function that is called."""
    assert node.args.kwarg is not None
    group = node.args.kwarg.arg
    calls = [
        call
        for call in ast.walk(node)
        if isinstance(call, ast.Call)
        and any(
            keyword.arg is None
            and isinstance(keyword.value, ast.Name)
            and keyword.value.id == group
            for keyword in call.keywords
        )
    ]
    if len(calls) == 1 and isinstance(calls[0].func, ast.Name):
        definition = _definition(calls[0].func.id, module)
        if definition is not None and isinstance(definition[0], ast.FunctionDef):
            return calls[0], (definition[0], definition[1])
    raise LongtailError(
        f"expected {target} to pass `**{group}` on to one function of its module, or one imported "
        "from another: its keywords are read there. Name the keywords instead"
    )


def _keyword_only(
    node: ast.FunctionDef, module: str, target: str, *, inherited: bool = False
) -> Iterator[tuple[str, Parameter]]:
    """The keyword-only parameters; if `inherited`, only those whose type a flag can have."""
    for argument, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
        if argument.arg in RESERVED:
            raise LongtailError(
                f"expected keywords that are not data or run flags, got {argument.arg!r} in "
                f"{target}: rename it"
            )
        where = f"{argument.arg} of {target}"
        if argument.annotation is None:
            raise LongtailError(
                f"expected a type for {where}, got none: annotate it, for instance as int"
            )
        try:
            scalar, choices, many, optional = _type(argument.annotation, module, where)
        except LongtailError:
            if inherited:
                continue
            raise
        yield (
            argument.arg,
            Parameter(
                argument.arg,
                scalar,
                _value(default, module, where),
                required=default is None,
                choices=choices,
                many=many,
                optional=optional,
            ),
        )


def _value(node: ast.expr | None, module: str, where: str) -> Any:
    if node is None:
        return None
    if isinstance(node, ast.Name) and (value := _value_of(node.id, module)):
        node = value[0]
    try:
        value = ast.literal_eval(node)
    except ValueError:
        raise LongtailError(
            f"expected a literal as default for {where}, got {ast.unparse(node)}: "
            "write the value itself"
        ) from None
    return list(value) if isinstance(value, tuple) else value


def _type(node: ast.expr, module: str, where: str) -> tuple[str, tuple[Any, ...], bool, bool]:
    """Scalar, choices, many, optional."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        node = ast.parse(node.value, mode="eval").body
    if (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.BitOr)
        and isinstance(node.right, ast.Constant)
        and node.right.value is None
    ):
        scalar, choices, many, _ = _type(node.left, module, where)
        return scalar, choices, many, True
    if isinstance(node, ast.Name) and node.id in _SCALARS:
        return _SCALARS[node.id], (), False, False
    if isinstance(node, ast.Name) and (value := _value_of(node.id, module)):
        return _type(*value, where)
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if node.value.id == "Literal":
            return "Literal", tuple(ast.literal_eval(item) for item in inner), False, False
        if node.value.id in _LISTS:
            scalar, choices, many, optional = _type(inner[0], module, where)
            if not many and not optional:
                return scalar, choices, True, False
    raise LongtailError(
        "expected bool, int, float, str, Path, Literal, a list of these, or one of these `| None` "
        f"for {where}, got {ast.unparse(node)}"
    )
