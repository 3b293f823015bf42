"""`tilearena.pick`: what it answers, how fast, and what it says to questions that have no answer.

With ``--benchmark-enable`` it is timed by pytest-benchmark.
"""

import subprocess
import sys
import time
from itertools import cycle, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilearena
from tilearena.errors import SpecError
from tilearena.feasible import rejection
from tilearena.picker import choose
from tilearena.picker.choose import Shipped
from tilearena.records import K_ALIGNMENT, MAX_EXTENT, N_ALIGNMENT, Problem
from tilearena.root import load
from tilearena.spec import load_space

SHIPPED = list(choose.shipped())
IDS = [f"{s.space}-{s.dtype}-{s.protocol}" for s in SHIPPED]


def picked(model, m, n, k):
    return tilearena.pick(m, n, k, model.dtype, device=model.device, space=model.space, protocol=model.protocol)


def extents(dtype):
    """Of valid problems, small and large, round and odd."""
    units = (1, N_ALIGNMENT, K_ALIGNMENT[dtype])
    return st.tuples(*(st.integers(1, MAX_EXTENT // unit).map(lambda i, unit=unit: i * unit) for unit in units))


def test_a_model_ships_for_every_dtype_and_protocol_of_the_nine_and_for_the_recorded_wide_spaces():
    wanted = {("paper9", dtype) for dtype in ("s8", "s4", "b1")} | {("h200-all", "s8"), ("sm80-wide", "b1")}
    both = {Shipped("nvidia-h200", space, dtype, protocol) for space, dtype in wanted for protocol in ("cold", "hot")}
    assert set(SHIPPED) == both


@pytest.mark.parametrize("model", SHIPPED, ids=IDS)
def test_pick_is_a_template_of_the_space(model):
    templates = load_space(model.space).templates(model.dtype, "and")
    found = [picked(model, m, 4096, 4096) for m in (1, 16, 100, 1024, 10_000)]
    assert all(template in templates for template in found)
    assert len(set(found)) > 1 or model.dtype == "s4"  # one tile is nearly always the best of emulated kernels


@pytest.mark.parametrize("model", [s for s in SHIPPED if s.dtype != "s4"], ids=[i for i in IDS if "s4" not in i])
def test_picks_on_layers_that_no_model_was_trained_on_are_near_the_best(model, checkout):
    """Half of what choosing the training part's best constant template loses, at most."""
    table = load(checkout, model.device, "networks", model.space, model.dtype, model.protocol).table
    places = {t.id: i for i, t in enumerate(table.task.templates)}
    picks = [places[picked(model, *shape).id] for shape in table.problems.tolist()]
    times = np.where(np.isfinite(table.time_ns), table.time_ns, np.nan)
    slowdown = times / np.nanmin(times, axis=1, keepdims=True)
    ours = slowdown[np.arange(len(picks)), picks]
    assert np.isfinite(ours).all()  # none of the picks failed when it was measured
    best_constant = np.log(np.where(np.isnan(slowdown), np.nanmax(slowdown), slowdown)).mean(axis=0).min()
    assert np.log(ours).mean() < best_constant / 2


@pytest.mark.parametrize("model", SHIPPED, ids=IDS)
def test_pick_can_run_whatever_the_valid_problem(model, checkout):
    """But for the memory that measuring needs."""
    device = load(checkout, model.device, "lowbit-random", model.space, model.dtype, model.protocol).header.device
    roomy = device.model_copy(update={"memory_bytes": 1 << 62})
    bit_op = choose.load(*_names(model)).records[0].bit_op

    def check(shape):
        problem = Problem(m=shape[0], n=shape[1], k=shape[2], dtype=model.dtype, bit_op=bit_op)
        assert rejection(problem, picked(model, *shape), roomy) is None

    given(extents(model.dtype))(check)()
    for corner in product((1, MAX_EXTENT), (N_ALIGNMENT, MAX_EXTENT), (K_ALIGNMENT[model.dtype], MAX_EXTENT)):
        check(corner)


def _names(model):
    return model.dtype, model.device, model.space, model.protocol


def test_names_that_are_left_out_mean_the_only_device_the_nine_and_cold():
    asked = (100, 4096, 1024, "s8")
    assert tilearena.pick(*asked) == tilearena.pick(*asked, device="nvidia-h200", space="paper9", protocol="cold")
    shapes = [(m, n, 1024) for m in range(1, 2000, 61) for n in (256, 1000, 4096)]
    cold, hot = ([tilearena.pick(*s, "s8", protocol=p) for s in shapes] for p in ("cold", "hot"))
    assert cold != hot


def test_extents_may_be_whatever_counts_as_a_whole_number():
    wanted = tilearena.pick(128, 4096, 4096, "s8")
    assert tilearena.pick(np.int64(128), np.int32(4096), np.uint16(4096), "s8") == wanted
    assert tilearena.pick(m=128, n=4096, k=4096, dtype="s8") == wanted


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"m": 0}, "m=0 of a pick is not within 1..1048576"),
        ({"m": -5}, "m=-5 of a pick is not within 1..1048576"),
        ({"n": 1 << 21}, "n=2097152 of a pick is not within 1..1048576"),
        ({"k": 10**40}, r"k=10+ of a pick is not within 1\.\.1048576"),
        ({"n": 12}, "n=12 of a pick must be a multiple of 8 for s8"),
        ({"k": 24}, "k=24 of a pick must be a multiple of 16 for s8"),
        ({"k": 96, "dtype": "b1"}, "k=96 of a pick must be a multiple of 128 for b1"),
        ({"m": 1.5}, r"m, n and k of a pick are whole numbers, not \(1.5, 64, 64\)"),
        ({"m": "1"}, "m, n and k of a pick are whole numbers"),
        ({"m": None}, "m, n and k of a pick are whole numbers"),
        ({"dtype": "f16"}, "no picker ships for dtype 'f16'; use b1, s4, s8"),
        ({"device": "tpu"}, "no picker ships for device 'tpu'; use nvidia-h200"),
        ({"space": "no"}, "no picker ships for space 'no'; use h200-all, paper9, sm80-wide"),
        ({"protocol": "warm"}, "no picker ships for protocol 'warm'; use cold, hot"),
        ({"space": "h200-all", "dtype": "b1", "k": 128}, "no picker ships for b1 of space 'h200-all' on .*; use pap"),
        ({"dtype": ["s8"]}, "dtype, device, space and protocol of a pick are names"),
        ({"device": "../../x"}, "no picker ships for device '../../x'"),
        ({"k": 10**5000}, "k=<int> of a pick is not within 1..1048576"),
        ({"m": 1.5, "k": 10**5000}, r"m, n and k of a pick are whole numbers, not \(1.5, 64, <int>\)"),
        ({"device": 0}, "dtype, device, space and protocol of a pick are names"),
        ({"protocol": None}, "dtype, device, space and protocol of a pick are names"),
        ({"device": ""}, "no picker ships for device ''; use nvidia-h200"),
        ({"space": ""}, "no picker ships for space ''; use h200-all, paper9, sm80-wide"),
    ],
)  # fmt: skip
def test_question_without_an_answer_is_one_sentence(asked, sentence):
    with pytest.raises(SpecError, match=sentence) as caught:
        tilearena.pick(**{"m": 64, "n": 64, "k": 64, "dtype": "s8"} | asked)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


