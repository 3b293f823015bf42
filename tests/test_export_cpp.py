"""``tilearena export --format cpp``: a header whose picks are those of `tilearena.pick`, on every recorded problem."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tilearena
from tilearena import dataset
from tilearena.errors import SpecError, TilearenaError
from tilearena.picker import choose, cpp
from tilearena.records import DTYPES, K_ALIGNMENT, MAX_EXTENT
from tilearena.root import recorded

PROGRAM = Path(__file__).with_name("picks_main.cpp")
SHIPPED = list(choose.shipped())
HEADERS = sorted({(s.device, s.space, s.protocol) for s in SHIPPED})
#: What is of no problem: extents of zero, below it, and too large; N and K between multiples; ends of 64 bits.
STRANGE = [
    (0, 64, 128),
    (-1, 64, 128),
    (64, 0, 128),
    (64, -64, 128),
    (64, 64, 0),
    (64, 64, -128),
    (MAX_EXTENT + 1, 64, 128),
    (64, MAX_EXTENT + 8, 128),
    (64, 64, MAX_EXTENT + 128),
    (64, 12, 128),
    (64, 64, 136),
    (64, 64, 8),
    ((1 << 63) - 1, 64, 128),
    (-(1 << 63), 64, 128),
    (64, -(1 << 63), 128),
    (64, 64, (1 << 63) - 1),
]


@pytest.fixture(scope="module")
def headers(tmp_path_factory, request):
    """Every header that can be exported, by what it is of."""
    from typer.testing import CliRunner

    from tilearena.cli import app

    folder = tmp_path_factory.mktemp("headers")
    for device, space, protocol in HEADERS:
        options = ["--device", device, "--space", space, "--protocol", protocol, "--out", str(folder)]
        done = CliRunner().invoke(app, ["export", "--format", "cpp", *options])
        assert (done.exit_code, done.output.strip()) == (0, str(folder / f"{device}.{space}.{protocol}.hpp"))
    return folder


@pytest.fixture(scope="module")
def answers(headers, tmp_path_factory):
    """Ids that the compiled header gives for shapes, and the nanoseconds of a call."""
    compiler = shutil.which("g++")
    assert compiler, "g++ is needed, as nvcc needs it"
    folder = tmp_path_factory.mktemp("picks")

    def ask(model, shapes):
        program = folder / f"{model.space}.{model.dtype}.{model.protocol}"
        name = f"tilearena::{cpp.namespace(model.device, model.space, model.protocol)}::{model.dtype}"
        header = headers / f"{model.device}.{model.space}.{model.protocol}.hpp"
        flags = ["-std=c++17", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"]
        names = [f'-DHEADER="{header}"', f"-DSELECT={name}"]
        subprocess.run([compiler, *flags, *names, "-o", str(program), str(PROGRAM)], check=True)
        text = "\n".join(" ".join(map(str, shape)) for shape in shapes)
        done = subprocess.run([str(program)], input=text, capture_output=True, text=True, check=True)
        *ids, taken_ns = done.stdout.split()
        return ids, float(taken_ns)

    return ask


def pick(model, shape):
    try:
        return tilearena.pick(*shape, model.dtype, device=model.device, space=model.space, protocol=model.protocol).id
    except SpecError:
        return "-"


@pytest.mark.parametrize("model", SHIPPED, ids=lambda s: f"{s.space}-{s.dtype}-{s.protocol}")
def test_header_picks_what_python_picks(model, answers, checkout):
    """On all problems that are recorded of the dtype, on random ones of all sizes, and on what is no problem at all."""
    paths = [path for path in recorded(checkout) if f".{model.dtype}.cold" in path.name and ".repeat" not in path.name]
    tables = [dataset.read(path).table for path in paths]
    shapes = {tuple(shape) for table in tables for shape in table.problems.tolist()}
    assert len(shapes) >= 2000
    units = np.array([1, 8, K_ALIGNMENT[model.dtype]])
    drawn = np.exp2(np.random.default_rng(1).uniform(0, 20, (5000, 3))).astype(np.int64) // units * units
    asked = [*sorted(shapes), *map(tuple, drawn.tolist()), *STRANGE]
    ids, taken_ns = answers(model, asked)
    assert ids == [pick(model, shape) for shape in asked]
    assert ids[-len(STRANGE) :] == ["-"] * len(STRANGE)
    assert len(set(ids)) > 2
    assert taken_ns < 200  # the least of 20 rounds over distinct shapes


def test_header_says_what_it_is_of(headers):
    text = (headers / "nvidia-h200.paper9.cold.hpp").read_text()
    assert all(f"namespace {dtype} {{" in text for dtype in DTYPES)
    recording = choose.load("s8").trained_on[0]
    assert f"{recording['n_problems']} problems of {recording['spec']} ({recording['fingerprint']})" in text
    assert f"Written by tilearena {tilearena.__version__}." in text
    included = [line for line in text.splitlines() if line.startswith("#include")]
    assert included == ["#include <cstdint>"]


def test_header_lists_the_templates_with_their_parameters(headers):
    text = (headers / "nvidia-h200.h200-all.cold.hpp").read_text()
    for template in choose.load("s8", space="h200-all").records:
        (line,) = (line for line in text.splitlines() if f'"{template.id}"' in line)
        shapes = [", ".join(map(str, shape)) for shape in (template.threadblock, template.warp, template.cluster)]
        assert all(f"{{{shape}}}" in line for shape in shapes)
        assert f"{template.stages}, {template.split_k}, {template.swizzle}" in line


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--device", "tpu"], "no picker ships for device 'tpu'; use nvidia-h200"),
        (["--space", "sm90-native"], "no picker ships for space 'sm90-native'; use h200-all, paper9, sm80-wide"),
        (["--space", "h200-all", "--dtype", "b1"], "no picker ships for b1 of space 'h200-all'"),
        (["--dtype", "f16"], "--dtype 'f16' is unknown; choose from s8, s4, b1"),
        (["--protocol", "warm"], "--protocol 'warm' is unknown; choose from cold, hot"),
        (["--device", ""], "no picker ships for device ''; use nvidia-h200"),
        (["--space", ""], "no picker ships for space ''; use h200-all, paper9, sm80-wide"),
        (["--dtype", ""], "--dtype '' is unknown; choose from s8, s4, b1"),
        (["--spec", "quick"], "--spec is of --format t4, a picker has none; leave it out"),
        (["--problem", "1x8x16"], "--problem is of --format t4, a picker has none; leave it out"),
    ],
)
def test_export_that_cannot_be_is_one_sentence(options, sentence, tmp_path):
    from typer.testing import CliRunner

    from tilearena.cli import app

    given = {"--device": "nvidia-h200"} | dict(zip(options[::2], options[1::2], strict=True))
    flat = [text for pair in given.items() for text in pair]
    done = CliRunner().invoke(app, ["export", "--format", "cpp", "--out", str(tmp_path), *flat])
    assert done.exit_code != 0
    assert isinstance(done.exception, TilearenaError)
    assert sentence in str(done.exception)
    assert not list(tmp_path.iterdir())
