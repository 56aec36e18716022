"""Initial weights: of timm, of another run, or of a file; and the encoder that a run leaves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from longtail.data.dataset import Dataset
from longtail.engine.run import Run
from longtail.nn import Network
from longtail.nn.encoders import Weights, encoder_weights, read_weights, write_weights
from longtail.recipes.teachers import minutes_of, training_data


def read_encoder(run: Run, data: Dataset, source: Path, *, stage: str) -> Weights:
    """Read the weights that a stage begins with, and keep a copy of them in the run's folder.

    A resumed run reads its copy: the original may have changed or gone. So `--weights` of a run
    that took an encoder gives that encoder, and not its network, which has learnt labels since. A
    run without a checkpoint may be started again with another encoder.

    The run records what other data the weights were trained on, and for how long.
    """
    encoder = run.files.encoder
    if encoder.is_complete and run.files.stage(stage).checkpoint.exists():
        weights = read_weights(run.folder)
    else:
        weights = read_weights(source)
        if weights.data is None:  # an encoder of ours says it itself
            of_run = source.is_dir() or weights.spec is not None  # a file beside its spec
            origin = f"the data of {source.name}"
            if of_run:
                other = training_data(str(weights.source), data, role="encoder")
                origin = other or f"{data.name}, {data.hash[:12]}"
            weights = replace(weights, data=origin, minutes=minutes_of(str(weights.source)) or None)
        run.write(encoder.spec, lambda _: write_weights(encoder.path, weights), replace=True)
    run.pretraining = None if data.hash[:12] in str(weights.data) else weights.data
    run.minutes_before["encoder"] = weights.minutes or 0.0
    return weights


def write_encoder(run: Run, network: Network, *, data: Dataset, images: int) -> None:
    """Write the network of the stage that was just trained as the encoder of the run."""
    origin = f"{data.name}, {images:,} images, {data.hash[:12]}"
    weights = Weights(
        run.folder, encoder_weights(network), network.spec, origin, run.history[-1]["minutes"]
    )
    write_weights(run.files.encoder.path, weights)
