"""`longtail doctor`: devices, precision, versions and optional dependencies."""

from __future__ import annotations

import importlib.util
import os
import platform
import sys

OPTIONAL = {
    "pyarrow": ("data", "read parquet files"),
    "tensorboard": ("track", "write TensorBoard files"),
    "optuna": ("sweep", "search on validation"),
    "onnxruntime": ("export", "export to ONNX"),
    "fastapi": ("serve", "serve a run"),
}
"""Module -> (the extra that installs it, what it is for)."""


def findings() -> dict[str, dict[str, str]]:
    """Devices, threads, precision (tested in a child process), versions, optional dependencies."""
    import torch

    from longtail.engine.machine import bf16_works, choose, devices
    from longtail.runs.identity import versions

    chosen = choose()
    return {
        "machine": {
            "system": (
                f"{platform.system()} {platform.machine()}, Python {platform.python_version()} at"
                f" {sys.prefix}"
            ),
            "devices": ", ".join(_describe(device) for device in devices()),
            "threads": f"{torch.get_num_threads()} of {os.cpu_count()} cores",
            **{
                f"bf16 on {device}": (
                    "works" if bf16_works(device) else "does not work: fp32 is used"
                )
                for device in devices()
            },
            "longtail would use": f"{chosen.device}, {chosen.precision}, {chosen.threads} threads",
        },
        "versions": versions(),
        "optional dependencies": {
            module: _status(module, *details) for module, details in OPTIONAL.items()
        },
    }


def _describe(device: str) -> str:
    import torch

    if device != "cuda":
        return device
    return ", ".join(
        f"cuda:{index} ({torch.cuda.get_device_name(index)})"
        for index in range(torch.cuda.device_count())
    )


def _status(module: str, extra: str, purpose: str) -> str:
    if importlib.util.find_spec(module) is not None:
        return f"installed: can {purpose}"
    return f'missing: to {purpose}, run pip install "longtail[{extra}]"'
