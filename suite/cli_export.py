"""The verb that writes what other tools and programs read: recordings, and pickers as C++."""

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tilearena import __version__
from tilearena.atomic import replacing
from tilearena.cli_options import Device, Root, one_of
from tilearena.errors import SpecError, one_line
from tilearena.exchange import t4
from tilearena.picker import choose, cpp
from tilearena.records import DTYPES, PROTOCOLS
from tilearena.root import find_root, load
from tilearena.spec import is_path, load_space, load_workload


class Format(StrEnum):
    """What `export` can write."""

    T4 = "t4"
    CPP = "cpp"


def export(
    device: Device,
    format_: Annotated[
        Format,
        typer.Option(
            "--format", help="t4: a recording as JSON files of auto-tuners, one a problem. cpp: the pickers as C++."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder to write below.")],
    space: Annotated[str, typer.Option("--space", help="Template space.")] = "paper9",
    dtype: Annotated[str | None, typer.Option("--dtype", help="s8, s4 or b1. Default, for cpp: all.")] = None,
    protocol: Annotated[str, typer.Option("--protocol", help="cold or hot.")] = "cold",
    spec: Annotated[str | None, typer.Option("--spec", help="Name of the workload, for t4.")] = None,
    problem: Annotated[
        list[str] | None, typer.Option("--problem", help="MxNxK, for t4; repeatable. Default: all.")
    ] = None,
    root: Root = None,
) -> None:
    """Write a recording as other tools read it, or what `tilearena.pick` knows as a C++ header."""
    problems = [_shape(text) for text in problem or ()]
    (protocol,) = one_of("--protocol", [protocol], PROTOCOLS)
    dtypes = one_of("--dtype", None if dtype is None else [dtype], DTYPES)
    if format_ is Format.CPP:
        for option, given in (("--spec", spec), ("--problem", problem), ("--root", root)):
            if given:
                raise SpecError(f"{option} is of --format t4, a picker has none; leave it out")
        print(one_line(str(_header(device, space, dtypes if dtype else None, protocol, out))))
        return
    for option, missing in (("--spec", spec is None), ("--dtype", dtype is None)):
        if missing:
            raise SpecError(f"--format t4 needs {option}; give it")
    space, spec = (load_space(space).name if is_path(space) else space), str(spec)
    spec = load_workload(spec).name if is_path(spec) else spec
    recording = load(find_root(root), device, spec, space, dtypes[0], protocol)
    written = t4.export(recording, out, problems)
    print(f"{len(written)} files are in {one_line(str(written[0].parent))}")


def _header(device: str, space: str, dtypes: tuple[str, ...] | None, protocol: str, out: Path) -> Path:
    """Write the pickers of ``dtypes``, of all that ship unless given; returns the file."""
    if dtypes is None:
        wanted = (device, space, protocol)
        shipped = [m.dtype for m in choose.shipped() if (m.device, m.space, m.protocol) == wanted]
        dtypes = tuple(dtype for dtype in DTYPES if dtype in shipped) or DTYPES[:1]  # none: loading it says so
    models = [choose.load(dtype, device, space, protocol) for dtype in dtypes]
    path = out / f"{device}.{space}.{protocol}.hpp"
    with replacing(path) as scratch:
        scratch.write_text(cpp.header(models, __version__), encoding="utf-8")
    return path


def _shape(text: str) -> tuple[int, int, int]:
    found = re.fullmatch(r"([0-9]{1,7})x([0-9]{1,7})x([0-9]{1,7})", text)
    if found is None:
        raise SpecError(f"--problem {ascii(text)[:80]} is no shape; give it as MxNxK, e.g. 16x4096x4096")
    m, n, k = map(int, found.groups())
    return m, n, k
