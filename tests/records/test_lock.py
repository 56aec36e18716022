"""A run folder is locked by one process."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path

from longtail.records.lock import locked


def test_a_child_does_not_hold_what_its_parent_holds(tmp_path: Path) -> None:
    with locked(tmp_path / "run"):
        context = multiprocessing.get_context("fork")
        running = context.Event()

        def wait() -> None:
            running.set()
            time.sleep(30)

        child = context.Process(target=wait)
        child.start()
        started = running.wait(30)
    try:
        assert started
        with locked(tmp_path / "run"):
            pass
    finally:
        child.kill()
        child.join()


def test_the_target_of_a_link_is_made(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("disk/run")
    with locked(tmp_path / "link"):
        assert (tmp_path / "disk" / "run").is_dir()
