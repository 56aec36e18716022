"""From a folder of images to an ONNX file, and a prediction with it.

    python examples/folder_to_onnx.py PHOTOS --out runs/photos

PHOTOS has one folder of images for each class. The program trains, exports the network, and
classifies one of the images with ONNX Runtime. Needs `pip install 'longtail[export]'`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

import longtail
from longtail.runs import export


def main(photos: Path, out: Path, *, epochs: int = 20) -> tuple[Path, NDArray[np.float32]]:
    """Train, export, and classify an image with ONNX Runtime; its path and its logits (1, C)."""
    longtail.train("balanced_softmax", photos, out, epochs=epochs, batch=32, threads=1)
    exported = export(out, "onnx")
    print(f"{exported.folder}: same predictions on {exported.agreement.images} images")

    model = longtail.load(out, device="cpu")
    image = next(path for path in sorted(photos.rglob("*")) if path.suffix in (".png", ".jpg"))
    pixels = model.preprocess(image).numpy()  # uint8 (3, size, size): the network's square
    session = onnxruntime.InferenceSession(exported.folder / "model.onnx")
    (logits,) = session.run(["logits"], {"image": pixels[None].astype(np.float32) / 255})
    print(f"{image}: {model.classes[logits.argmax()]}")
    return image, logits


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("photos", type=Path, help="one folder of images for each class")
    parser.add_argument("--out", type=Path, default=Path("runs/photos"), help="the run folder")
    parser.add_argument("--epochs", type=int, default=20)
    arguments = parser.parse_args()
    main(arguments.photos, arguments.out, epochs=arguments.epochs)
