"""``tilearena.pick``: the template to use for a problem, from a model that ships with tilearena."""

from collections.abc import Iterator
from functools import cache
from operator import index
from pathlib import Path
from typing import NamedTuple, SupportsIndex

from tilearena.errors import SpecError
from tilearena.picker import sound
from tilearena.picker.model import MODELS, Model, read
from tilearena.records import K_ALIGNMENT, MAX_EXTENT, N_ALIGNMENT, Template

SPACE = "paper9"
NOT_NAMES = "dtype, device, space and protocol of a pick are names; give them as text"


class Shipped(NamedTuple):
    """What a model is for."""

    device: str
    space: str
    dtype: str
    protocol: str

    @property
    def path(self) -> Path:
        """Its file."""
        return MODELS / f"{self.device}.{self.space}.{self.dtype}.{self.protocol}.json"


def shipped() -> Iterator[Shipped]:
    """All models that ship, sorted."""
    for path in sorted(MODELS.glob("*.*.*.*.json")):
        yield Shipped(*path.stem.rsplit(".", 3))


def pick(
    m: SupportsIndex,
    n: SupportsIndex,
    k: SupportsIndex,
    dtype: str,
    device: str | None = None,
    space: str | None = None,
    protocol: str = "cold",
) -> Template:
    """The template to use for D[m, n] = A[m, k] x B[k, n].

    Args:
        m: rows of A and D, 1 to 2^20.
        n: columns of B and D, a multiple of 8 up to 2^20.
        k: columns of A and rows of B, a multiple of 16 (s8), 32 (s4) or 128 (b1) up to 2^20.
        dtype: s8, s4 or b1 (with the bit operation that the device computes).
        device: slug of the device; needed where models of several ship.
        space: the space to pick from; ``paper9`` unless given.
        protocol: ``cold`` if operands come from DRAM, ``hot`` if from L2.

    Raises:
        SpecError: no model ships for that, or the extents are of no problem.
    """
    try:
        model, records, alignment = _model(dtype, device, space, protocol)
    except TypeError:
        raise SpecError(NOT_NAMES) from None
    try:
        m, n, k = index(m), index(n), index(k)
    except TypeError:
        given = ", ".join(map(_text, (m, n, k)))
        raise SpecError(f"m, n and k of a pick are whole numbers, not ({given})") from None
    if not (0 < m <= MAX_EXTENT and 0 < n <= MAX_EXTENT and 0 < k <= MAX_EXTENT) or n % N_ALIGNMENT or k % alignment:
        raise SpecError(_fault(m, n, k, dtype, alignment))
    picked = model.index(m, n, k)
    if picked < 0:
        raise SpecError(f"no template of the picker can run {m} x {n} x {k} ({dtype}); use the space's default")
    return records[picked]


@cache
def _model(dtype: str, device: str | None, space: str | None, protocol: str) -> tuple[Model, tuple[Template, ...], int]:
    model = load(dtype, device, space, protocol)
    return model, model.records, K_ALIGNMENT[model.records[0].dtype]


def load(dtype: str, device: str | None = None, space: str | None = None, protocol: str = "cold") -> Model:
    """The model that ships for these names, which mean what they mean to `pick`.

    Raises:
        SpecError: none ships, and the message says for what some do; or the one that ships is damaged.
    """
    named = [name for name in (device, space) if name is not None]
    if not all(isinstance(name, str) for name in (dtype, protocol, *named)):
        raise SpecError(NOT_NAMES)
    known = list(shipped())
    devices = sorted({model.device for model in known})
    if not devices:
        raise SpecError(f"{MODELS}: no picker is there; install tilearena again")
    if device is None and len(devices) != 1:
        raise SpecError(f"pickers ship for the devices {', '.join(devices)}; name one of them")
    asked = Shipped(devices[0] if device is None else device, SPACE if space is None else space, dtype, protocol)
    if asked in known:
        return _sound(asked)
    for key, value in asked._asdict().items():
        values = sorted({getattr(model, key) for model in known})
        if value not in values:
            raise SpecError(f"no picker ships for {key} {_text(value)}; use {', '.join(values)}")
    spaces = sorted({model.space for model in known if (model.device, model.dtype) == (asked.device, dtype)})
    raise SpecError(f"no picker ships for {dtype} of space {asked.space!r} on {asked.device}; use {', '.join(spaces)}")


def _sound(asked: Shipped) -> Model:
    """The stored model, which is safe to ask whatever there is in its file."""
    try:
        model = read(asked.path)
        fault = sound.fault(model, asked._asdict())
    except (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
        fault = type(error).__name__
    if fault:
        raise SpecError(f"{asked.path}: no picker's model ({fault}); install tilearena again")
    return model


def _text(value: object) -> str:
    try:
        return ascii(value)[:80]
    except Exception:  # a number of more digits than Python shows, or an object that cannot be shown
        return f"<{type(value).__name__}>"


def _fault(m: int, n: int, k: int, dtype: str, alignment: int) -> str:
    for axis, extent in zip("mnk", (m, n, k), strict=True):
        if not 0 < extent <= MAX_EXTENT:
            return f"{axis}={_text(extent)} of a pick is not within 1..{MAX_EXTENT}"
    axis, extent, multiple = ("n", n, N_ALIGNMENT) if n % N_ALIGNMENT else ("k", k, alignment)
    return f"{axis}={extent} of a pick must be a multiple of {multiple} for {dtype}"
