"""The pictures of the datasheet: which there are, how they look, and how they become files of the same bytes always."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tilearena.atomic import replacing
from tilearena.datasheet.collection import Collection
from tilearena.errors import TilearenaError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Whatever a user's matplotlibrc says.
STYLE = {
    "figure.dpi": 100,
    "savefig.dpi": 110,
    "font.family": ["DejaVu Sans"],
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
}


class PictureError(TilearenaError):
    """Pictures cannot be drawn here."""


@dataclass(frozen=True)
class Picture:
    """One drawing, its file's name without suffix, and what it says."""

    name: str
    caption: str
    figure: "Figure"


@contextmanager
def _house_style() -> Iterator[None]:
    try:
        import matplotlib.style
    except ImportError:
        raise PictureError("pictures need matplotlib; run: pip install 'tilearena[docs]'") from None
    except ValueError as error:  # MPLBACKEND, say
        raise PictureError(f"matplotlib does not start: {error}; correct its settings") from None
    with matplotlib.style.context(["default", STYLE]):
        yield


def draw(collection: Collection) -> list[Picture]:
    """All pictures for which ``collection`` has the recordings, in the order of the datasheet.

    Raises:
        PictureError: matplotlib is missing.
    """
    with _house_style():
        from tilearena.datasheet.pictures_of_choice import best_template, speedups, winners
        from tilearena.datasheet.pictures_of_speed import hot_and_cold, partitions, roofline

        drawn = (
            *best_template(collection),
            winners(collection),
            speedups(collection),
            hot_and_cold(collection),
            partitions(collection),
            roofline(collection),
        )
    return [picture for picture in drawn if picture is not None]


def save(pictures: list[Picture], folder: Path) -> None:
    """Write ``<name>.png`` of each into ``folder``; the same pictures and the same matplotlib give the same bytes."""
    with _house_style():
        for picture in pictures:
            with replacing(folder / f"{picture.name}.png") as scratch:
                picture.figure.savefig(
                    scratch, format="png", metadata={"Software": None}, pil_kwargs={"optimize": True}
                )
