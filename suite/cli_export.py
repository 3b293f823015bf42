"""The verb that writes recordings as other tools read them."""

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tilearena.cli_options import Device, Root, one_of
from tilearena.errors import SpecError, one_line
from tilearena.exchange import t4
from tilearena.records import DTYPES, PROTOCOLS
from tilearena.root import find_root, load


class Format(StrEnum):
    """What `export` can write."""

    T4 = "t4"


def export(
    spec: Annotated[str, typer.Option("--spec", help="Name of the workload.")],
    device: Device,
    dtype: Annotated[str, typer.Option("--dtype", help="s8, s4 or b1.")],
    format_: Annotated[Format, typer.Option("--format", help="t4: the JSON files of auto-tuners, one a problem.")],
    out: Annotated[Path, typer.Option("--out", help="Folder to write below.")],
    space: Annotated[str, typer.Option("--space", help="Template space.")] = "paper9",
    protocol: Annotated[str, typer.Option("--protocol", help="cold or hot.")] = "cold",
    problem: Annotated[list[str] | None, typer.Option("--problem", help="MxNxK; repeatable. Default: all.")] = None,
    root: Root = None,
) -> None:
    """Write a recording as other tools read it."""
    problems = [_shape(text) for text in problem or ()]
    (dtype,), (protocol,) = one_of("--dtype", [dtype], DTYPES), one_of("--protocol", [protocol], PROTOCOLS)
    recording = load(find_root(root), device, spec, space, dtype, protocol)
    written = t4.export(recording, out, problems)
    print(f"{len(written)} files are in {one_line(str(written[0].parent))}")


def _shape(text: str) -> tuple[int, int, int]:
    found = re.fullmatch(r"([0-9]{1,7})x([0-9]{1,7})x([0-9]{1,7})", text)
    if found is None:
        raise SpecError(f"--problem {ascii(text)[:80]} is no shape; give it as MxNxK, e.g. 16x4096x4096")
    m, n, k = map(int, found.groups())
    return m, n, k
