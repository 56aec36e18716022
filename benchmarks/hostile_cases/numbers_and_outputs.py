"""Absurd numbers, wrong words, outputs that cannot be written, signals, exports."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from hostile_cases import STOPPED, Case, Place, Running, train
from hostile_cases.security import image_bytes

FLAGS: dict[str, tuple[str, ...]] = {
    "epochs": ("0", "-1", "nan", "ten", "1e9"),
    "batch": ("0", "-8", "1.5", "x"),
    "lr": ("-1", "nan", "inf", "fast"),
    "size": ("0", "-3", "10000000"),
    "workers": ("-1", "x"),
    "threads": ("0", "-1", "1" + "0" * 22),
    "save-every": ("nan", "-1", "x"),
    "seed": ("x", "1.5"),
    "weight-decay": ("-1", "nan"),
    "mixup": ("-1", "nan"),
    "device": ("tpu", "cuda:77"),
    "precision": ("fp8",),
    "network": ("resnet9000", "timm:nothing", "/etc/passwd"),
    "geometry": ("round",),
    "adjust": ("test",),
}


def _number(flag: str, value: str) -> Case:
    name = value.replace("/", "-") if len(value) < 12 else "huge"
    return Case(
        f"train-{flag}-{name}",
        train(f"--{flag}", value),
        point=11,
        message=flag.replace("-", "[-_ ]?")[:-1] if flag != "batch" else "batch",
        setup=lambda place: place.photos(),
    )


def _exported(place: Place, output: str) -> None:
    """The program of an export gives the class of the run for photos on their side."""
    folder = place / "exported"
    process = subprocess.run(
        [sys.executable, "-P", folder / "predict.py", "side.jpg", "long.png"],
        cwd=place.folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(process.stdout.splitlines()) == 2, process.stdout
    check = json.loads((folder / "model.json").read_text())["check"]
    assert check["program"]["images"] > 20
    assert check["program"]["difference"] < 1e-4


def _export_setup(place: Place) -> None:
    place.run()
    place.write("side.jpg", image_bytes(20, 14))
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (31, 17), (200, 10, 10)).save(place / "side.jpg", exif=exif)
    Image.new("RGB", (90, 7), (10, 200, 10)).save(place / "long.png")


def _geometry(geometry: str) -> Callable[[Place], None]:
    def setup(place: Place) -> None:
        _export_setup(place)
        path = place / "run/model/spec.json"
        spec = json.loads(path.read_text())
        spec["fit"] = {"geometry": geometry, "stored": 16, "crop": 0.875}
        path.write_text(json.dumps(spec))

    return setup


def _data_gone(place: Place) -> None:
    _export_setup(place)
    path = place / "run/recipe.json"
    record = json.loads(path.read_text())
    record["data"]["source"] = "moved"
    path.write_text(json.dumps(record))


def _large_photos(place: Place) -> None:
    for index, path in enumerate(sorted(place.photos().rglob("*.png"))):
        Image.new("RGB", (300, 30 + index)).save(path)


def _two_runs(place: Place) -> None:
    place.photos()
    place.run()
    place.run("other", of="other")


def _file_in_the_way(place: Place) -> None:
    _two_runs(place)
    place.write("file")


def _link(place: Place) -> None:
    _two_runs(place)
    place.write("precious.html", "old")
    os.symlink("precious.html", place / "page.html")


def _link_kept(place: Place, output: str) -> None:
    assert (place / "page.html").is_symlink()


def _null_kept(place: Place, output: str) -> None:
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def _readable(place: Place, output: str) -> None:
    """Every file of a run can be read by others, as the umask allows."""
    closed = [path for path in (place / "out").rglob("*") if not path.stat().st_mode & 0o044]
    assert not closed, f"only the owner can read {closed[0].name}"


def _stop(number: signal.Signals, after: str) -> Callable[[Place, Running], None]:
    def during(place: Place, running: Running) -> None:
        running.wait_for(after, seconds=18)
        running.send(number)

    return during


def _kill_worker(place: Place, running: Running) -> None:
    """Kill a loader worker, as the system does if it runs out of memory."""
    running.wait_for("train:", seconds=18)
    deadline = time.monotonic() + 8 * running.patience
    while time.monotonic() < deadline:
        children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
        if children:
            os.kill(int(children[0]), signal.SIGKILL)
            return
        time.sleep(0.02)
    raise AssertionError("there was no worker")


LONG = ("--epochs", "3000")
SLOW_VIEW = ("--augment", "randaugment")
"""A view of single images: without it, images in memory need no workers, and there are none."""

OUTPUTS: dict[str, tuple[str, ...]] = {
    "report": ("report", "run", "--out"),
    "compare": ("compare", "run", "other", "--out"),
    "predict": ("predict", "run", "photos", "--out"),
    "inspect": ("inspect", "photos", "--json"),
}

ABSURD: dict[str, tuple[str, tuple[str, ...], str]] = {
    "queue": ("paco", ("--queue", "1000000", "--dim", "65536"), "GB of memory to train.*are free"),
    "decoder": ("livt", ("--decoder-width", "65536", "--decoder-heads", "8"), "GB of memory"),
    "image": ("cross_entropy", ("--size", "8192", "--batch", "29"), "GB for activations.*are free"),
    "no-rate": ("cross_entropy", ("--lr", "0"), "--lr above 0, got 0"),
    "margin": ("ldam", ("--margin", "-1"), "--margin of 0 or more"),
    "dim": ("paco", ("--dim", "-1"), "--dim of 1 or more"),
    "moco-queue": ("moco_v2", ("--queue", "100000000"), "--queue of at most"),
    "moco-temperature": ("moco_v3", ("--temperature", "0"), "--temperature above 0"),
    "mdd-decay": ("mdd", ("--lr-decay", "-1"), "--lr-decay of 0 or more"),
    "domains-decay": ("erm", ("--weight-decay", "-1"), "--weight-decay of 0 or more"),
    "valley": ("swad", ("--tolerance-ratio", "-1"), "--tolerance-ratio of 0 or more"),
    "pairs-margin": ("compcos", ("--feasibility-margin", "-1"), "--feasibility-margin of 0 or"),
    "generator": ("ce_gzsl", ("--generator", "70000"), "--generator of 1 or more"),
    "penalty": ("eszsl", ("--gamma", "-1"), "--gamma of 0 or more"),
    "teacher-epochs": ("deit_lt", ("--epochs", "1000000000"), "--epochs of at most"),
}
"""Numbers that memory or meaning have no room for, by recipe: no network is allocated."""

CASES = [
    *(Case(f"train-absurd-{name}", ("train", recipe, "--data", "photos", "--out", "out",
                                    "--device", "cpu", "--threads", "1", *words), point=11,
           message=f"error: .*{message}", setup=lambda place: place.photos())
      for name, (recipe, words, message) in ABSURD.items()),
    Case("train-large-images-are-capped",
         ("train", "cross_entropy", "--data", "photos", "--out", "out", "--epochs", "1",
          "--device", "cpu", "--threads", "1", "--dry-run"), point=19, code=0,
         message="warning: images are resized to 64 pixels.*pass --size 224",
         setup=_large_photos),
    Case("train-batch-1", train("--batch", "1"), point=16, message="error: .*use --batch 2",
         setup=lambda place: place.photos(), may_change=("out/*",)),
    Case("train-dry-run-save-every", train("--dry-run", "--save-every", "nan"), point=11,
         message="save-every of 0 minutes", setup=lambda place: place.photos()),
    Case("train-dry-run-of-years",
         ("train", "cross_entropy", "--data", "photos", "--out", "out", "--epochs", "10000000",
          "--size", "64", "--batch", "2", "--device", "cpu", "--threads", "1", "--dry-run"),
         point=11, code=0, message="warning: stage 'train' would take about .* (days|years)",
         setup=lambda place: place.photos()),
    *(_number(flag, value) for flag, values in FLAGS.items() for value in values),
    *(Case(f"{verb}-to-a-device", (*argv, "/dev/null"), point=3, code=0, setup=_two_runs,
           check=_null_kept) for verb, argv in OUTPUTS.items()),
    *(Case(f"{verb}-to-a-folder", (*argv, "photos"), point=3, message="error: .*folder",
           setup=_two_runs) for verb, argv in OUTPUTS.items()),
    *(Case(f"{verb}-to-a-full-device", (*argv, "/dev/full"), point=16,
           message="error: .*(full|No space)", setup=_two_runs) for verb, argv in OUTPUTS.items()),
    *(Case(f"{verb}-to-a-full-disk", (*argv, "small/out.html"), point=16, disk=4096,
           message="error: .*small/out.html", setup=_two_runs)
      for verb, argv in OUTPUTS.items() if verb == "report"),
    *(Case(f"{argv[0]}-below-a-file", (*argv, "file/out.csv"), point=16,
           message="error: .*(a part of this path is a file|something else has this name), choose",
           setup=_file_in_the_way)
      for argv in (*OUTPUTS.values(), ("demo", "--out"), ("export", "run", "--to", "torch", "--out"),
                   ("train", "cross_entropy", "--data", "photos", "--out"),
                   ("sweep", "cross_entropy", "--data", "photos", "--set", "epochs=1", "--out"))),
    Case("report-to-a-link", ("report", "run", "--out", "page.html"), point=3, code=0, setup=_link,
         check=_link_kept, may_change=("precious.html",)),
    Case("train-to-a-full-disk", (*train()[:5], "small/out", *train()[6:]), point=1, disk=200_000,
         message="error: .*small/out", setup=lambda place: place.photos()),
    *(Case(f"cache-{name}", ("cache", *words), point=1, code=code, message=message, env=env)
      for name, words, code, message, env in (
          ("shows", (), 0, "", {}),
          ("clears", ("--clear",), 0, "", {}),
          ("extra", ("now",), 2, "unexpected", {}),
          ("unknown-flag", ("--all",), 2, "No such option", {}),
          ("no-home", (), 0, "", {"HOME": None, "XDG_CACHE_HOME": None}),
          ("file-in-its-place", (), 0, "", {"XDG_CACHE_HOME": "/etc/passwd"}),
          ("clear-file-in-its-place", ("--clear",), 0, "", {"XDG_CACHE_HOME": "/etc/passwd"}),
          ("one-column", (), 0, "", {"COLUMNS": "1"}),
          ("ascii", (), 0, "", {"PYTHONIOENCODING": "ascii"}),
      )),
    Case("cache-full-disk", ("cache",), stdout="/dev/full", message="error: "),
    *(Case(f"train-{name}", train(*LONG, *words), point=2, code=STOPPED, message="Continue with: longtail train",
           setup=lambda place: place.photos(), during=_stop(number, "train:"))
      for name, number, words in (
          ("interrupted", signal.SIGINT, ()),
          ("terminated", signal.SIGTERM, ()),
          ("interrupted-with-workers", signal.SIGINT, ("--workers", "1", *SLOW_VIEW)),
          ("terminated-with-workers", signal.SIGTERM, ("--workers", "2", *SLOW_VIEW)),
      )),
    Case("train-killed-worker", train(*LONG, "--workers", "1", *SLOW_VIEW), point=2, message="a loader worker ended",
         setup=lambda place: place.photos(), during=_kill_worker),
    Case("train-readable-by-others", train(), point=19, code=0, setup=lambda place: place.photos(),
         check=_readable),
    *(Case(f"auto-{flag}-{value}", ("train", "auto", "--data", "photos", "--out", "out",
                                    f"--{flag}", value), point=19, message=flag,
           setup=lambda place: place.photos())
      for flag, value in (("minutes", "0"), ("minutes", "-5"), ("minutes", "nan"), ("minutes", "x"),
                          ("epochs", "3"))),
    *(Case(f"export-{to}", ("export", "run", "--to", to, "--out", "exported"), point=17, code=0,
           message="predict.py agrees", setup=_export_setup, check=_exported)
      for to in ("onnx", "torch")),
    *(Case(f"export-{geometry}", ("export", "run", "--to", "onnx", "--out", "exported"), point=17,
           code=0, message="predict.py agrees", setup=_geometry(geometry), check=_exported)
      for geometry in ("crop", "stretch")),
    Case("export-data-gone", ("export", "run", "--to", "onnx", "--out", "exported"), point=17,
         code=0, message="random images", setup=_data_gone, check=_exported),
    Case("export-cnn-to-timm", ("export", "run", "--to", "timm"), point=17, message="timm",
         setup=_export_setup),
    Case("export-unknown", ("export", "run", "--to", "coreml"), point=17, message="coreml",
         setup=_export_setup),
    Case("export-over-other-files", ("export", "run", "--to", "torch", "--out", "mine"), point=3,
         message="other files",
         setup=lambda place: (place.run(), place.write("mine/thesis.tex", "precious"))),
    Case("export-no-images", ("export", "run", "--to", "torch", "--images", "0"), point=11,
         message="images", setup=lambda place: place.run()),
    *(Case(f"sweep-{name}", ("sweep", *words), message=message, setup=lambda place: place.photos())
      for name, words, message in (
          ("nothing", (), "error: |Missing"),
          ("unknown-recipe", ("plain", "--data", "photos"), "unknown recipe"),
          ("unknown-keyword", ("cross_entropy", "--data", "photos", "--set", "colour=1"), "colour"),
          ("no-value", ("cross_entropy", "--data", "photos", "--set", "epochs="), "epochs"),
          ("no-number", ("cross_entropy", "--data", "photos", "--set", "epochs=x"), "epochs"),
          ("twice", ("cross_entropy", "--data", "photos", "--set", "lr=1", "--set", "lr=2"), "twice"),
          ("seeds", ("cross_entropy", "--data", "photos", "--seeds", "a,b"), "seeds"),
          ("jobs", ("cross_entropy", "--data", "photos", "--jobs", "0"), "jobs"),
          ("trials", ("cross_entropy", "--data", "photos", "--search", "lr=0.1..1", "--trials", "0"),
           "trials"),
          ("empty-range", ("cross_entropy", "--data", "photos", "--search", "lr=1..0.1"), "lr"),
          ("a-flag-of-train", ("cross_entropy", "--data", "photos", "--epochs", "1"), "--set"),
          ("no-data", ("cross_entropy", "--data", "nowhere"), "nowhere"),
      )),
    *(Case(f"reproduce-{name}", ("reproduce", *words), message=message)
      for name, words, message in (
          ("unknown", ("livt-table-99",), "error: .*livt-table-99"),
          ("unknown-table", ("--table", "nothing-1"), "error: .*nothing-1"),
          ("seeds", ("livt", "--seeds", "x"), "error: "),
          ("set", ("livt", "--set", "x"), "error: "),
          ("unknown-flag", ("--fast",), "No such option"),
          ("device", ("livt", "--device", "tpu"), "error: "),
          ("control", ("\x1b[31m",), "error: "),
          ("path", ("../../etc/passwd",), "error: "),
          ("extra", ("a", "b"), "unexpected"),
      )),
    *(Case(f"embed-{name}", ("embed", "photos", "--network", "run", *words), point=point,
           message=message, setup=lambda place: (place.photos(), place.run()))
      for name, point, words, message in (
          ("no-out", 0, (), "Missing option"),
          ("size", 11, ("--out", "f.npz", "--size", "0"), "size"),
          ("out-is-a-folder", 3, ("--out", "photos"), "error: "),
          ("full-device", 16, ("--out", "/dev/full"), "error: "),
          ("workers", 11, ("--out", "f.npz", "--workers", "-1"), "workers"),
          ("other-suffix", 0, ("--out", "f.txt"), "error: .*npz"),
      )),
    *(Case(f"demo-{name}", ("demo", *words), point=point, message=message)
      for name, point, words, message in (
          ("unknown-flag", 0, ("--fast",), "No such option"),
          ("extra", 0, ("now",), "unexpected"),
          ("threads-word", 11, ("--threads", "all"), "threads"),
          ("out-of-nobody", 3, ("--out", "/proc/demo"), "error: "),
          ("threads-fraction", 11, ("--threads", "1.5"), "threads"),
      )),
    *(Case(f"doctor-{name}", ("doctor",), code=code, env=env, stdout=stdout, message=message)
      for name, code, env, stdout, message in (
          ("ascii", 0, {"PYTHONIOENCODING": "ascii"}, None, "next:"),
          ("one-column", 0, {"COLUMNS": "1"}, None, ""),
          ("full-disk", 2, {}, "/dev/full", "error: .*No space"),
          ("no-gpu", 0, {"CUDA_VISIBLE_DEVICES": "99"}, None, "cpu"),
          ("mkl", 0, {"MKL_NUM_THREADS": "-4"}, None, "next:"),
          ("no-path", 0, {"PATH": ""}, None, "next:"),
      )),
    Case("doctor-unknown-flag", ("doctor", "--fix"), message="No such option"),
    *(Case(f"predict-{name}", ("predict", "run", "photos", *words), point=point, message=message,
           setup=lambda place: (place.photos(), place.run()))
      for name, point, words, message in (
          ("top", 11, ("--top", "0"), "top"),
          ("threshold", 11, ("--abstain-below", "2"), "abstain"),
          ("threshold-nan", 11, ("--abstain-below", "nan"), "abstain"),
          ("format", 0, ("--format", "xml"), "format"),
          ("device", 11, ("--device", "tpu"), "error: .*tpu"),
          ("threads", 11, ("--threads", "0"), "threads"),
      )),
    *(Case(f"eval-{name}", ("eval", "run", *words), point=point, message=message,
           setup=lambda place: place.run())
      for name, point, words, message in (
          ("tta", 0, ("--tta", "rotate"), "tta"),
          ("workers", 11, ("--workers", "-1"), "workers"),
          ("bad-image-alone", 0, ("--on-bad-image", "skip"), "no effect"),
          ("nowhere", 0, ("--data", "nowhere"), "nowhere"),
          ("no-such-home", 16, ("--data", "~nosuchuser/x"), "without ~"),
      )),
]  # fmt: skip
