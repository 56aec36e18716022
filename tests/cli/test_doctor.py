"""`longtail doctor`: what this machine can do."""

from __future__ import annotations

from typing import Any


def test_doctor_lists_what_is_installed(longtail: Any) -> None:
    result = longtail("doctor")
    assert result.code == 0
    assert all(
        word in result.out
        for word in ("cpu", "bf16 on cpu", "torch", "pyarrow", "tensorboard", "next: longtail demo")
    )
