"""Where data lie: ``--root``, then ``TILEARENA_ROOT``, then the checkout; recordings found below it."""

import os
from pathlib import Path

from tilearena import dataset
from tilearena.dataset import Recording
from tilearena.errors import RecordingError

RECORDINGS = Path("baselines") / "recordings"


def find_root(given: Path | None = None) -> Path:
    """The folder that holds ``baselines/recordings`` and ``leaderboard/submissions``.

    Raises:
        RecordingError: a folder was named that does not exist, or there is no checkout here.
    """
    named = given or (Path(os.environ["TILEARENA_ROOT"]) if os.environ.get("TILEARENA_ROOT") else None)
    if named is not None:
        if not named.is_dir():
            raise RecordingError(f"{named}: no such folder; give --root or TILEARENA_ROOT an existing one")
        return named
    try:
        here = Path.cwd()
    except FileNotFoundError:
        raise RecordingError("the current folder was removed; change to another, or give --root") from None
    for folder in (here, *here.parents, Path(__file__).resolve().parents[1]):
        if (folder / RECORDINGS).is_dir():
            return folder
    raise RecordingError(f"no {RECORDINGS} at or above {here}; run in a checkout, or give --root or TILEARENA_ROOT")


def recorded(root: Path) -> list[Path]:
    """All recordings below ``root``, sorted by path."""
    return sorted(p for p in (root / RECORDINGS).glob("*/*/*.parquet") if not p.name.startswith("."))


def recorded_devices(root: Path) -> list[str]:
    """Slugs of the devices that have recordings."""
    return sorted({path.parts[-3] for path in recorded(root)})


def load(root: Path, device: str, spec: str, space: str, dtype: str, protocol: str, op: str = "gemm") -> Recording:
    """One recording.

    Raises:
        RecordingError: not recorded (the message lists the devices that are), or damaged.
    """
    path = dataset.find_path(root, device, spec, space, dtype, protocol, op)
    if not path.is_file():
        known = ", ".join(recorded_devices(root)) or "none"
        raise RecordingError(
            f"no recording of {op}/{spec}/{space}/{dtype}/{protocol} on {device!r} below {root}; "
            f"recorded devices: {known}"
        )
    return dataset.read(path)
