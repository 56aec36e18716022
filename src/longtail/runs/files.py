"""The JSON files of a run folder: whole or not there, with a format version, and refused in words when they cannot be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from longtail.engine.checkpoint import write_atomically

FORMAT = 1
"""Of recipe.json and model/spec.json; raised when an older longtail would misread them."""


def write_json(path: Path, content: object) -> None:
    """Write a JSON file in one move."""
    write_text(path, json.dumps(content, indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text file in one move."""
    write_atomically(path, lambda file: file.write(text.encode()))


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file of a run, of this format version or an older one."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"expected a run folder with {path.name}, got none at {path.parent}: pass the folder given as --out") from None
    except ValueError as error:
        raise ValueError(f"expected JSON, got something else or a part of it in {path} ({error})") from error
    if not isinstance(content, dict) or not isinstance(content.get("format"), int):
        raise ValueError(f"expected a format version in {path}, got none: this file was not written by longtail")
    if content["format"] > FORMAT:
        got = content["format"]
        raise ValueError(f"expected format {FORMAT} or older, got {got} in {path}: a newer longtail wrote it, upgrade this one")
    return content
