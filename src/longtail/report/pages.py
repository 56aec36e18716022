"""HTML pages that need no network: templates filled, with their styles and their script inside."""

from __future__ import annotations

import base64
import hashlib
import sys
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

TEMPLATES = Path(__file__).parent / "templates"


def render(template: str, **values: Any) -> str:
    """Fill a template that extends `page.html`. Text is escaped; only `Markup`, such as a drawing of ours, is taken as it is.

    The page's policy lets a browser load nothing and run nothing but the script of the shell.
    """
    script = _read("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    shell = {
        "style": Markup(_read("svg.css") + _read("page.css")),
        "script": Markup(script),
        "script_hash": Markup(f"sha256-{digest}"),
        "version": sys.modules[
            "longtail"
        ].__version__,  # an import would stand for all that the package offers, torch included
    }
    return _templates().get_template(template).render(**shell, **values)


@cache
def _templates() -> Environment:
    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _read(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")
