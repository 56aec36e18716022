"""Broken images, folders, lists and parquet files: inspect, train, predict, eval, embed."""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from hostile_cases import Case, Place, train


def png(width: int, height: int) -> bytes:
    """A small PNG file that claims to be of this size."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(1000))), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(part)) + name + part + struct.pack(">I", zlib.crc32(name + part))
        for name, part in parts
    )


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(40 << 30)


def _image() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (9, 7), (1, 2, 3)).save(buffer, "PNG")
    return buffer.getvalue()


def _scans() -> bytes:
    """A progressive JPEG of very many scans, whose file is small."""
    buffer = io.BytesIO()
    Image.new("RGB", (2000, 2000)).save(buffer, "JPEG", progressive=True)
    content = buffer.getvalue()
    scans = content[content.index(b"\xff\xda") : -2]
    return content[:-2] + 100 * scans + b"\xff\xd9"


BAD: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("no image"),
    "cut": lambda path: path.write_bytes(_image()[:40]),
    "bomb": lambda path: path.write_bytes(png(30_000, 30_000)),
    "long": lambda path: path.write_bytes(png(49_000_000, 1)),
    "high": lambda path: path.write_bytes(png(1, 89_000_000)),
    "scans": lambda path: path.write_bytes(_scans()),
    "program": lambda path: Image.new("RGB", (9, 7)).save(path, "EPS"),
    "zero": lambda path: path.write_bytes(png(0, 0)),
    "pipe": lambda path: os.mkfifo(path),
    "endless": lambda path: os.symlink("/dev/zero", path),
    "random": lambda path: os.symlink("/dev/random", path),
    "sparse": _sparse,
    "dangling": lambda path: os.symlink("nowhere", path),
    "circular": lambda path: os.symlink(path.name, path),
}


def _bad_photo(kind: str) -> Callable[[Place], None]:
    def setup(place: Place) -> None:
        BAD[kind](place.photos() / "ant" / "bad.png")
        if kind != "dangling":
            place.write("other.txt", "x")

    return setup


def _predict(kind: str) -> Callable[[Place], None]:
    def setup(place: Place) -> None:
        place.run()
        BAD[kind](place / "bad.png")
        place.write("good.png", _image())

    return setup


def _one_line(place: Place, output: str) -> None:
    assert output.count("good.png") == 1
    assert "skipped" in output


def listed(content: str | bytes, name: str = "list.csv") -> Callable[[Place], None]:
    """The photos, and a list beside them."""

    def setup(place: Place) -> None:
        place.photos()
        place.write(name, content)

    return setup


def lines(labels: Callable[[int], str], count: int = 29) -> str:
    """A list of all photos with these labels."""
    paths = [
        f"photos/{name}/{index:02}.png"
        for name, number in (("ant", 14), ("bee", 9), ("cat", 6))
        for index in range(number)
    ]
    return "".join(f"{path},{labels(index)}\n" for index, path in enumerate(paths[:count]))


def _locked(name: str) -> Callable[[Place], None]:
    def setup(place: Place) -> None:
        (place.photos() / name).chmod(0)

    return setup


def _parquet(
    columns: Callable[[], dict[str, list[object]]], name: str = "data/train.parquet"
) -> Callable[[Place], None]:
    def setup(place: Place) -> None:
        import pyarrow
        import pyarrow.parquet

        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(pyarrow.table(columns()), path)

    return setup


def _twice(place: Place) -> None:
    import pyarrow
    import pyarrow.parquet

    place.folder_at("data")
    table = pyarrow.table([_encoded(), _encoded(), _labels()], names=["image", "image", "label"])
    pyarrow.parquet.write_table(table, place / "data/train.parquet")


def _encoded(count: int = 12) -> list[object]:
    result: list[object] = []
    for index in range(count):
        buffer = io.BytesIO()
        Image.new("RGB", (9, 7), (index * 20, 0, 0)).save(buffer, "PNG")
        result.append(buffer.getvalue())
    return result


def _labels(count: int = 12) -> list[object]:
    return [index % 2 for index in range(count)]


REFUSED_LISTS: dict[str, tuple[int, str | bytes, str]] = {
    "latin-1": (16, lines(lambda i: "café" if i % 2 else "x").encode("latin-1"), "expected UTF-8"),
    "long-field": (16, "path,label\n" + "x" * 140_000 + ",a\n", "field larger"),
    "open-quote": (16, 'path,label\nphotos/ant/00.png,"a\n' + "x,y\n" * 40_000, "error: "),
    "nul": (16, b"photos/ant/00.png,\x00\n", "error: "),
    "utf-16-cut": (16, b"\xff\xfep\x00h", "error: "),
    "binary": (16, bytes(range(256)) * 20, "error: "),
    "missing-images": (0, "nowhere.png,a\nnowhere2.png,b\n", "missing"),
    "empty": (0, "", "error: "),
    "header-only": (0, "path,label\n", "error: "),
    "no-label": (0, "photos/ant/00.png\n", "error: "),
    "one-class": (0, lines(lambda i: "same"), "error: "),
    "endless-number": (6, lines(lambda i: "9" * 5000 if i % 2 else "1"), "error: |warning"),
    "absolute": (0, "/etc/passwd,a\n/etc/hostname,b\n", "error: "),
}

DESCRIBED = ("nul", "one-class")
"""Lists that `inspect` describes, and that are refused for training."""

CASES = [
    *(Case(f"inspect-image-{kind}", ("inspect", "photos"), point=5, code=0,
           message=r"1 image cannot be read|unreadable|bad\.png", setup=_bad_photo(kind))
      for kind in BAD),
    *(Case(f"train-image-{kind}", train(), point=5, message=r"bad\.png", setup=_bad_photo(kind))
      for kind in BAD),
    *(Case(f"predict-image-{kind}", ("predict", "run", "bad.png", "good.png"), point=5, code=0,
           message=r"skipped bad\.png", setup=_predict(kind), check=_one_line)
      for kind in BAD if kind not in ("dangling", "circular")),
    *(Case(f"predict-image-{kind}", ("predict", "run", "bad.png", "good.png"), point=5,
           message="error: .*bad.png", setup=_predict(kind)) for kind in ("dangling", "circular")),
    *(Case(f"eval-image-{kind}", ("eval", "run", "--data", "photos"), point=5, message=r"bad\.png",
           setup=lambda place, kind=kind: (place.run(), _bad_photo(kind)(place)))  # type: ignore[misc]
      for kind in ("text", "pipe", "long", "endless")),
    *(Case(f"embed-image-{kind}", ("embed", "photos", "--network", "run", "--out", "f.npz"), point=5,
           message=r"bad\.png",
           setup=lambda place, kind=kind: (place.run(), _bad_photo(kind)(place)))  # type: ignore[misc]
      for kind in ("text", "pipe", "high", "random")),
    Case("train-skip-bad", train("--on-bad-image", "skip"), point=4, code=0,
         message="left out: .*bad.png", setup=_bad_photo("text")),
    *(Case(f"{verb}-locked-{name.replace('/', '-').replace('.', '-')}", argv, point=4,
           code=code, message="ermission|cannot be read", setup=_locked(name), unprivileged=True)
      for verb, argv, code in (("inspect", ("inspect", "photos"), 0), ("train", train(), 2))
      for name in ("ant/00.png",)),
    *(Case(f"{verb}-locked-class", argv, point=4, code=code, message="ermission|cannot be",
           setup=_locked("ant"), unprivileged=True)
      for verb, argv, code in (("inspect", ("inspect", "photos"), 0), ("train", train(), 2))),
    *(Case(f"{verb}-locked-data", argv, point=4, message="error: .*ermission|cannot be",
           setup=lambda place: place.photos().chmod(0), unprivileged=True)
      for verb, argv in (("inspect", ("inspect", "photos")), ("train", train()))),
    Case("inspect-quick-locked-folder", ("inspect", "photos", "--quick"), point=4, code=0,
         message="1 folders cannot be listed: ant", setup=_locked("ant"), unprivileged=True),
    *(Case(f"{verb}-list-{name}", argv, point=point, setup=listed(content),
           code=0 if verb == "inspect" and name in DESCRIBED else 2,
           message="classes" if verb == "inspect" and name in DESCRIBED else message)
      for name, (point, content, message) in REFUSED_LISTS.items()
      for verb, argv in (("inspect", ("inspect", "list.csv")), ("train", train(data="list.csv")))
      if name != "endless-number"),
    *(Case(f"inspect-list-ids-{name}", ("inspect", "list.csv"), point=6, code=0, message="classes",
           setup=listed(lines(lambda i, value=value: value if i % 2 else "7")))  # type: ignore[misc]
      for name, value in {"twenty-million": "20000000", "twelve-digits": "999999999999",
                          "beyond-64-bits": "100000000000000000000",
                          "5000-digits": "9" * 5000}.items()),
    Case("inspect-list-ids-negative", ("inspect", "list.csv"), point=6, message="0 or more",
         setup=listed(lines(lambda i: "-5" if i % 2 else "7"))),
    Case("train-list-ids", train(data="list.csv"), point=6, code=0, message="run: ",
         setup=listed(lines(lambda i: "20000000" if i % 2 else "999999999999"))),
    *(Case(f"{verb}-joined-labels-{name}", argv, point=20, code=0, message="labels join others",
           setup=listed(lines(lambda i, sign=sign: ("ant", "bee", f"ant{sign}bee")[i % 3])))  # type: ignore[misc]
      for name, sign in {"bar": "|", "plus": "+", "slash": "/"}.items()
      for verb, argv in (("inspect", ("inspect", "list.csv")), ("train", train(data="list.csv")))),
    Case("inspect-separate-labels", ("inspect", "list.csv"), point=20, code=0, message="classes",
         setup=listed(lines(lambda i: ("ant", "bee", "x|y")[i % 3])),
         check=lambda place, output: _not_in("labels join", output)),
    Case("inspect-leak", ("inspect", "photos"), point=18, code=0,
         message="At least .* of the test set.*photographed again is not found",
         setup=lambda place: _leak(place, 1)),
    Case("inspect-leak-json", ("inspect", "photos", "--json", "r.json"), point=18, code=0,
         message="At least", setup=lambda place: _leak(place, 2)),
    Case("inspect-leak-html", ("inspect", "photos", "--html", "r.html"), point=18, code=0,
         message="At least", setup=lambda place: _leak(place, 2),
         check=lambda place, output: _in("lower bounds", (place / "r.html").read_text())),
    Case("inspect-no-leak", ("inspect", "photos"), point=18, code=0,
         message="none found .the same object photographed again", setup=lambda place: place.photos()),
    Case("inspect-all-leak", ("inspect", "photos"), point=18, code=0, message="At least 100",
         setup=lambda place: _leak(place, 4)),
    Case("inspect-parquet-empty", ("inspect", "data"), point=9, message="error: .*train.parquet",
         setup=lambda place: place.write("data/train.parquet", "")),
    Case("inspect-parquet-cut", ("inspect", "data"), point=9, message="error: .*train.parquet",
         setup=lambda place: (_parquet(lambda: {"image": _encoded(), "label": _labels()})(place),
                              BAD["cut"](place / "data/train.parquet"))),
    Case("inspect-parquet-bytes", ("inspect", "data"), point=9, code=0, message="classes",
         setup=_parquet(lambda: {"image": _encoded(), "label": _labels()})),
    Case("inspect-parquet-float-labels", ("inspect", "data"), point=9, message="error: .*label",
         setup=_parquet(lambda: {"image": _encoded(), "label": [0.5] * 12})),
    Case("inspect-parquet-list-labels", ("inspect", "data"), point=9, message="error: .*label",
         setup=_parquet(lambda: {"image": _encoded(), "label": [[1, 2]] * 12})),
    *(Case(f"inspect-parquet-{name}", ("inspect", "data"), point=9,
           message="error: .*train.parquet: expected column 'image' to hold encoded images",
           setup=_parquet(lambda wrapped=wrapped: {"image": [wrapped(b) for b in _encoded()],  # type: ignore[misc]
                                                   "label": _labels()}))
      for name, wrapped in (("lists", lambda content: [content]),
                            ("numbers", lambda content: {"bytes": [*content], "path": "x"}))),
    Case("inspect-parquet-twice", ("inspect", "data"), point=9, message="each column once.*image",
         setup=_twice),
    Case("inspect-parquet-no-image", ("inspect", "data"), point=9, message="error: ",
         setup=_parquet(lambda: {"text": ["a"] * 12, "label": _labels()})),
    Case("inspect-parquet-no-rows", ("inspect", "data"), point=9, message="error: ",
         setup=_parquet(lambda: {"image": _encoded(0), "label": _labels(0)})),
    Case("train-parquet-not-images", train(data="data"), point=9, message="error: ",
         setup=_parquet(lambda: {"image": [b"x"] * 12, "label": _labels()})),
    Case("inspect-empty-folder", ("inspect", "empty"), message="error: ",
         setup=lambda place: place.folder_at("empty")),
    Case("inspect-nowhere", ("inspect", "nowhere"), message="error: .*nowhere"),
    Case("inspect-no-such-home", ("inspect", "~nosuchuser/x"), point=16, message="without ~"),
    Case("train-no-such-home", train(data="~nosuchuser/x"), point=16, message="without ~"),
    Case("train-deep-folders", train(), code=0, setup=lambda place: _deep(place.photos() / "ant")),
    Case("predict-empty-folder", ("predict", "run", "empty"), message="error: .*empty",
         setup=lambda place: (place.run(), place.folder_at("empty"))),
    Case("predict-no-images-given", ("predict", "run"), message="Missing argument"),
    Case("eval-other-classes", ("eval", "run", "--data", "data"), message="error: ",
         setup=lambda place: (place.run(), place.write("data/dog/a.png", _image()))),
    Case("embed-unknown-network", ("embed", "photos", "--network", "resnet1000", "--out", "f.npz"),
         message="error: ", setup=lambda place: place.photos()),
    Case("embed-no-data", ("embed", "nowhere", "--network", "run", "--out", "f.npz"),
         message="error: .*nowhere", setup=lambda place: place.run()),
]  # fmt: skip


def _in(text: str, output: str) -> None:
    assert text in output, f"expected {text!r}"


def _not_in(text: str, output: str) -> None:
    assert text not in output, f"did not expect {text!r}"


def _leak(place: Place, count: int) -> None:
    """Copy training images of a class into the test set of that class."""
    photos = place.photos()
    (photos / "train").mkdir()
    (photos / "test" / "ant").mkdir(parents=True)
    for name in ("ant", "bee", "cat"):
        (photos / name).rename(photos / "train" / name)
    for index in range(4):
        source = photos / "train" / "ant" / f"{index:02}.png"
        if index < count:
            (photos / "test" / "ant" / source.name).write_bytes(source.read_bytes())
        else:
            source.rename(photos / "test" / "ant" / source.name)


def _deep(folder: Path) -> None:
    for level in range(60):
        folder = folder / f"d{level}"
    folder.mkdir(parents=True)
    (folder / "x.png").write_bytes(_image())
