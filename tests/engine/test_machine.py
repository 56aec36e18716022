"""Machines: chosen by what is here, refused by what is not."""

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from longtail.engine.machine import (
    Machine,
    bf16_works,
    choose,
    compile_parts,
    devices,
    keep_freed_memory,
)


def test_the_choice_is_a_device_that_is_here() -> None:
    assert choose().device == devices()[0]
    assert choose(device="cpu", threads=3).threads == 3
    assert choose(device="cpu").precision == "fp32", "bf16 is never chosen on a CPU unasked"


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"device": "tpu"}, "is not available"),
        ({"device": "cpu", "threads": 0}, "at least one thread, got 0"),
        ({"device": "cpu", "threads": 10**22}, "at most 4,096 threads, got 10,000,"),
        ({"device": "cpu", "workers": -1}, "0 or more loader workers"),
        ({"device": "cpu", "sync_batchnorm": True}, "--sync-batchnorm needs cuda"),
    ],
)
def test_what_is_not_here_is_refused(keywords: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        choose(**keywords)  # type: ignore[arg-type]


def test_bf16_is_probed_in_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def dies(command: list[str], **keywords: object) -> subprocess.CompletedProcess[bytes]:
        commands.append(command)
        return subprocess.CompletedProcess(command, -4)  # as after SIGILL

    monkeypatch.setattr(subprocess, "run", dies)
    bf16_works.cache_clear()
    try:
        with pytest.raises(ValueError, match="use --precision fp32"):
            choose(device="cpu", precision="bf16")
    finally:
        bf16_works.cache_clear()
    assert commands[0][0] == sys.executable


def test_batches_and_methods_are_placed_channels_last() -> None:
    batch = Machine(channels_last=True).place_batch(
        {"image": torch.rand(2, 3, 4, 4), "target": torch.tensor([0, 1]), "name": "x"}
    )
    assert batch["image"].is_contiguous(memory_format=torch.channels_last)
    assert batch["name"] == "x"
    conv = torch.nn.Conv2d(3, 8, 3)
    Machine().place_module(conv)
    assert conv.weight.is_contiguous(memory_format=torch.channels_last)
    assert Machine(channels_last=False).place_batch(batch)["image"].shape == (2, 3, 4, 4)


def test_what_is_called_is_compiled_and_no_key_is_renamed() -> None:
    class Method(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.held = torch.nn.ModuleDict(
                {"network": torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())}
            )
            self.head = torch.nn.Linear(2, 2)

    method = Method()
    keys = list(method.state_dict())
    compile_parts(method)
    compiled = {
        name for name, part in method.named_modules() if part._compiled_call_impl is not None
    }
    assert compiled == {"held.network", "head"}
    assert list(method.state_dict()) == keys


FAULTS = """
import ctypes, resource
from longtail.engine.machine import Machine
Machine(threads=1).configure()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
for step in range(20):
    if step == 10:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [libc.malloc(24 << 20) for _ in range(4)]
    for block in blocks:
        ctypes.memset(block, 1, 24 << 20)
    for block in blocks:
        libc.free(block)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not keep_freed_memory(), reason="the allocator here is not glibc's")
def test_memory_that_a_step_frees_is_kept_for_the_next() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FAULTS], capture_output=True, check=True, text=True
    )
    assert int(done.stdout) < 1000  # pages of 4 kB, of the 240,000 that ten steps write


def test_another_allocator_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    assert not keep_freed_memory()


def test_the_probe_of_bf16_imports_nothing_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text("open('executed', 'w').close()")
    monkeypatch.chdir(tmp_path)
    bf16_works.cache_clear()
    bf16_works("cpu")
    assert not (tmp_path / "executed").exists()
