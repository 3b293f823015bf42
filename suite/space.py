"""A named, ordered list of templates, written as tiles; pure, needs no GPU."""

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from tilearena.errors import SpecError
from tilearena.records import BitOp, Dtype, Op, Protocol, Template, fingerprint
from tilearena.tile import KBytes, Stages, Tile
from tilearena.yaml_lines import LocatedError, YamlRecord, require_no_duplicates

#: Of one dtype. Recordings and picks have 16 bits for an index, and the candidates of a recording are some more.
MAX_TEMPLATES = 1 << 14
#: Spaces that one includes, and levels of these: what is included twice is read twice.
MAX_INCLUDED, MAX_LEVELS = 8, 3


class Default(YamlRecord):
    """The template that speedups refer to."""

    tile: str = Field(description="Name of its tile.")
    stages: Stages = Field(description="Its pipeline stages.")

    @property
    def label(self) -> str:
        """Of the template."""
        return f"{self.tile}/{self.stages}"


class Screen(YamlRecord):
    """How a space that is too large to time every template often is screened, see `tilearena.race`."""

    rounds: Annotated[int, Field(ge=1, le=64)] = Field(description="Samples of every template.")
    contenders: Annotated[int, Field(ge=2)] = Field(description="The most templates that get fresh samples.")


