"""A root with every kind of recording that the datasheet compares: hot, cold, a partition, a repeat, another card."""

import shutil

import numpy as np
import pytest
from standin import DEVICE, formula_header, formula_ns, templates

from tilearena import dataset
from tilearena.provenance import Anchors, Batch, Range, Telemetry
from tilearena.records import Measurement, Status
from tilearena.root import path_for

CARD, OTHER = "a" * 16, "b" * 16
WHOLE = DEVICE
PART = DEVICE.model_copy(update={"slug": f"{DEVICE.slug}-sm72", "sm_count": 72, "sm_total": DEVICE.sm_count})
TWIN = DEVICE.model_copy(update={"slug": f"{DEVICE.slug}.{OTHER[:6]}"})
#: The candidate ``cublaslt``, which needs 17 rows.
VENDOR, LEAST_M = 9, 17


def shapes(count):
    logs = np.random.default_rng(3).uniform([0, 7, 7], [13, 13.5, 13.5], size=(count, 3))
    return np.maximum(np.round(2**logs / [1, 128, 512]).astype(np.int64), 1) * [1, 128, 512]


def _row(m, n, k, candidate, time_ns):
    shape = {"m": m, "n": n, "k": k, "candidate": candidate}
    if time_ns is None:
        return Measurement(**shape, status=Status.LAUNCH_FAILED, reason=f"fewer than {LEAST_M} rows")
    return Measurement(**shape, status=Status.OK, elapsed_ns=(int(time_ns),) * 3, launches=1)


def _rows(problems, space, seed):
    rng = np.random.default_rng(seed)
    for m, n, k in problems.tolist():
        times = [formula_ns((m, n, k), template) * (1 + 0.01 * rng.standard_normal()) for template in space]
        for i, time_ns in enumerate(times):
            yield _row(m, n, k, i, time_ns)
        yield _row(m, n, k, VENDOR, 1.5 * min(times) if m >= LEAST_M else None)


def _state(card, count, started_at_s):
    """Two batches, the first at the power limit and the second repeated; anchors that drift by 2 %."""
    clock, power = Range(min=1500, median=1900, max=1980), Range(min=100, median=200, max=345)
    hot = Telemetry(n_samples=3, sm_clock_mhz=clock, power_w=power, throttle_reasons=4)
    shared = {"session": "a", "card": card, "host": "0" * 16}
    calm = hot.model_copy(update={"throttle_reasons": 0})
    return {
        "batches": (
            Batch(**shared, n_problems=count - 1, started_at_s=started_at_s, seconds=2.0, telemetry=hot),
            Batch(**shared, n_problems=1, started_at_s=started_at_s + 2, seconds=1.5, telemetry=calm, attempts=2),
        ),
        "anchors": (Anchors(session="a", card=card, start_ns=(100, 200), end_ns=(102, 204)),),
    }


def write(root, device, dtype, protocol, problems, *, card, started_at_s, spec="lowbit-full", repeat=False):
    """Times of the formula with 1 % of noise, other noise each time."""
    space = templates(dtype)
    header = formula_header(spec, dtype, protocol, vendor=True).model_copy(
        update={"device": device.model_copy(update={"uuid_sha256": card})} | _state(card, len(problems), started_at_s)
    )
    rows = dataset.rows_from(_rows(problems, space, seed=round(started_at_s)))
    dataset.write(path_for(root, header, repeat=repeat), header, rows)


def rows_of(lines):
    """Cells of a Markdown table, without its head."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def held(collection, name, device=WHOLE.slug):
    (one,) = (one for one in collection.of(device) if one.name == name)
    return one


@pytest.fixture(scope="session")
def shared_root(tmp_path_factory):
    """s8 and b1, cold and hot, on a whole device; s8 cold on 72 SMs, on another card, and in a repeat; s4 emulated.

    All tests share it, so none may write there.
    """
    root, problems = tmp_path_factory.mktemp("published"), shapes(30)
    write(root, WHOLE, "s8", "cold", problems, card=CARD, started_at_s=0)
    write(root, WHOLE, "s8", "cold", problems[:10], card=CARD, started_at_s=100, repeat=True)
    write(root, WHOLE, "s8", "hot", problems, card=CARD, started_at_s=10)
    write(root, WHOLE, "b1", "cold", problems, card=CARD, started_at_s=0.5)
    write(root, WHOLE, "b1", "hot", problems, card=CARD, started_at_s=20)
    write(root, WHOLE, "s4", "cold", shapes(5), card=CARD, started_at_s=30, spec="lowbit-random")
    write(root, PART, "s8", "cold", problems[:20], card=OTHER, started_at_s=1)
    write(root, TWIN, "s8", "cold", problems, card=OTHER, started_at_s=50)
    return root


@pytest.fixture
def published_root(shared_root, tmp_path):
    """A copy of `shared_root`."""
    return shutil.copytree(shared_root, tmp_path / "root")
