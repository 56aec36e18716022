from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import odd_images
import pytest
from fastapi.testclient import TestClient
from finished import CLASSES, calibrated, classifier, finished
from PIL import Image

from longtail.data.images import decoding
from longtail.nn import CosineExperts, Linear, build
from longtail.nn.networks import Classifier
from longtail.runs import load
from longtail.serve import app as serving
from longtail.serve.app import create

HERE = "http://localhost:8000"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return calibrated(finished(tmp_path_factory.mktemp("run")), [0.9] * 10)


@pytest.fixture(scope="module")
def client(run: Path) -> TestClient:
    return TestClient(create(load(run, device="cpu"), megabytes=0.2), base_url=HERE)


def uploaded(client: TestClient, content: bytes, name: str = "image.png", **query: Any) -> Any:
    return client.post("/predict", files={"image": (name, content)}, params=query)


def test_health_says_what_is_served(client: TestClient) -> None:
    health = client.get("/health").json()
    assert health["status"] == "ok"
    assert health["classes"] == list(CLASSES)
    assert (health["recipe"], health["data"], health["size"], health["level"]) == (
        "balanced_softmax",
        "digits-lt",
        8,
        0.9,
    )


@pytest.mark.parametrize("kind", odd_images.GOOD)
def test_images_of_every_kind_are_classified_as_predict_does(
    client: TestClient, run: Path, kind: str, tmp_path: Path
) -> None:
    path = odd_images.write_all(tmp_path, (kind,)) / f"{kind}.png"
    reply = uploaded(client, path.read_bytes(), top=3)
    assert reply.status_code == 200
    assert reply.json() == json.loads(
        json.dumps(load(run, device="cpu").predict(path).records(3)[0])
    )
    assert len(reply.json()["top"]) == 3
    assert "map" not in reply.json()


@pytest.mark.parametrize(
    ("kind", "code", "message"),
    [
        ("bomb", 422, "pixels"),
        ("cut", 422, "expected an image, got one that cannot be read"),
        ("text", 415, "an image ("),
        ("empty", 415, "an image ("),
    ],
)
def test_what_is_no_image_is_refused_with_a_message(
    client: TestClient, kind: str, code: int, message: str
) -> None:
    reply = uploaded(client, odd_images.content(kind))
    assert reply.status_code == code
    assert reply.json()["detail"].startswith("expected")
    assert message in reply.json()["detail"]


def test_formats_that_start_other_programs_are_refused(client: TestClient) -> None:
    reply = uploaded(
        client, b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n", "image.eps"
    )
    assert reply.status_code == 415


def test_an_image_of_too_many_pixels_is_refused_before_it_is_unpacked(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "PIXELS", 100)
    monkeypatch.setattr(serving, "decode", None)
    assert uploaded(client, odd_images.content("grey")).status_code == 422


def test_a_very_long_image_is_refused_in_a_sentence(client: TestClient) -> None:
    stream = io.BytesIO()
    Image.new("1", (3_000_000, 1)).save(stream, "PNG")
    reply = uploaded(client, stream.getvalue())
    assert reply.status_code == 422
    assert "the longest side is over the limit of 65,536" in reply.json()["detail"]


def test_uploads_are_bounded_whatever_they_announce(client: TestClient) -> None:
    def unannounced() -> Any:
        for _ in range(10):
            yield b"x" * 100_000

    for reply in (
        uploaded(client, b"x" * 250_000),  # within the form's slack: the file itself is measured
        uploaded(client, b"x" * 1_000_000),  # by its announced length
        client.post(
            "/predict",
            content=unannounced(),
            headers={"Content-Type": "multipart/form-data; boundary=b"},
        ),
    ):
        assert reply.status_code == 413
        assert "at most 0.2 MB" in reply.json()["detail"]


def test_other_requests_are_refused_in_a_sentence(client: TestClient) -> None:
    for reply in (
        client.post("/predict"),
        client.post("/predict", data={"image": "/etc/passwd"}),
        client.post("/predict", json={"image": "/etc/passwd"}),
        uploaded(client, odd_images.content("grey"), top=0),
        client.post(
            "/predict",
            content=b"--b\r\nbroken",
            headers={"Content-Type": "multipart/form-data; boundary=b"},
        ),
    ):
        assert reply.status_code in (400, 422)
        assert isinstance(reply.json()["detail"], str)
    assert client.get("/predict").status_code == 405
    for path in (
        "/app.py",
        "/../app.py",
        "/%2e%2e/app.py",
        "/page.css/../app.py",
        "/docs",
        "/redoc",
    ):
        assert client.get(path).status_code == 404