class Space(YamlRecord):
    """A named, ordered list of templates: those of the spaces that it includes, and of each of its tiles."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$", description="Name, part of every path of results.")
    version: int = Field(ge=1, description="Raised whenever the templates change.")
    description: str = Field(default="", description="What the space is for.")
    op: Op = Field(default="gemm", description="Operation that the templates serve.")
    include: tuple["Space", ...] = Field(
        default=(),
        max_length=MAX_INCLUDED,
        description="Spaces that come first, by name or path; of equal templates the first counts.",
        json_schema_extra={"items": {"type": "string"}},
    )
    k_bytes: KBytes = Field(default=64, description="Bytes of K in one stage.")
    tiles: dict[Annotated[str, Field(pattern=r"^[a-z0-9_]+$")], Tile] = Field(
        default_factory=dict, description="Tiles by name; their order is the order of the templates."
    )
    stages: tuple[Stages, ...] = Field(default=(), description="Numbers of pipeline stages, for each tile.")
    dtypes: tuple[Dtype, ...] = Field(min_length=1, description="Data types that the space serves.")
    default: Default = Field(description="The template that CUTLASS takes by default.")
    screen: Screen | None = Field(default=None, description="How it is screened; as the workload says unless given.")

    @field_validator("include", mode="before")
    @classmethod
    def _by_name(cls, value: Any, info: ValidationInfo) -> Any:
        """Spaces instead of their names; the context is the files that lead here, see `tilearena.spec.load_space`."""
        from tilearena.spec import load_space, space_path  # a space is loaded by what reads specs

        if not isinstance(value, tuple | list):
            return value
        if len(value) > MAX_INCLUDED:
            raise LocatedError((), f"has {len(value)} values; give at most {MAX_INCLUDED}")
        chain: tuple[Path, ...] = info.context or ()
        paths = [space_path(name).absolute() if isinstance(name, str) else None for name in value]
        for i, path in enumerate(paths):
            if path is None:  # it is no name
                continue
            if path in paths[:i]:
                raise LocatedError((i,), "is included a second time; remove it")
            if path in chain:
                raise LocatedError((i,), "leads back to a space that includes this one; remove it")
            if len(chain) > MAX_LEVELS:
                raise LocatedError((i,), f"is included over more than {MAX_LEVELS} levels; include it further up")
        return tuple(load_space(space, chain) if isinstance(space, str) else space for space in value)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        require_no_duplicates(self, "stages", "dtypes")
        for name, tile in self.tiles.items():
            if not (tile.stages or self.stages):
                raise LocatedError(("tiles", name, "stages"), "are missing; give them here or for the space")
            if tile.generator == "cutlass3" and "s4" in (tile.dtypes or self.dtypes):
                raise LocatedError(("tiles", name, "dtypes"), "has s4, which wgmma does not compute; leave it out")
            if strange := set(tile.dtypes) - set(self.dtypes):
                raise LocatedError(
                    ("tiles", name, "dtypes"),
                    f"has {', '.join(sorted(strange))}, which the space has not; leave it out",
                )
        for space in self.include:
            if missing := set(self.dtypes) - set(space.dtypes):
                raise LocatedError(("include",), f"names {space.name!r}, which has no {', '.join(sorted(missing))}")
        if (count := self._count()) > MAX_TEMPLATES:
            raise LocatedError(
                ("tiles",), f"make {count} templates, with what is included; at most {MAX_TEMPLATES} fit"
            )
        self._require_default()
        return self

    def _count(self) -> int:
        """The most templates of a dtype, equal ones of several spaces counted several times."""
        own = sum(tile.count(self.stages) for tile in self.tiles.values())
        return own + sum(space._count() for space in self.include)

    def _require_default(self) -> None:
        for dtype in self.dtypes:
            found = self._listed(dtype, "and")
            first = {template.id: template.label for template in reversed(found)}
            # a label of more parts is of a template that the default cannot name
            plain = [label for label in first.values() if label.count("/") == 1]
            if self.default.label in plain:
                continue
            for template in found:
                if template.label == self.default.label:
                    raise LocatedError(
                        ("default",), f"is {template.label}, the same as {first[template.id]}; name that"
                    )
            tiles = dict.fromkeys(label.split("/")[0] for label in reversed(plain))
            if self.default.tile not in tiles:
                use = f"use one of the tiles {', '.join(tiles)}" if tiles else f"add such a tile, plain, for {dtype}"
                raise LocatedError(("default", "tile"), f"is {self.default.tile!r}; {use}")
            stages = sorted(int(label.split("/")[1]) for label in plain if label.startswith(f"{self.default.tile}/"))
            raise LocatedError(("default", "stages"), f"is {self.default.stages}; use one of {stages}")

    @property
    def fingerprint(self) -> str:
        """16 hex digits of the content, without its description; of all orders of keys only that of tiles counts."""
        content = self.model_dump(mode="json", exclude_defaults=True, exclude={"description", "include"})
        included = {"include": [space.fingerprint for space in self.include]} if self.include else {}
        return fingerprint({**content, **included, "order": list(self.tiles)})

    def default_index(self, dtype: Dtype) -> int:
        """Index of the default among the templates of ``dtype``."""
        return [t.label for t in self.templates(dtype, "and")].index(self.default.label)

    def templates(self, dtype: Dtype, bit_op: BitOp | None = None) -> tuple[Template, ...]:
        """The templates in space order; ``bit_op`` is for b1 and ignored for other dtypes.

        Raises:
            SpecError: the space does not serve ``dtype``, or b1 comes without ``bit_op``.
        """
        if dtype not in self.dtypes:
            raise SpecError(f"space {self.name!r} has no {dtype}; it serves {', '.join(self.dtypes)}")
        if dtype == "b1" and bit_op is None:
            raise SpecError(f"space {self.name!r}: b1 needs a bit_op; give 'and' or 'xor'")
        first: dict[str, Template] = {}
        for template in self._listed(dtype, bit_op):
            first.setdefault(template.id, template)
        return tuple(first.values())

    def _listed(self, dtype: Dtype, bit_op: BitOp | None) -> list[Template]:
        """The templates before equal ones are left out."""
        found = [template for space in self.include for template in space.templates(dtype, bit_op)]
        for name, tile in self.tiles.items():
            if dtype in (tile.dtypes or self.dtypes):
                found += tile.templates(name, dtype, bit_op, self.stages, self.k_bytes)
        return found

    def screened(self, protocol: Protocol) -> Protocol:
        """``protocol`` with the screen of this space, if it has one."""
        if self.screen is None:
            return protocol
        return protocol.model_copy(
            update={"screen_rounds": self.screen.rounds, "max_contenders": self.screen.contenders}
        )
