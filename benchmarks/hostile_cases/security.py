"""A stranger's folder, names that are commands, and the server: points 12 to 15."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import re
import socket
import time
from collections.abc import Callable

from PIL import Image

from hostile_cases import Case, Place, Running, train
from hostile_cases.words import not_executed, strangers_modules

ESCAPE = "\x1b[2J\x1b]0;title\x07"

SERVE = ("serve", "run", "--port", "0", "--device", "cpu")


def _in_strangers_folder(place: Place) -> None:
    place.photos()
    place.run()
    place.run("other", of="other")
    strangers_modules(place)


def _stranger_named(place: Place) -> None:
    """A run folder that names a module beside it."""
    run = place.run()
    place.write("stranger.py", "open('executed', 'w').close()\n")
    for name in ("recipe.json", "row.json"):
        content = json.loads((run / name).read_text())
        content["recipe"] = "stranger:train"
        content["target"] = "stranger:train"
        (run / name).write_text(json.dumps(content))


def _network_named(place: Place) -> None:
    run = place.run()
    place.write("a.jpg", image_bytes())
    place.write("stranger.py", "open('executed', 'w').close()\n")
    spec = json.loads((run / "model" / "spec.json").read_text())
    spec["network"]["network"] = {"name": "stranger:network", "size": 16}
    (run / "model" / "spec.json").write_text(json.dumps(spec))


def _encoder_named(place: Place) -> None:
    import numpy as np
    from safetensors.numpy import save_file

    place.photos()
    place.write("stranger.py", "open('executed', 'w').close()\n")
    folder = place.folder_at("theirs/encoder")
    save_file({"patch_embed.proj.weight": np.zeros((8, 3, 4, 4))}, folder / "model.safetensors")
    network = {"name": "stranger:network", "mean": [0.5] * 3, "std": [0.5] * 3}
    spec = {"format": 2, "network": network, "data": "elsewhere"}
    (folder / "spec.json").write_text(json.dumps(spec))


def _data_named(place: Place) -> None:
    run = place.run()
    place.write("stranger.py", "open('executed', 'w').close()\n")
    record = json.loads((run / "recipe.json").read_text())
    record["data"]["source"] = "stranger:data"
    (run / "recipe.json").write_text(json.dumps(record))


def _unusual_names(place: Place) -> None:
    photos = place.photos()
    (photos / "ant").rename(photos / f"ant{ESCAPE}")
    (photos / "bee").rename(photos / "=1+1")
    (photos / "cat" / "00.png").rename(photos / "cat" / f"{ESCAPE}.png")


def _clean(place: Place, output: str) -> None:
    left = re.sub("\x1b\\[[0-9;]*m", "", output)
    assert "\x1b" not in left, "an escape sequence of a name was printed"
    assert "\x07" not in left


def _bad_unusual_name(place: Place) -> None:
    _unusual_names(place)
    place.write(f"photos/cat/bad{ESCAPE}.png", "no image")


def _renamed_classes(place: Place) -> None:
    """A run whose classes have names that are formulas, commands and lists."""
    run = place.run()
    spec = json.loads((run / "model" / "spec.json").read_text())
    spec["classes"] = ["=1+1", f"b{ESCAPE}", "c;d"]
    (run / "model" / "spec.json").write_text(json.dumps(spec))
    Image.new("RGB", (9, 7)).save(place / "+a.png")


def _no_formula(place: Place, output: str) -> None:
    text = (place / "out.csv").read_text()
    assert "./+a.png" in text
    assert not re.search(r"(^|,)[=+@]", text, re.MULTILINE), text


def _address(running: Running) -> tuple[str, int]:
    output = running.wait_for("serving")
    host, port = re.findall(r"http://\[?([\w.:]+?)\]?:(\d+)", output)[0]
    return host, int(port)


def _request(
    method: str = "GET",
    path: str = "/health",
    *,
    status: int,
    detail: str = "",
    headers: dict[str, str] | None = None,
    body: bytes | None = None,
) -> Callable[[Place, Running], None]:
    """Send a request, compare the status and the detail, then stop the server."""

    def during(place: Place, running: Running) -> None:
        connection = http.client.HTTPConnection(*_address(running), timeout=12)
        connection.request(method, path, body=body, headers=headers or {})
        reply = connection.getresponse()
        text = reply.read().decode()
        assert reply.status == status, f"expected {status}, got {reply.status}: {text}"
        assert re.search(detail, text), f"expected {detail!r}, got {text}"
        running.send()

    return during


def upload(content: bytes, name: str = "image") -> tuple[bytes, dict[str, str]]:
    """The body and the headers of a form with a file."""
    head = f'--x\r\nContent-Disposition: form-data; name="{name}"; filename="a"\r\n\r\n'
    body = head.encode() + content + b"\r\n--x--\r\n"
    return body, {"Content-Type": "multipart/form-data; boundary=x"}


def _posted(
    content: bytes, status: int, detail: str, *, field: str = "image", query: str = ""
) -> Callable[[Place, Running], None]:
    body, headers = upload(content, field)
    return _request(
        "POST", f"/predict{query}", status=status, detail=detail, body=body, headers=headers
    )


def image_bytes(width: int = 9, height: int = 7, **keywords: object) -> bytes:
    """A small JPEG file."""
    buffer = io.BytesIO()
    Image.new("RGB", (width, height)).save(buffer, "JPEG", **keywords)
    return buffer.getvalue()


def _many_scans() -> bytes:
    image = image_bytes(1000, 1000, progressive=True)
    start = image.index(b"\xff\xda")
    return image[:-2] + 200 * image[start:-2] + b"\xff\xd9"


def _idle(place: Place, running: Running) -> None:
    """Forty connections that send nothing must not keep a request out."""
    address = _address(running)
    idle = [socket.create_connection(address) for _ in range(40)]
    _request(status=200)(place, running)
    for connection in idle:
        connection.close()


def _closed(data: bytes) -> Callable[[Place, Running], None]:
    def during(place: Place, running: Running) -> None:
        with socket.create_connection(_address(running), timeout=14) as connection:
            connection.sendall(data)
            started = time.monotonic()
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(10) == b"", "expected the connection to be closed"
            assert time.monotonic() - started < 13
        running.send()

    return during


def served(name: str, during: Callable[[Place, Running], None], *words: str) -> Case:
    """A case of a server that is stopped with Ctrl-C after a request."""
    return Case(
        f"serve-{name}",
        (*SERVE, *words),
        point=14,
        code=0,
        message="serving",
        setup=lambda place: place.run(),
        during=during,
    )


STRANGE = {
    "train": train(),
    "sweep": (
        *("sweep", "cross_entropy", "--data", "photos", "--set", "epochs=1", "--set", "size=16"),
        *("--set", "batch=8", "--device", "cpu", "--out", "out"),
    ),
    "inspect": ("inspect", "photos"),
    "predict": ("predict", "run", "photos/ant/00.png"),
    "eval": ("eval", "run", "--device", "cpu"),
    "export": ("export", "run", "--to", "torch", "--images", "4"),
    "report": ("report", "run", "--out", "page.html"),
    "compare": ("compare", "run", "other"),
    "reproduce": ("reproduce",),
    "cache": ("cache",),
    "embed": ("embed", "photos", "--network", "run", "--out", "features.npz"),
}

CASES = [
    *(
        Case(f"{verb}-strangers-modules", argv, point=12, code=0, setup=_in_strangers_folder,
             check=not_executed)
        for verb, argv in STRANGE.items()
    ),
    Case("train-own-recipe-is-said", ("train", "mine:recipe", "--data", "photos", "--out", "out"),
         point=12, message="note: modules in .* can be imported, for mine",
         setup=lambda place: (place.photos(), place.write("mine.py", "def recipe(run): pass\n"))),
    *(
        Case(f"{verb}-recipe-of-a-stranger", argv, point=13, code=code, setup=_stranger_named,
             check=not_executed)
        for verb, argv, code in (
            ("predict", ("predict", "run", "run/report.html"), 2),
            ("eval", ("eval", "run"), 0),
            ("report", ("report", "run", "--out", "page.html"), 0),
            ("compare", ("compare", "run", "run"), 0),
        )
    ),
    *(
        Case(f"{verb}-network-of-a-stranger", argv, point=13, message="error: .*trust",
             setup=_network_named, check=not_executed)
        for verb, argv in (
            ("predict", ("predict", "run", "a.jpg")),
            ("export", ("export", "run", "--to", "torch")),
            ("serve", SERVE),
        )
    ),
    Case("train-encoder-of-a-stranger", train("--weights", "theirs", recipe="livt"), point=13,
         message="error: .*trust", setup=_encoder_named, check=not_executed),
    Case("eval-data-of-a-stranger", ("eval", "run"), point=13, message="error: .*trust",
         setup=_data_named, check=not_executed),
    *(
        Case(f"{verb}-control-characters", argv, point=15, code=code, setup=setup, check=_clean)
        for verb, argv, setup, code in (
            ("inspect", ("inspect", "photos"), _unusual_names, 0),
            ("inspect-quick", ("inspect", "photos", "--quick"), _unusual_names, 0),
            ("train", train(), _unusual_names, 0),
            ("train-bad", train(), _bad_unusual_name, 2),
            ("inspect-bad", ("inspect", "photos"), _bad_unusual_name, 0),
            ("predict-json", ("predict", "run", "+a.png", "--format", "json"), _renamed_classes, 0),
        )
    ),
    Case("predict-formulas", ("predict", "run", "+a.png", "--out", "out.csv"), point=15, code=0,
         setup=_renamed_classes, check=_no_formula),
    served("healthy", _request(status=200, detail='"classes"')),
    served("other-host", _request(status=421, detail="allow-host", headers={"Host": "evil.org"})),
    served("rebound-host", _request(status=421, headers={"Host": "127.0.0.1.evil.org:80"})),
    served("empty-host", _request(status=421, headers={"Host": ""})),
    served("allowed-host", _request(status=200, headers={"Host": "gpu7:80"}), "--allow-host", "gpu7"),
    served("predict", _posted(image_bytes(), 200, '"probability"')),
    served("no-image", _posted(b"no image", 415, "expected an image")),
    served("empty-image", _posted(b"", 415, "expected an image")),
    served("wrong-field", _posted(image_bytes(), 422, "a file called image", field="file")),
    served("wrong-top", _posted(image_bytes(), 422, "value for top", query="?top=0")),
    served("many-scans", _posted(_many_scans(), 422, "scans")),
    served("too-large", _posted(bytes(2_200_000), 413, "at most 1 MB"), "--max-megabytes", "1"),
    served("no-such-page", _request(path="/../../etc/passwd", status=404)),
    served("silent-connections", _idle),
    served("slow-headers", _closed(b"GET / HTTP/1.1\r\nHost: x\r\n")),
    *(
        Case(f"serve-host-{name}", (*SERVE, "--host", host), point=16, message="another --host",
             setup=lambda place: place.run())
        for name, host in {"number": "999.1.1.1", "elsewhere": "8.8.8.8", "words": "a b"}.items()
    ),
    *(
        Case(f"serve-megabytes-{text}", (*SERVE, "--max-megabytes", text), point=11,
             message="megabytes", setup=lambda place: place.run())
        for text in ("0", "-1", "inf", "nan", "x")
    ),
    *(
        Case(f"serve-port-{text}", ("serve", "run", "--port", text), point=11, message="port",
             setup=lambda place: place.run())
        for text in ("-1", "65536", "http")
    ),
]  # fmt: skip
