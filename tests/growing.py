"""Recordings of any size from a formula and a seed, to see how time and memory grow: synthetic, measured nowhere.

Ten rows a problem, as of `paper9` with its control. A row's median is the formula's time exactly, since its samples lie
in pairs around it; those of a contender's screen are too short, so that a time that counts them in is wrong.

``python tests/growing.py STEP FOLDER PROBLEMS`` takes one step in a process of its own and prints its CPU time, the
most memory that the process ever had, and the size of the recording. `append` comes first, the others read its file.
"""

import json
import resource
import sys
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import standin
from standin import DEFAULT, templates

from tilearena import dataset
from tilearena.dataset import COLUMNS, Candidate, Header, Recording
from tilearena.measure import BATCH_PROBLEMS
from tilearena.parts import Parts
from tilearena.provenance import Batch
from tilearena.records import Protocol
from tilearena.score import Key, Score, constant_pick, rank, score
from tilearena.table import Ints, Table

DEVICE = standin.DEVICE.model_copy(update={"slug": "synthetic-growth"})
SPEC = "synthetic-growth"
KEY = Key(
    op="gemm",
    spec=SPEC,
    space="paper9",
    dtype="s8",
    protocol="cold",
    device=DEVICE.slug,
    split="random",
    predictor="formula",
    version="1",
    train_spec=SPEC,
    support="native",
)
#: About as many samples a row as the measured recordings of cold have, and even numbers of them.
PROTOCOL = Protocol(name="cold", rounds=16, screen_rounds=4, reference_rounds=16, seed=0)
#: A GPU's timer has steps, and so few values that they compress well.
TICK_NS = 32
N_TEMPLATES = 9
#: Rows of a problem: the templates and the control.
N_CANDIDATES = N_TEMPLATES + 1
#: Of every so many problems one has no time of this template.
FAILS_EVERY, FAILING = 97, 2
REASON = "synthetic failure"


def header(n_problems: int) -> Header:
    """Of a recording of the synthetic device, in batches as `measure` takes them."""
    space = templates("s8")
    control = Candidate(id="control", origin="control", template=space[DEFAULT])
    return Header(
        op="gemm",
        spec=SPEC,
        spec_fingerprint="0" * 16,
        space="paper9",
        space_fingerprint="0" * 16,
        dtype="s8",
        bit_op=None,
        protocol=PROTOCOL,
        device=DEVICE,
        support="native",
        candidates=(*(Candidate(id=t.id, template=t) for t in space), control),
        default=DEFAULT,
        started_at="2026-01-01T00:00:00+00:00",
        clock=None,
        noise_floor=0.005,
        versions={"formula": "1"},
        batches=tuple(_batch(stop - start) for start, stop in cuts(n_problems)),
    )


def cuts(n_problems: int) -> list[tuple[int, int]]:
    """First problem of each batch, and the one after its last."""
    return [(i, min(i + BATCH_PROBLEMS, n_problems)) for i in range(0, n_problems, BATCH_PROBLEMS)]


def _batch(n_problems: int) -> Batch:
    return Batch(session="growth", card=None, host="0" * 16, n_problems=n_problems, started_at_s=0.0, seconds=1.0)


def shapes(start: int, stop: int) -> Ints:
    """Problems ``start`` to ``stop`` [P, 3], of 2^25 that are all different, in no order."""
    mixed = np.arange(start, stop, dtype=np.int64) * 7_368_787 % (1 << 25)
    return np.stack([1 + mixed % 2048, 128 * (1 + (mixed >> 11) % 128), 128 * (1 + (mixed >> 18))], axis=1)


def formula_ns(start: int, stop: int, seed: int) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Times [P, 10] of a batch in nanoseconds, the control's that of the default, and which of them are missing."""
    base = 2_000 + shapes(start, stop).prod(axis=1) // 1_000_000
    slower = np.random.default_rng([seed, start]).gamma(1.0, 0.2, (stop - start, N_TEMPLATES))
    times = (base[:, None] * (1 + slower)).astype(np.int64) // TICK_NS * TICK_NS
    missing = np.zeros((stop - start, N_CANDIDATES), dtype=np.bool_)
    missing[np.arange(start, stop) % FAILS_EVERY == 0, FAILING] = True
    return np.concatenate([times, times[:, [DEFAULT]]], axis=1), missing


