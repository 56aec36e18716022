"""`longtail cache`."""

from __future__ import annotations

from typing import Annotated

import typer

from longtail.cli import tables
from longtail.records.cache import cached_files, clear_cache, size_text, total_size
from longtail.records.files import cache_folder


def cache(
    clear: Annotated[
        bool, typer.Option("--clear", help="Delete the cached files; they only save time.")
    ] = False,
) -> None:
    """Show the size of the files that only save time, or delete them."""
    folder = cache_folder()
    if clear:
        tables.say(f"deleted {size_text(clear_cache())} from {folder}")
        tables.next_step("longtail cache")
        return
    rows = {
        kind: f"{len(files)} files, {size_text(total_size(files))}"
        for kind, files in cached_files().items()
    }
    tables.pairs(str(folder), rows)
    tables.next_step("longtail cache --clear")
