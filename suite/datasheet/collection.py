"""All that was measured below a root, read and verified: what a datasheet and its pictures are made of."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tilearena.dataset import Header, Recording
from tilearena.errors import RecordingError
from tilearena.figures import measured
from tilearena.inventory import REPEAT
from tilearena.records import PROTOCOLS, Device, Dtype, ProtocolName, fingerprint
from tilearena.root import RECORDINGS, read_in_place, recorded
from tilearena.splits import shape_codes

#: In the order in which they are shown: what is native on all cards of the suite first.
SHOWN: tuple[Dtype, ...] = ("s8", "b1", "s4")
#: The space that comes first, and goes without saying.
PUBLISHED = "paper9"


@dataclass(frozen=True)
class Held:
    """One recording in memory; ``path`` is below ``baselines/recordings``."""

    path: Path
    n_bytes: int
    recording: Recording

    @property
    def is_repeat(self) -> bool:
        """Whether it is for ceilings."""
        return self.path.name.endswith(REPEAT)

    @property
    def header(self) -> Header:
        """The recording's."""
        return self.recording.header

    @property
    def subject(self) -> str:
        """``lowbit-random s8``; other spaces than `PUBLISHED` are named."""
        h = self.header
        return f"{h.spec} {h.dtype}" if h.space == PUBLISHED else f"{h.spec} {h.space} {h.dtype}"

    @property
    def name(self) -> str:
        """``lowbit-random s8 cold``, and ``, repeat`` where it is one."""
        return f"{self.subject} {self.header.protocol.name}{', repeat' if self.is_repeat else ''}"


@dataclass(frozen=True)
class Collection:
    """Recordings in the order in which they are shown."""

    held: tuple[Held, ...]

    @property
    def firsts(self) -> tuple[Held, ...]:
        """All but the repeats."""
        return tuple(one for one in self.held if not one.is_repeat)

    @property
    def devices(self) -> tuple[Device, ...]:
        """One of each slug: whole cards, then partitions from the largest down."""
        found: dict[str, Device] = {}
        for one in self.held:
            found.setdefault(one.header.device.slug, one.header.device)
        return tuple(found.values())

    @property
    def fingerprint(self) -> str:
        """Of all recordings together, 16 hex digits."""
        return fingerprint(sorted(one.header.fingerprint for one in self.held))

    def of(self, device: str) -> tuple[Held, ...]:
        """What was recorded on the device of this slug."""
        return tuple(one for one in self.held if one.header.device.slug == device)

    def like(self, one: Held, **other: object) -> Held | None:
        """The first recording that agrees with ``one`` in device, spec, space, dtype, protocol and ``repeat``.

        All but those that are given in ``other``, whose values it has instead. One that cannot be compared with ``one``
        is none.
        """
        wanted = {**_key(one), **other}
        return next((held for held in self.held if _key(held) == wanted and comparable(held, one)), None)


def comparable(one: Held, other: Held) -> bool:
    """Whether they are of the same templates, and have a problem in common of which both have a time."""
    if one.recording.templates != other.recording.templates:
        return False
    tables = (held.recording.table for held in (one, other))
    mine, theirs = (shape_codes(table.problems[measured(table)]) for table in tables)
    return bool(np.isin(mine, theirs).any())


def _key(one: Held) -> dict[str, object]:
    h = one.header
    return {
        "device": h.device.slug,
        "spec": h.spec,
        "space": h.space,
        "dtype": h.dtype,
        "protocol": h.protocol.name,
        "repeat": one.is_repeat,
    }


def collect(root: Path) -> Collection:
    """Read every recording below ``root`` that was measured; imported ones are none of the data set.

    Raises:
        RecordingError: one is damaged or lies elsewhere than its content says, or there is none.
    """
    held = tuple(sorted(_read(root), key=_order))
    if not held:
        raise RecordingError(f"{root / RECORDINGS}: nothing measured is recorded there; measure first, or give --root")
    return Collection(held)


def _read(root: Path) -> Iterator[Held]:
    for path in recorded(root):
        recording = read_in_place(root, path, repeat=path.name.endswith(REPEAT))
        if recording.header.origin == "measured":
            yield Held(path.relative_to(root / RECORDINGS), path.stat().st_size, recording)


def _order(one: Held) -> tuple[object, ...]:
    h, device = one.header, one.header.device
    place = (device.product, device.sm_total is not None, -device.sm_count, device.slug)
    return (
        *place,
        h.spec,
        h.space != PUBLISHED,
        h.space,
        SHOWN.index(h.dtype),
        PROTOCOLS.index(h.protocol.name),
        one.is_repeat,
    )


def largest(candidates: Sequence[Held], dtype: Dtype, protocol: ProtocolName) -> Held | None:
    """The one of a whole card, no repeat, with the most problems and a time; the first of several."""
    fit = [
        one
        for one in candidates
        if (one.header.dtype, one.header.protocol.name) == (dtype, protocol)
        and one.header.device.sm_total is None
        and not one.is_repeat
        and measured(one.recording.table).any()
    ]
    return max(fit, key=lambda one: len(one.recording.table.problems), default=None)
