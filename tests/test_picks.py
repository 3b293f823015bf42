"""The Parquet half of a submission comes back as it was written, or is refused in one sentence."""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from submitted import refused

from tilearena.errors import SubmissionError
from tilearena.picks import COLUMNS, padded, picks_fingerprint, read_picks, write_picks
from tilearena.submission import MAX_BYTES


@pytest.mark.parametrize("keep", [0, 4, 100, -1])
def test_read_refuses_truncated_parquet(written, keep):
    half = written.with_suffix(".parquet")
    half.write_bytes(half.read_bytes()[:keep])
    refused(written, "not a readable Parquet file")


def test_read_refuses_large_parquet(written):
    written.with_suffix(".parquet").write_bytes(b"\0" * (MAX_BYTES + 1))
    refused(written, "larger than 8 MiB")


def rows_of(path: Path) -> dict[str, list[int]]:
    return pq.read_table(path.with_suffix(".parquet")).to_pydict()


def put(path: Path, rows: dict[str, list[int]], schema: pa.Schema = COLUMNS) -> None:
    pq.write_table(pa.table(rows, schema=schema), path.with_suffix(".parquet"))


@pytest.mark.parametrize(
    ("column", "row", "value", "match"),
    [
        ("result", 0, 1, "row 0 should have result 0"),
        ("result", 79, 2, r"column result must lie in 0\.\.1"),
        ("result", 0, -1, r"column result must lie in 0\.\.1"),
        ("problem", 7, 8, "row 7 should have problem 7"),
        ("problem", 41, 0, "row 41 should have problem 1"),
        ("pick_1", 0, -2, "s8/cold/random problem 0 has a pick below -1"),
        ("pick_3", 39, -1, "s8/cold/random problem 39 has a -1 before a valid pick"),
        ("pick_8", 40, None, "s4/cold/random problem 0 picks one template twice"),
        ("pick_5", 2, 300, "s8/cold/random: picks do not match"),
    ],
)
def test_read_refuses_a_wrong_cell(written, column, row, value, match):
    rows = rows_of(written)
    rows[column][row] = rows["pick_1"][row] if value is None else value
    put(written, rows)
    refused(written, match)


def test_read_refuses_any_changed_pick(written):
    rows = rows_of(written)
    for column in (f"pick_{i}" for i in range(1, 9)):
        changed = {**rows, column: list(rows[column])}
        changed[column][11] = 100
        put(written, changed)
        refused(written, "s8/cold/random: picks do not match the JSON's picks_fingerprint")


def test_read_refuses_missing_and_extra_rows(written):
    rows = rows_of(written)
    put(written, {name: values[:5] + values[6:] for name, values in rows.items()})
    refused(written, "row 5 should have problem 5")
    put(written, {name: [*values, 40 if name == "problem" else values[-1]] for name, values in rows.items()})
    refused(written, "s4/cold/random: picks do not match")


def test_read_refuses_other_columns(written):
    rows = rows_of(written)
    put(written, rows, pa.schema([pa.field(f.name, f.type) for f in COLUMNS]))
    refused(written, "columns are not result, problem, pick_1")
    del rows["pick_8"]
    put(written, rows, pa.schema(list(COLUMNS)[:-1]))
    refused(written, "columns are not result, problem, pick_1")


def test_read_refuses_a_bomb_of_rows(written):
    n = (1 << 20) + 1
    put(written, {name: np.zeros(n, dtype="i4" if name == "problem" else "i2") for name in COLUMNS.names})
    assert written.with_suffix(".parquet").stat().st_size < MAX_BYTES
    refused(written, "more than 1048576 rows")


def test_picks_are_padded_and_cut_to_eight():
    assert padded(np.array([[3, 1]])).tolist() == [[3, 1, -1, -1, -1, -1, -1, -1]]
    assert padded(np.arange(9)[None]).tolist() == [[0, 1, 2, 3, 4, 5, 6, 7]]
    assert picks_fingerprint(np.array([[3, 1]])) == picks_fingerprint(np.array([[3, 1, -1]]))
    assert picks_fingerprint(np.array([[3, 1]])) != picks_fingerprint(np.array([[1, 3]]))


def test_picks_of_results_of_different_length_come_back(tmp_path):
    path = tmp_path / "p.parquet"
    write_picks(path, [np.array([[1], [2]]), np.array([[0, 1]]), np.empty((0, 3), dtype=np.int64)])
    back = read_picks(path, path.read_bytes(), ["a", "b", "c"])
    assert [len(picks) for picks in back] == [2, 1, 0]
    assert back[0][:, 0].tolist() == [1, 2]
    assert back[1].tolist() == [[0, 1, -1, -1, -1, -1, -1, -1]]


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_read_of_damaged_picks_raises_only_submission_errors(data):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "p.parquet"
        write_picks(path, [np.arange(24).reshape(3, 8)])
        raw = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 4))):
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
        try:
            (picks,) = read_picks(path, bytes(raw), ["a"])
        except SubmissionError:
            return
        assert picks.shape[1] == 8
