"""``python -m tilearena.picker.train``: make the models that ship again, from the recordings of a checkout.

The same recordings, code and versions of libraries give the same files. Nothing locked is trained on.
"""

import argparse
import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

from tilearena import plugins
from tilearena.dataset import Recording
from tilearena.errors import PredictorError
from tilearena.final import LOCKED_SPEC, is_final
from tilearena.picker.choose import Shipped
from tilearena.picker.model import Model
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


@runtime_checkable
class Distilled(Protocol):
    """A fitted predictor that can be stored."""

    def model(self, about: dict[str, Any]) -> Model:
        """What is stored."""


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
        "code": code(),
        "seed": SEED,
    }


def code() -> dict[str, str | None]:
    """Fingerprints of the predictors' modules and of the modules beside this one."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode() + content)
    return {"predictors": plugins.code_fingerprint(PICKER), "picker": digest.hexdigest()[:16]}


def train(root: Path, model: Shipped, spec: str) -> Model:
    """Fit the predictor ``picker`` on the recording of ``spec``.

    Raises:
        RecordingError: it is not there.
        PredictorError: the predictor is not ours.
    """
    recording = load(root, model.device, spec, model.space, model.dtype, model.protocol)
    table = open_part(recording)
    predictor = plugins.load(PICKER)
    if not isinstance(predictor, Distilled):
        raise PredictorError(f"predictor {PICKER!r} cannot be stored; use the one of tilearena")
    predictor.fit(table, SEED)
    return cast(Distilled, predictor).model(about(recording, len(table.problems)))


def main() -> None:
    """Train and write the models, all of them unless a space or a dtype is named."""
    parser = argparse.ArgumentParser(prog="python -m tilearena.picker.train", description=__doc__)
    parser.add_argument("--root", type=Path, help="folder of recordings; the checkout unless given")
    parser.add_argument("--space", help="this space alone")
    parser.add_argument("--dtype", help="this dtype alone")
    asked = parser.parse_args()
    for spec, space, dtype in SOURCES:
        for protocol in PROTOCOLS:
            if asked.space in (None, space) and asked.dtype in (None, dtype):
                shipped = Shipped(DEVICE, space, dtype, protocol)
                text = train(find_root(asked.root), shipped, spec).text()
                shipped.path.write_text(text, encoding="utf-8")
                print(f"{shipped.path.name}: {len(text)} bytes", flush=True)


if __name__ == "__main__":
    main()
