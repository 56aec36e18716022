import io
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from longtail.data.images.stores import ArrayImages, EncodedImages, FileImages, SquareImages


def noise(side: int) -> Image.Image:
    rng = np.random.default_rng(0)
    return Image.fromarray(rng.integers(256, size=(side, side, 3), dtype=np.uint8))


def png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def test_files_stream_pickle_and_say_what_is_wrong(tmp_path: Path) -> None:
    for name in "ab":
        noise(8).save(tmp_path / f"{name}.png")
    files = pickle.loads(
        pickle.dumps(FileImages((str(tmp_path / "a.png"), str(tmp_path / "b.png"))))
    )
    assert files.image(1).size == (8, 8)
    assert files.take(np.array([1])).paths == (str(tmp_path / "b.png"),)
    (tmp_path / "a.png").write_bytes(b"")
    with pytest.raises(ValueError, match=r"a\.png can no longer be read"):
        files.image(0)
    (tmp_path / "a.png").unlink()
    with pytest.raises(ValueError, match=r"a\.png can no longer be read"):
        files.image(0)


def test_encoded_and_resized_images() -> None:
    blobs = EncodedImages((b"", png(noise(8))))
    assert blobs.take(np.array([1])).image(0).size == (8, 8)
    with pytest.raises(ValueError, match="row 0"):
        blobs.image(0)
    arrays = ArrayImages(torch.arange(576).reshape(3, 3, 8, 8).to(torch.uint8))
    resized = SquareImages(arrays, 32, "stretch")
    assert len(resized) == 3
    assert resized.take(np.array([2])).image(0).size == (32, 32)
    assert resized.in_memory(32) is None
    decoded = ArrayImages.decoded(resized, 32)
    assert np.array_equal(np.asarray(decoded.image(1)), np.asarray(resized.image(1)))
    assert decoded.in_memory(32) is decoded.pixels
    assert decoded.in_memory(8) is None
    repeated = decoded.take(np.array([2, 0])).at_native_resolution().in_memory(8)
    assert repeated is not None
    assert torch.equal(repeated, arrays.pixels[[2, 0]])
