"""Where the problems of a workload come from: a list, a grid, a seeded random draw, or the layers of a network."""

from collections.abc import Iterator, Set
from itertools import product
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, model_validator

from tilearena.draw import Extents, Limits, RandomDraw
from tilearena.records import Extent
from tilearena.yaml_lines import Loc, LocatedError, YamlRecord

Shape = tuple[Extent, Extent, Extent]


class Grid(YamlRecord):
    """Every combination of the given M, N and K; K varies fastest."""

    m: Extents = Field(description="Values of M, rows of A and D.")
    n: Extents = Field(description="Values of N, columns of B and D; multiples of 8.")
    k: Extents = Field(description="Values of K, the summed extent; multiples of 16 (s8), 32 (s4) or 128 (b1).")


class Network(YamlRecord):
    """The linear layers of a real network at several token counts: M = tokens, N = outputs, K = inputs."""

    name: str = Field(min_length=1, description="Name of the network.")
    source: str = Field(min_length=1, description="Where the dimensions are published: a URL or a citation.")
    layers: dict[str, tuple[Extent, Extent]] = Field(
        min_length=1, description="Output and input features [N, K] by layer name; taken in alphabetical order."
    )
    tokens: Extents = Field(description="Token counts, the values of M.")


def _one_of(schema: dict[str, Any]) -> None:
    schema |= {"minProperties": 1, "maxProperties": 1}


class Source(YamlRecord):
    """Exactly one way of giving problems."""

    model_config = ConfigDict(json_schema_extra=_one_of)

    list: Annotated[tuple[Shape, ...], Field(min_length=1)] | None = Field(
        default=None, description="Problems [M, N, K]."
    )
    grid: Grid | None = Field(default=None, description="Every combination of some M, N and K.")
    random: RandomDraw | None = Field(default=None, description="A seeded log-uniform draw.")
    network: Network | None = Field(default=None, description="The linear layers of a network at several token counts.")

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        given = sorted(self.model_fields_set)
        if len(given) != 1:
            raise ValueError(
                f"should have one key of list, grid, random, network, but has {', '.join(given) or 'none'}"
            )
        if getattr(self, given[0]) is None:
            raise LocatedError((given[0],), "is empty; fill it or remove it")
        return self

    @property
    def size(self) -> int:
        """Number of problems, duplicates included."""
        if self.grid:
            return len(self.grid.m) * len(self.grid.n) * len(self.grid.k)
        if self.network:
            return len(self.network.layers) * len(self.network.tokens)
        return self.random.count if self.random else len(self.list or ())

    def extents(self, axis: int) -> Iterator[tuple[Loc, int]]:
        """Each written value of N (axis 1) or K (axis 2) and its place; a random draw writes none."""
        for i, shape in enumerate(self.list or ()):
            yield ("list", i, axis), shape[axis]
        if self.grid:
            name = "mnk"[axis]
            for i, value in enumerate(getattr(self.grid, name)):
                yield ("grid", name, i), value
        if self.network:
            for layer, features in self.network.layers.items():
                yield ("network", "layers", layer, axis - 1), features[axis - 1]

    def shapes(
        self, k_alignment: int, limits: Limits, taken: Set[tuple[int, int, int]] = frozenset()
    ) -> Iterator[tuple[Loc, tuple[int, int, int]]]:
        """Each (M, N, K) and the place that gives it; a random draw gives none of those that are ``taken``.

        Raises:
            LocatedError: a random draw that cannot be satisfied.
        """
        for i, shape in enumerate(self.list or ()):
            yield ("list", i), shape
        if self.grid:
            for shape in product(self.grid.m, self.grid.n, self.grid.k):
                yield ("grid",), shape
        if self.network:
            for layer, (n, k) in sorted(self.network.layers.items()):
                for m in self.network.tokens:
                    yield ("network", "layers", layer), (m, n, k)
        if self.random:
            try:
                for shape in self.random.draw(k_alignment, limits, taken):
                    yield ("random",), shape
            except LocatedError as error:
                raise LocatedError(("random", *error.loc), str(error)) from None
