"""The server: one page, `POST /predict` and `GET /health`. It reads uploads and no other files."""

from __future__ import annotations

import base64
import io
import ipaddress
import re
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from fastapi import FastAPI, HTTPException, Query, Request, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response
from PIL import Image, UnidentifiedImageError

import longtail
from longtail.analysis.saliency import saliency_map
from longtail.data.images.decoding import decode
from longtail.errors import LongtailError
from longtail.runs.predicting import Loaded

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""What may be uploaded. Pillow also reads formats that start other programs, such as EPS."""

PIXELS = 50_000_000
"""More than any phone takes by default; unpacked they fit into memory several times."""

UPLOADS = 32
"""Uploads at the same time: each is in memory."""

MEGABYTES = 10.0
"""The default limit of an upload."""

MOST_MEGABYTES = 1000.0
"""The largest limit: uploads are in memory."""

SIDE = 320
"""Pixels: the side of the image with the saliency map."""

_PAGE = Path(__file__).parent
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; "
        "img-src 'self' blob: data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_PORT = re.compile(r":[0-9]*$")
_FORM = 65_536  # bytes that a form may add to the file that it carries

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


def create(loaded: Loaded, *, megabytes: float = MEGABYTES, hosts: Collection[str] = ()) -> FastAPI:
    """Create the server of a loaded run.

    Images are classified one at a time. Uploads beyond `megabytes` are refused while they arrive.
    Requests must name this machine: "localhost", an address in numbers, or one of `hosts`.
    """
    if not 0 < megabytes <= MOST_MEGABYTES:
        raise LongtailError(
            f"expected a limit of more than 0 and at most {MOST_MEGABYTES:g} megabytes, "
            f"got {megabytes:g}"
        )
    limit, lock = int(megabytes * 1e6), threading.Lock()
    row = loaded.row
    # FastAPI's pages of documentation load scripts from other sites.
    app = FastAPI(title="longtail", version=longtail.__version__, docs_url=None, redoc_url=None)
    app.add_middleware(_LimitUpload, limit=limit + _FORM, message=_too_big(limit))
    app.add_middleware(_CheckHost, hosts=frozenset(host.lower() for host in hosts))

    @app.middleware("http")
    async def add_headers(
        request: Request, proceed: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        response = await proceed(request)
        response.headers.update(_HEADERS)
        return response

    @app.exception_handler(RequestValidationError)
    async def explain(request: Request, error: RequestValidationError) -> JSONResponse:
        return JSONResponse({"detail": "; ".join(map(_explain, error.errors()))}, status_code=422)

    @app.get("/health")
    async def health() -> dict[str, Any]:
        """Describe the run that is served."""
        return {
            "status": "ok",
            "recipe": row["recipe"],
            "data": row["data"]["name"],
            "classes": list(loaded.classes),
            "balanced_accuracy": None if row["test"] is None else row["test"]["balanced"],
            "size": loaded.size,
            "level": None if loaded.thresholds is None else loaded.thresholds.level,
            "megabytes": megabytes,
            "longtail": longtail.__version__,
        }

    @app.post("/predict")
    def predict(
        image: UploadFile, top: Annotated[int, Query(ge=1, le=1000)] = 5, map: bool = False
    ) -> dict[str, Any]:
        """Classify the uploaded image (form field `image`).

        Returns `class` and `probability`, the `top` classes, whether to `abstain`, and the
        prediction `set` where the run was calibrated. With `map=true` also a saliency map: `map` is
        an image as a data URL, and `map_kind` its method.
        """
        content = image.file.read(limit + 1)
        if len(content) > limit:
            raise HTTPException(413, _too_big(limit))
        with lock:
            decoded = _decode(content)
            predictions = loaded.predict(decoded)
            reply: dict[str, Any] = predictions.records(top)[0]
            if map:
                label = loaded.classes.index(predictions.labels[0])
                reply["map"], reply["map_kind"] = _saliency(loaded, decoded, label)
        return reply

    for path, name in (("/", "page.html"), ("/page.css", "page.css"), ("/page.js", "page.js")):
        app.add_api_route(path, _file(_PAGE / name), include_in_schema=False)
    return app


def _file(path: Path) -> Callable[[], FileResponse]:
    return lambda: FileResponse(path)


def _explain(item: Mapping[str, Any]) -> str:
    """What is wrong with a field of a request."""
    place, name = item["loc"][0], item["loc"][-1]
    if place == "query":
        return f"expected another value for {name} in the address ({item['msg']})"
    return f"expected a form with a file called image, got something else ({name}: {item['msg']})"


def _too_big(limit: int) -> str:
    return (
        f"expected an image of at most {limit / 1e6:g} MB, got a larger one: "
        "make it smaller, or start the server with --max-megabytes"
    )


class _CheckHost:
    """Refuses requests for another name than this machine's.

    A page of another site can point its name to 127.0.0.1 and would then read what is served here.
    """

    def __init__(self, app: Callable[..., Awaitable[None]], *, hosts: Collection[str]) -> None:
        self.app, self.hosts = app, {"localhost", *hosts}

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        host = dict(scope.get("headers", ())).get(b"host", b"").decode("latin-1").lower()
        name = host.rpartition(":")[0] if _PORT.search(host) else host
        if scope["type"] != "http" or name in self.hosts or is_address(name.strip("[]")):
            await self.app(scope, receive, send)
            return
        message = (
            f"expected a request for this machine, got one for {name!r}: "
            "if that is its name, start the server with --allow-host"
        )
        await JSONResponse({"detail": message}, status_code=421)(scope, receive, send)


def is_address(name: str) -> bool:
    """Whether a host is an address in numbers, which no other site can claim.

    >>> [is_address(name) for name in ("127.0.0.1", "::1", "localhost", "127.0.0.1.evil.org")]
    [True, True, False, False]
    """
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class _LimitUpload:
    """Counts the bytes that arrive, since the announced length may be wrong, and the uploads."""

    def __init__(self, app: Callable[..., Awaitable[None]], *, limit: int, message: str) -> None:
        self.app, self.limit, self.message, self.uploads = app, limit, message, 0

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > self.limit:
            await JSONResponse({"detail": self.message}, status_code=413)(scope, receive, send)
            return
        if scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        if self.uploads >= UPLOADS:
            message = {"detail": f"{self.uploads} images are being classified: try again later"}
            await JSONResponse(message, status_code=503)(scope, receive, send)
            return
        arrived = 0

        async def receive_counted() -> MutableMapping[str, Any]:
            nonlocal arrived
            event = await receive()
            arrived += len(event.get("body", b""))
            if arrived > self.limit:
                raise HTTPException(413, self.message)
            return event

        self.uploads += 1
        try:
            await self.app(scope, receive_counted, send)
        finally:
            self.uploads -= 1


def _decode(content: bytes) -> Image.Image:
    """The uploaded image, upright and RGB; an HTTP error where it cannot be read."""
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            pixels = image.width * image.height
    except UnidentifiedImageError:
        raise HTTPException(
            415,
            f"expected an image ({', '.join(FORMATS)}), got something else: choose another file",
        ) from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        pixels = PIXELS + 1
    except Exception as error:  # decoders fail with many types
        raise HTTPException(
            422, f"expected an image, got one that cannot be read ({error}): choose another file"
        ) from None
    if pixels > PIXELS:
        raise HTTPException(
            422, f"expected an image of at most {PIXELS:,} pixels, got more: make it smaller"
        )
    try:
        return decode(content)
    except LongtailError as error:
        raise HTTPException(
            422, f"expected an image, got one that cannot be read ({error}): choose another file"
        ) from None


# Dark blue, purple, orange, yellow.
_COLOURS = np.array(
    [[13, 8, 135], [156, 23, 158], [237, 121, 83], [240, 249, 33]], dtype=np.float64
)


def _saliency(loaded: Loaded, image: Image.Image, label: int) -> tuple[str | None, str]:
    """The image under a saliency map of a class, as a data URL, and the map's method.

    None and the reason, where the network has no such map.
    """
    pixels = loaded.preprocess(image).float().div_(255)[None]
    maps, kind = saliency_map(loaded.network, pixels, target=torch.tensor([label]))
    if maps is None:
        return None, kind
    low, high = maps.aminmax()  # attention rollout is far from 0 everywhere: its minimum is 0 here
    scaled = (
        ((maps[0] - low) / (high - low).clamp_min(torch.finfo(maps.dtype).tiny))
        .mul(255)
        .byte()
        .numpy()
    )
    large = (
        np.asarray(Image.fromarray(scaled).resize((SIDE, SIDE), Image.Resampling.BICUBIC)).astype(
            np.float64
        )
        / 255
    )
    colour = np.stack(
        [np.interp(large, np.linspace(0, 1, len(_COLOURS)), channel) for channel in _COLOURS.T],
        axis=2,
    )
    shown = replace(loaded.preprocessing, size=SIDE, stored=SIDE)(image).permute(1, 2, 0).numpy()
    share = 0.25 + 0.45 * large[:, :, None]
    buffer = io.BytesIO()
    Image.fromarray(((1 - share) * shown + share * colour).round().astype(np.uint8)).save(
        buffer, "PNG"
    )
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode(), kind
