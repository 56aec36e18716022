"""Pretrained weights: read from a cache, fetched by a child that can be ended, named by what they
have seen. No network is needed.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import timm
import torch
from safetensors.torch import save_file

from longtail.errors import LongtailError
from longtail.nn import build, pretrained

MODEL = "test_resnet.r160_in1k"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the hub and one of torch, both empty."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "torch"))
    return tmp_path


def put(cache: Path, weights: dict[str, Any], *, model: str = MODEL) -> Path:
    """Put weights into the hub's cache, as a download would."""
    folder = cache / "hub" / f"models--timm--{model}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("abc")
    path = folder / "snapshots" / "abc" / "model.safetensors"
    path.parent.mkdir(parents=True)
    save_file(weights, path)
    return path


def test_weights_in_the_cache_of_the_hub_are_used(cache: Path) -> None:
    assert pretrained.cached(MODEL) is None
    assert pretrained.config_overlay(MODEL) == {}
    path = put(cache, {"x": torch.zeros(1)})
    assert pretrained.cached(MODEL) == path
    assert pretrained.cached("test_resnet") == path  # the newest weights, where no tag is named
    assert pretrained.config_overlay(MODEL) == {"file": str(path), "custom_load": False}


def test_weights_in_the_cache_of_torch_are_used(cache: Path) -> None:
    path = cache / "torch" / "checkpoints" / "resnet18_a1_0-d63eafa0.pth"
    assert pretrained.cached("resnet18.a1_in1k") is None
    path.parent.mkdir(parents=True)
    path.touch()
    assert pretrained.cached("resnet18.a1_in1k") == path
    assert pretrained.config_overlay("resnet18.a1_in1k") == {"file": str(path)}


def test_a_network_starts_from_cached_weights_without_a_connection(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(1)
    theirs = timm.create_model("test_resnet").state_dict()
    put(cache, theirs)
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("connected to the network"))
    network = build({"name": f"timm:{MODEL}", "size": 64, "pretrained": True})
    state = network.state_dict()
    shared = [name for name in theirs if f"body.{name}" in state]
    assert len(shared) > 10
    assert all(torch.equal(state[f"body.{name}"], theirs[name]) for name in shared)


def test_a_broken_file_in_the_cache_is_reported(cache: Path) -> None:
    put(cache, {"x": torch.zeros(1)}).write_bytes(b"broken")
    with pytest.raises(ValueError, match=f"cannot load the pretrained weights of {MODEL}"):
        build({"name": f"timm:{MODEL}", "size": 64, "pretrained": True})


@pytest.mark.parametrize(
    ("model", "data"),
    [
        ("resnet18", "ImageNet-1k"),
        ("vit_base_patch16_clip_224.laion2b_ft_in12k_in1k", "LAION-2B, ImageNet-12k, ImageNet-1k"),
        ("vit_small_patch14_dinov2.lvd142m", "LVD-142M"),
        ("mobileclip_s0.nothing", None),
    ],
)
def test_weights_say_what_they_have_seen(
    model: str, data: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if data is None:
        monkeypatch.setattr(pretrained, "config", lambda _: type("Config", (), {"tag": "nothing"}))
    assert pretrained.pretraining_data(model) == (data or f"timm:{model}")


def test_offline_makes_no_request(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[str] = []
    monkeypatch.setattr(pretrained, "_succeeds", lambda code, seconds: requests.append(code))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert pretrained.fetched(MODEL, seconds=1) is None
    assert not requests
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    assert pretrained.fetched(MODEL, seconds=1) is None
    assert len(requests) == 1  # the hub did not answer, so nothing is fetched
    assert "timm/test_resnet.r160_in1k" in requests[0]


def test_fetched_weights_are_those_in_the_cache(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def succeeds(code: str, seconds: float) -> bool:
        if "hf_hub_download" in code:
            put(cache, {"x": torch.zeros(1)})
        return True

    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(pretrained, "_succeeds", succeeds)
    assert pretrained.fetched(MODEL, seconds=1) == pretrained.cached(MODEL) is not None


def test_a_child_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    before = time.monotonic()
    assert not pretrained._succeeds("import time; time.sleep(600)", 0.5)
    assert time.monotonic() - before < 300
    assert pretrained._succeeds("pass", 60)
    assert not pretrained._succeeds("raise ValueError", 60)


def test_what_the_children_run_is_python_that_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[str] = []
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(pretrained, "_succeeds", lambda code, seconds: codes.append(code) or True)  # type: ignore[func-returns-value]
    pretrained.fetched(MODEL, seconds=1)
    imports = "\n".join(code.partition(";")[0] for code in codes)
    subprocess.run([sys.executable, "-c", imports], check=True)
    for code in codes:
        compile(code, "child", "exec")


def test_a_local_file_is_loaded_without_the_hub(cache: Path) -> None:
    torch.manual_seed(3)
    state = timm.create_model("test_resnet").state_dict()
    save_file(state, cache / "w.safetensors")
    torch.save({"state_dict": state}, cache / "w.pth")
    for name in ("w.safetensors", "w.pth"):
        network = build({"name": "timm:test_resnet", "size": 32, "pretrained": str(cache / name)})
        body = network.state_dict()
        loaded = {key: state[key] for key in state if not key.startswith("fc.")}
        assert all(torch.equal(body[f"body.{key}"], value) for key, value in loaded.items())
        assert network.spec["pretrained"] is False


def test_a_file_of_other_weights_is_refused(cache: Path) -> None:
    state = timm.create_model("test_resnet").state_dict()
    (cache / "text.pth").write_text("no weights")
    save_file({"x": torch.zeros(1)}, cache / "other.safetensors")
    del state["bn1.weight"]
    save_file(state, cache / "part.safetensors")
    for name, message in (
        ("none.pth", "expected a file of weights, got none"),
        ("text.pth", "cannot be read"),
        ("other.safetensors", "are not those of test_resnet"),
        ("part.safetensors", r"1 tensors are missing, such as bn1\.weight"),
    ):
        with pytest.raises(LongtailError, match=message):
            build({"name": "timm:test_resnet", "size": 32, "pretrained": str(cache / name)})