def batch_rows(start: int, stop: int, seed: int) -> pa.Table:
    """Rows of a batch: a loser has its screen, a contender the final, too."""
    times, missing = formula_ns(start, stop, seed)
    contends = times <= 1.1 * np.where(missing, np.iinfo(np.int64).max, times).min(axis=1, keepdims=True)
    counts = PROTOCOL.screen_rounds + np.where(contends, PROTOCOL.rounds, 0)
    counts[:, DEFAULT] = PROTOCOL.screen_rounds + PROTOCOL.reference_rounds  # which are as many as a contender's rounds
    counts[:, N_TEMPLATES] = PROTOCOL.reference_rounds
    counts = np.where(missing, 0, counts).reshape(-1)
    failed = missing.reshape(-1)
    columns = [np.repeat(axis, N_CANDIDATES) for axis in shapes(start, stop).T]
    columns.append(np.tile(np.arange(N_CANDIDATES), stop - start))
    offsets = np.concatenate([[0], np.cumsum(counts)])
    arrays = [
        *(pa.array(column, field.type, safe=False) for column, field in zip(columns, COLUMNS, strict=False)),
        _coded(failed, ["ok", "launch_failed"], COLUMNS.field("status").type),
        pa.array(~failed, pa.int8()).cast(pa.int16()),
        pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), _samples(times.reshape(-1), counts, seed + start)),
        _coded(failed, ["", REASON], COLUMNS.field("reason").type),
    ]
    return pa.Table.from_arrays(arrays, schema=COLUMNS)


def _coded(failed: npt.NDArray[np.bool_], values: list[str], kind: pa.DataType) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(failed, pa.int8()).cast(kind.index_type), values)


def _samples(times: Ints, counts: Ints, seed: int) -> pa.Array:
    """Each time less and plus the same, ``counts`` of them, all even; those of a final's screen are 2 % less."""
    row = np.repeat(np.arange(len(times)), counts)
    place = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    noise = np.repeat(TICK_NS * np.random.default_rng(seed).integers(1, 5, len(row) // 2), 2)
    screened = (place < PROTOCOL.screen_rounds) & (counts[row] > PROTOCOL.reference_rounds)
    return pa.array(
        times[row] + np.where(place % 2, noise, -noise) - np.where(screened, times[row] // 50 // TICK_NS * TICK_NS, 0)
    )


def append(path: Path, n_problems: int, seed: int = 0) -> None:
    """Keep batch after batch, put them together, write the recording: what `measure` does with what it measured."""
    described = header(n_problems)
    with Parts(path, described) as parts:
        for i, (cut, batch) in enumerate(zip(cuts(n_problems), described.batches, strict=True)):
            parts.write(i, batch_rows(*cut, seed), batch)
        dataset.write(path, described, parts.collect().rows)
        parts.remove()


def narrowed(recording: Recording) -> tuple[Table, pa.Table]:
    """Its problems with at most 64 rows of A, and its rows without a time."""
    table = recording.table
    return table.take(table.problems[:, 0] <= 64), recording.rows.filter(pc.field("status") != "ok")


def scored(recording: Recording, seed: int = 0, *, intervals: bool = True) -> Score:
    """Of a predictor that errs by 10 %."""
    table = recording.table
    error = 0.1 * np.random.default_rng(seed).standard_normal(table.time_ns.shape)
    picks = rank(np.log(table.time_ns) + error)[:, :8]
    constant = np.full(len(picks), constant_pick(table))
    return score(table, picks, key=KEY, noise_floor=0.005, constant_picks=constant, intervals=intervals)


def step(name: str, path: Path, n_problems: int) -> float:
    """Seconds of CPU time that a step takes, of whatever threads; those of loading before it do not count."""
    recording = dataset.read(path) if name in ("filter", "score") else None
    started = time.process_time()
    if name == "append":
        append(path, n_problems)
    elif recording is None:
        dataset.read(path)
    elif name == "filter":
        narrowed(recording)
    else:
        scored(recording)
    return time.process_time() - started


if __name__ == "__main__":
    of = Path(sys.argv[2]) / f"{sys.argv[3]}.parquet"
    seconds = step(sys.argv[1], of, int(sys.argv[3]))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10  # Linux counts in KiB
    print(json.dumps({"seconds": seconds, "peak_bytes": peak, "file_bytes": of.stat().st_size}))
