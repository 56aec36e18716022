"""The program `predict.py` of an export: classify image files without longtail.

It prepares images with the functions that evaluation uses: their source is copied into it. Before
an export is called good, the program runs in a process that cannot import longtail, on image files
of the run and on generated ones of unusual shapes and kinds, and its logits are compared with ours.
"""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

import longtail
from longtail.data.images import decoding
from longtail.data.views import fitted
from longtail.errors import LongtailError
from longtail.records.layout import ExportFolder
from longtail.runs.images import Preprocessing

Target = Literal["onnx", "torch", "timm"]

_FUNCTIONS = (
    decoding.upright,
    decoding._eight_bits,
    decoding.padded,
    decoding.to_square,
    fitted,
)

_IMPORTS = {
    "onnx": "import onnxruntime",
    "torch": "import torch",
    "timm": "import timm\nimport torch",
}

_NETWORKS = {
    "onnx": '''_SESSION = onnxruntime.InferenceSession(_FOLDER / "model.onnx")


def logits(paths):
    """The logits (N, classes) of image files; their softmax gives probabilities."""
    parts = [_SESSION.run(["logits"], {"image": preprocess(path)[None]})[0] for path in paths]
    return np.concatenate(parts)''',
    "torch": '''_NETWORK = torch.export.load(_FOLDER / "model.pt2").module()


@torch.inference_mode()
def logits(paths):
    """The logits (N, classes) of image files; their softmax gives probabilities."""
    parts = [_NETWORK(torch.from_numpy(preprocess(path)[None])) for path in paths]
    return torch.cat(parts).numpy()''',
    "timm": '''_NETWORK = timm.create_model(f"local-dir:{_FOLDER}", pretrained=True).eval()
_MEAN, _STD = (
    np.array(_NETWORK.pretrained_cfg[name], np.float32)[:, None, None] for name in ("mean", "std")
)


@torch.inference_mode()
def logits(paths):
    """The logits (N, classes) of image files; their softmax gives probabilities."""
    images = ((preprocess(path) - _MEAN) / _STD for path in paths)
    return torch.cat([_NETWORK(torch.from_numpy(image[None])) for image in images]).numpy()''',
}

_PROGRAM = '''"""Classify image files: python predict.py IMAGE [IMAGE ...]

Needs {needs}, not longtail. Other programs: from predict import CLASSES, logits.
The functions that prepare an image are those of longtail {version}, which wrote this file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
{imports}
from PIL import Image, ImageOps

_FOLDER = Path(__file__).resolve().parent
CLASSES = json.loads((_FOLDER / "model.json").read_text(encoding="utf-8"))["classes"]
LongtailError = ValueError
LONGEST = {longest}


{functions}


def preprocess(path):
    """An image file as floats (3, {size}, {size}) in [0, 1]: {geometry}."""
    with Image.open(path) as file:
        image = upright(file)
{square}    image = fitted(image, {size}, {resize})
    return np.asarray(image, np.float32).transpose(2, 0, 1) / 255


{network}


if __name__ == "__main__":
    for name in sys.argv[1:]:
        (scores,) = logits([name]).astype(np.float64)
        shares = np.exp(scores - scores.max())
        best = int(shares.argmax())
        print(f"{{name}}\\t{{CLASSES[best]}}\\t{{shares[best] / shares.sum():.4f}}")
'''

# The process of the check: longtail cannot be imported in it.
_CHECK = """import json, sys
sys.modules["longtail"] = None
sys.path.insert(0, sys.argv[1])
import numpy
from predict import logits
numpy.save(sys.argv[2], logits(json.load(sys.stdin)))
"""


def write_program(folder: Path, to: Target, preprocessing: Preprocessing) -> None:
    """Write `predict.py` into the folder of an export."""
    square = ""
    if preprocessing.geometry != "crop":
        square = (
            f"    image = to_square(image, {preprocessing.stored}, {preprocessing.geometry!r})\n"
        )
    text = _PROGRAM.format(
        needs={"onnx": "NumPy, Pillow and onnxruntime"}.get(to, f"NumPy, Pillow and {to}"),
        version=longtail.__version__,
        imports=_IMPORTS[to],
        longest=decoding.LONGEST,
        functions="\n\n".join(inspect.getsource(function) for function in _FUNCTIONS).rstrip(),
        geometry=preprocessing,
        size=preprocessing.size,
        resize=int(preprocessing.size / preprocessing.crop),
        square=square,
        network=_NETWORKS[to],
    )
    ExportFolder(folder).script.write_text(text, encoding="utf-8")


def program_logits(folder: Path, paths: Sequence[Path]) -> Tensor:
    """The logits (N, C) of image files by `predict.py`, in a process without longtail."""
    with tempfile.TemporaryDirectory() as place:
        result = Path(place) / "logits.npy"
        process = subprocess.run(
            [sys.executable, "-P", "-c", _CHECK, str(folder), str(result)],
            input=json.dumps([str(path.resolve()) for path in paths]),
            capture_output=True,
            text=True,
            check=False,
        )
        if process.returncode:
            reason = process.stderr.strip().rpartition("\n")[2] or f"code {process.returncode}"
            raise LongtailError(
                f"the exported program predict.py failed ({reason}): nothing was written; "
                "use another --to"
            )
        return torch.from_numpy(np.load(result))


def write_unusual_images(folder: Path, size: int) -> list[Path]:
    """Write image files of the shapes, kinds and orientations that programs read differently."""
    generator = np.random.default_rng(0)

    def image(width: int, height: int) -> Image.Image:
        # Large patches and fine noise: resizing by another rule changes both
        coarse = generator.integers(0, 255, (3, 4, 3), dtype=np.uint8)
        large = np.asarray(Image.fromarray(coarse).resize((width, height)), dtype=np.float64)
        noise = generator.uniform(-40, 40, (height, width, 3))
        return Image.fromarray((large + noise).clip(0, 255).astype(np.uint8))

    shapes = {(size, size), (size, 2 * size), (3 * size, 2 * size), (5 * size + 1, 3 * size + 2)}
    shapes |= {(20, 14), (14, 21), (17, 17), (1, 9), (80, 2), (300, 200), (181, 299)}
    for width, height in sorted(shapes):
        image(width, height).save(folder / f"shape-{width}x{height}.png")
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        image(48, 31).save(folder / f"orientation-{orientation}.jpg", exif=exif)
    kinds = {"L": "png", "1": "png", "P": "gif", "LA": "png", "CMYK": "jpg"}
    for mode, suffix in kinds.items():
        image(33, 22).convert(mode).save(folder / f"mode-{mode}.{suffix}")
    transparent = image(22, 33)
    transparent.putalpha(image(22, 33).convert("L"))
    transparent.save(folder / "transparent.png")
    deep = np.asarray(image(30, 21).convert("L")).astype(np.uint16) * 257
    Image.fromarray(deep).save(folder / "sixteen-bits.png")
    return sorted(folder.iterdir())
