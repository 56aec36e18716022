"""Machines: chosen by what is here, refused by what is not."""

import subprocess
import sys

import pytest
import torch

from longtail.engine.machine import Machine, bf16_works, choose, devices


def test_the_choice_is_a_device_that_is_here() -> None:
    assert choose().device == devices()[0]
    assert choose(device="cpu", threads=3).threads == 3
    assert choose(device="cpu").precision == "fp32", "bf16 is never chosen on a CPU unasked"


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"device": "tpu"}, "expected a device that is here"),
        ({"device": "cpu", "threads": 0}, "at least one thread, got 0"),
        ({"device": "cpu", "workers": -1}, "0 or more loader workers"),
        ({"device": "cpu", "sync_batchnorm": True}, "SyncBatchNorm on cuda only"),
    ],
)
def test_what_is_not_here_is_refused(keywords: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        choose(**keywords)  # type: ignore[arg-type]


def test_bf16_is_probed_in_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def dies(command: list[str], **keywords: object) -> subprocess.CompletedProcess[bytes]:
        asked.append(command)
        return subprocess.CompletedProcess(command, -4)  # as after SIGILL

    monkeypatch.setattr(subprocess, "run", dies)
    bf16_works.cache_clear()
    try:
        with pytest.raises(ValueError, match="use --precision fp32"):
            choose(device="cpu", precision="bf16")
    finally:
        bf16_works.cache_clear()
    assert asked[0][0] == sys.executable


def test_batches_and_methods_are_placed_channels_last() -> None:
    batch = Machine(channels_last=True).receive({"image": torch.rand(2, 3, 4, 4), "target": torch.tensor([0, 1]), "name": "x"})
    assert batch["image"].is_contiguous(memory_format=torch.channels_last)
    assert batch["name"] == "x"
    conv = torch.nn.Conv2d(3, 8, 3)
    Machine().place(conv)
    assert conv.weight.is_contiguous(memory_format=torch.channels_last)
    assert Machine(channels_last=False).receive(batch)["image"].shape == (2, 3, 4, 4)