def test_the_name_of_an_upload_is_never_a_path(client: TestClient, tmp_path: Path) -> None:
    reply = uploaded(client, odd_images.content("grey"), name="../../../etc/passwd")
    assert reply.status_code == 200
    assert "passwd" not in reply.text


def test_nothing_may_be_loaded_from_elsewhere(client: TestClient) -> None:
    for path in ("/", "/page.css", "/page.js", "/health"):
        reply = client.get(path)
        assert reply.status_code == 200
        assert "default-src 'none'" in reply.headers["content-security-policy"]
        assert "http://" not in reply.text.replace("http://127.0.0.1", "")
        assert "https://" not in reply.text


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        ({"name": "fast_cnn", "size": 8, "width": 8}, "Grad-CAM"),
        ({"name": "vit_mini", "size": 8, "width": 16, "depth": 1}, "attention rollout"),
        ({"name": "fast_cnn_experts", "size": 8, "width": 8}, "Grad-CAM"),
    ],
)
def test_saliency_maps_are_returned(spec: dict[str, Any], kind: str, tmp_path: Path) -> None:
    network = build(spec)
    made = Classifier(
        network,
        CosineExperts(network.dim, 10) if "experts" in spec["name"] else Linear(network.dim, 10),
    )
    client = TestClient(create(load(finished(tmp_path, made), device="cpu")), base_url=HERE)
    reply = uploaded(client, odd_images.content("wide"), map=True).json()
    assert reply["map_kind"] == kind
    image = Image.open(io.BytesIO(base64.b64decode(reply["map"].partition(",")[2])))
    assert image.size == (serving.SIDE, serving.SIDE)
    assert np.asarray(image).std() > 0
    assert "set" not in reply


def test_class_names_are_returned_unchanged(tmp_path: Path) -> None:
    names = ["<b>bold</b>", "ключ", *CLASSES[2:]]
    loaded = load(finished(tmp_path, classifier(), classes=names), device="cpu")
    client = TestClient(create(loaded), base_url=HERE)
    assert {
        prediction["class"]
        for prediction in uploaded(client, odd_images.content("grey"), top=10).json()["top"]
    } == {*names}


@pytest.mark.parametrize(
    ("host", "code"),
    [
        ("localhost", 200),
        ("LOCALHOST:8000", 200),
        ("127.0.0.1:8000", 200),
        ("[::1]:8000", 200),
        ("192.168.0.7", 200),
        ("gpu7.lab.org:80", 200),
        ("evil.org", 421),
        ("127.0.0.1.evil.org:8000", 421),
        ("localhost.evil.org", 421),
        ("", 421),
    ],
)
def test_a_request_for_another_name_is_refused(run: Path, host: str, code: int) -> None:
    app = create(load(run, device="cpu"), hosts=["GPU7.lab.org"])
    client = TestClient(app, base_url=HERE)
    reply = client.get("/health", headers={"host": host})
    assert reply.status_code == code
    if code == 421:
        assert "--allow-host" in reply.json()["detail"]
        assert uploaded(client, odd_images.content("grey")).status_code == 200


def test_an_error_names_the_field(client: TestClient) -> None:
    wrong = uploaded(client, odd_images.content("grey"), top=0).json()["detail"]
    assert wrong.startswith("expected another value for top")
    assert "image" not in wrong
    missing = client.post("/predict", params={"top": 3}).json()["detail"]
    assert "a file called image" in missing


def test_a_jpeg_of_very_many_scans_is_not_decoded(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = TestClient(create(load(run, device="cpu")), base_url=HERE)
    buffer = io.BytesIO()
    Image.new("RGB", (1000, 1000)).save(buffer, "JPEG", progressive=True)
    assert uploaded(client, buffer.getvalue()).status_code == 200
    start = buffer.getvalue().index(b"\xff\xda")
    repeated = buffer.getvalue()[:-2] + 200 * buffer.getvalue()[start:-2] + b"\xff\xd9"
    monkeypatch.setattr(decoding, "upright", None)  # decoding it would take minutes
    reply = uploaded(client, repeated)
    assert reply.status_code == 422
    assert "scans" in reply.json()["detail"]


def test_more_uploads_than_fit_are_turned_away(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "UPLOADS", 0)
    assert uploaded(client, odd_images.content("grey")).status_code == 503
    assert client.get("/health").status_code == 200


@pytest.mark.parametrize("megabytes", [0.0, -1.0, float("inf"), float("nan"), 1e9])
def test_the_limit_of_uploads_is_a_limit(run: Path, megabytes: float) -> None:
    with pytest.raises(ValueError, match="megabytes, got"):
        create(load(run, device="cpu"), megabytes=megabytes)
