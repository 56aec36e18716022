"""What a person requests of data: which, how it is split, and how its images become squares. Imports no torch."""

from __future__ import annotations

from typing import Literal

Geometry = Literal["pad", "crop", "stretch"]
"""How an image that is not square becomes the square that a network sees.

`pad` adds a border of its median colour, so that nothing is cut off. `crop` evaluates the central square, and training
views choose their part of the full image. `stretch` resizes both sides to the same length.
"""
