from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


MakeFolder = Callable[..., Path]


@pytest.fixture
def make_folder() -> MakeFolder:
    """Make class folders with this many different images each; a class may be "train/cats"."""

    def make(path: Path, counts: Mapping[str, int], *, side: int = 12) -> Path:
        rng = np.random.default_rng(len(list(path.rglob("*"))))
        for name, count in counts.items():
            (path / name).mkdir(parents=True, exist_ok=True)
            for i in range(count):
                Image.fromarray(rng.integers(256, size=(side, side, 3), dtype=np.uint8)).save(
                    path / name / f"{i:03}.png"
                )
        return path

    return make
