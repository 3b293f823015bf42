"""``python -m tilearena.picker.train``: make the models that ship again, from the recordings of a checkout.

The same recordings, code and versions of libraries give the same files. Nothing locked is trained on.
"""

from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer

from tilearena.atomic import replacing
from tilearena.cli import reported
from tilearena.dataset import Recording
from tilearena.errors import PredictorError, SpecError
from tilearena.final import LOCKED_SPEC, is_final
from tilearena.picker.choose import Shipped
from tilearena.picker.model import Model
from tilearena.plugin_code import code_fingerprint
from tilearena.plugins import Declined
from tilearena.plugins import load as load_predictor
from tilearena.records import PROTOCOLS
from tilearena.root import find_root, load
from tilearena.table import Table

PICKER, SEED = "picker", 0
DEVICE = "nvidia-h200"
#: Of every model: the spec that it is trained on, space and dtype.
SOURCES = (
    ("lowbit-full", "paper9", "s8"),
    ("lowbit-full", "paper9", "b1"),
    ("lowbit-random", "paper9", "s4"),
    ("lowbit-random", "h200-all", "s8"),
    ("lowbit-random", "sm80-wide", "b1"),
)


@dataclass(frozen=True)
class TrainedOn:
    """A recording, and of how many of its problems the model knows the times."""

    spec: str
    spec_fingerprint: str
    fingerprint: str
    n_problems: int


def open_part(recording: Recording) -> Table:
    """What may be trained on."""
    table = recording.table
    return table.take(~is_final(table.problems)) if recording.header.spec == LOCKED_SPEC else table


def about(recording: Recording, n_problems: int) -> dict[str, Any]:
    """What a model says of itself: what it is for, and where it comes from."""
    h = recording.header
    trained_on = TrainedOn(h.spec, h.spec_fingerprint, h.fingerprint, n_problems)
    return {
        "device": h.device.slug,
        "product": h.device.product,
        "op": h.op,
        "space": h.space,
        "space_fingerprint": h.space_fingerprint,
        "dtype": h.dtype,
        "bit_op": h.bit_op,
        "protocol": h.protocol.name,
        "trained_on": [asdict(trained_on)],
        "code_fingerprint": code_fingerprint(PICKER),
        "seed": SEED,
    }


def train(root: Path, model: Shipped, spec: str) -> Model:
    """Fit the predictor ``picker`` on the recording of ``spec``.

    Raises:
        RecordingError: it is not there, or damaged.
        PredictorError: it has too few problems to learn from.
    """
    recording = load(root, model.device, spec, model.space, model.dtype, model.protocol)
    table = open_part(recording)
    predictor: Any = load_predictor(PICKER)
    try:
        predictor.fit(table, SEED)
    except Declined as reason:
        raise PredictorError(f"{recording.header.spec}, {recording.header.space}: {reason}; record more") from None
    trained: Model = predictor.model(about(recording, len(table.problems)))
    return trained


def main(
    root: Annotated[Path | None, typer.Option(help="Folder of recordings; the checkout unless given.")] = None,
    space: Annotated[str | None, typer.Option(help="This space alone.")] = None,
    dtype: Annotated[str | None, typer.Option(help="This dtype alone.")] = None,
) -> None:
    """Train and write the models, all of them unless a space or a dtype is named."""
    wanted = [source for source in SOURCES if space in (None, source[1]) and dtype in (None, source[2])]
    if not wanted:
        known = ", ".join(f"{of_dtype} of {of_space}" for _, of_space, of_dtype in SOURCES)
        asked = [f"any {kind}" if name is None else repr(name) for kind, name in (("dtype", dtype), ("space", space))]
        raise SpecError(f"no picker is trained for {' of '.join(asked)}; known are {known}")
    for (spec, of_space, of_dtype), protocol in product(wanted, PROTOCOLS):
        shipped = Shipped(DEVICE, of_space, of_dtype, protocol)
        text = train(find_root(root), shipped, spec).text()
        with replacing(shipped.path) as scratch:
            scratch.write_text(text, encoding="utf-8")
        print(f"{shipped.path.name}: {len(text)} bytes", flush=True)


if __name__ == "__main__":
    reported(lambda: typer.run(main))
