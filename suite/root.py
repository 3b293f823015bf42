"""Where data lie: ``--root``, then ``TILEARENA_ROOT``, then the checkout; recordings found below it."""

import os
import re
from pathlib import Path

from tilearena import dataset
from tilearena.dataset import Header, Recording
from tilearena.errors import RecordingError
from tilearena.records import SLUG

RECORDINGS = Path("baselines") / "recordings"


def find_root(given: Path | None = None) -> Path:
    """The folder that holds ``baselines/recordings`` and ``leaderboard/submissions``.

    Raises:
        RecordingError: a folder was named that does not exist, or there is no checkout here, or its name is not UTF-8.
    """
    named = given or (Path(os.environ["TILEARENA_ROOT"]) if os.environ.get("TILEARENA_ROOT") else None)
    if named is not None:
        if not named.is_dir():
            raise RecordingError(f"{named}: no such folder; give --root or TILEARENA_ROOT an existing one")
        return _named_in_utf8(named)
    try:
        here = Path.cwd()
    except FileNotFoundError:
        raise RecordingError("the current folder was removed; change to another, or give --root") from None
    for folder in (here, *here.parents, Path(__file__).resolve().parents[1]):
        if (folder / RECORDINGS).is_dir():
            return _named_in_utf8(folder)
    raise RecordingError(f"no {RECORDINGS} at or above {here}; run in a checkout, or give --root or TILEARENA_ROOT")


def _named_in_utf8(folder: Path) -> Path:
    try:
        str(folder).encode()
    except UnicodeEncodeError:  # Arrow opens no such path
        raise RecordingError(f"{folder}: the name of this folder is not UTF-8; rename it, or use another") from None
    return folder


def path_for(root: Path, header: Header, *, repeat: bool = False) -> Path:
    """Where a recording lies below ``root`` (the checkout, or ``--root``)."""
    return find_path(
        root, header.device.slug, header.spec, header.space, header.dtype, header.protocol.name, header.op, repeat
    )


def find_path(
    root: Path,
    device: str,
    spec: str,
    space: str,
    dtype: str,
    protocol: str,
    op: str = "gemm",
    repeat: bool = False,
) -> Path:
    """``baselines/recordings/<device>/<spec>/<op>.<space>.<dtype>.<protocol>[.repeat].parquet`` below ``root``.

    Raises:
        RecordingError: a name that cannot be part of a path.
    """
    for part in (device, spec, op, space, dtype, protocol):
        if not re.fullmatch(SLUG, part):
            raise RecordingError(
                f"{ascii(part)[:80]} names no recording; use up to 64 letters, digits, '.', '_' and '-'"
            )
    name = f"{op}.{space}.{dtype}.{protocol}{'.repeat' if repeat else ''}.parquet"
    return root / RECORDINGS / device / spec / name


def recorded(root: Path) -> list[Path]:
    """All recordings below ``root``, sorted by path."""
    return sorted(p for p in (root / RECORDINGS).glob("*/*/*.parquet") if not p.name.startswith("."))


def recorded_devices(root: Path) -> list[str]:
    """Slugs of the devices that have recordings."""
    return sorted({path.parts[-3] for path in recorded(root)})


def read_in_place(root: Path, path: Path, *, repeat: bool = False) -> Recording:
    """Read a recording that lies where its content says.

    Raises:
        RecordingError: it is missing, damaged, or lies elsewhere.
    """
    recording = dataset.read(path)
    require_in_place(root, path, recording.header, repeat=repeat)
    return recording


def require_in_place(root: Path, path: Path, header: Header, *, repeat: bool) -> None:
    """Refuse a recording that lies elsewhere than its content says, or whose names cannot be part of a path."""
    place = path_for(root, header, repeat=repeat)
    if place != path:
        raise RecordingError(f"{path}: by its content it belongs in {place}; move it there")


def load(root: Path, device: str, spec: str, space: str, dtype: str, protocol: str, op: str = "gemm") -> Recording:
    """One recording.

    Raises:
        RecordingError: not recorded (the message lists the devices that are), damaged, or not where it belongs.
    """
    path = find_path(root, device, spec, space, dtype, protocol, op)
    if not path.is_file():
        known = ", ".join(recorded_devices(root)) or "none"
        raise RecordingError(
            f"no recording of {op}/{spec}/{space}/{dtype}/{protocol} on {device!r} below {root}; "
            f"recorded devices: {known}"
        )
    return read_in_place(root, path)