@pytest.mark.benchmark(group="pick a template (host time, distinct shapes)")
@pytest.mark.parametrize("space", ["paper9", "h200-all"])
def test_pick_takes_microseconds(benchmark, space):
    shapes = [(1 + 7 * i, 8 * (1 + i % 997), 16 * (1 + i % 911)) for i in range(2000)]
    tilearena.pick(1, 8, 16, "s8", space=space)
    taken_ns = []
    for m, n, k in shapes:
        started = time.perf_counter_ns()
        tilearena.pick(m, n, k, "s8", space=space)
        taken_ns.append(time.perf_counter_ns() - started)
    assert np.median(taken_ns) < 20_000
    following = cycle(shapes)
    benchmark(lambda: tilearena.pick(*next(following), "s8", space=space))


def test_picking_is_imported_fast_and_without_what_trains():
    program = (
        "import time; started = time.process_time(); import tilearena, sys; tilearena.pick(1, 8, 16, 's8');"
        "print(time.process_time() - started);"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    runs = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.splitlines()
        for _ in range(3)
    ]
    assert min(float(seconds) for seconds, _ in runs) < 0.3
    assert not {"jax", "lightgbm", "torch", "numpy", "scipy", "pyarrow", "yaml", "typer"} & set(runs[0][1].split())
