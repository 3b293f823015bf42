"""A file that is no recording, or contradicts itself, is refused in one sentence that names the file."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_recording import GOLDEN, ROWS, ok, refusal, rewrite

from tilearena import dataset
from tilearena.dataset import COLUMNS
from tilearena.errors import RecordingError
from tilearena.root import find_path

ROOT = Path(__file__).parents[1]


def test_missing_recording_is_refused(tmp_path):
    sentence = refusal(tmp_path / "none.parquet")
    assert sentence.endswith("no such recording; `tilearena recordings` lists all")


def test_missing_recording_is_refused_with_those_of_the_nearest_names(tmp_path):
    others = [
        f"gemm.paper9.{dtype}.{protocol}" for dtype in ("s8", "s4") for protocol in ("cold", "hot", "cold.repeat")
    ]
    for name in ("gemm.wide.b1.cold", "gemm.wide.b1.hot", *others, ".scratch", "\x1b[2J"):
        (tmp_path / f"{name}.parquet").touch()
    sentence = refusal(tmp_path / "gemm.wide.s8.cold.parquet")
    shown = re.search("no such recording; the nearest names beside it are (.*?); `tilearena", sentence)
    assert shown is not None
    first, *rest = shown[1].split(", ")
    assert first == "gemm.wide.b1.cold"
    assert len(rest) == 4
    assert set(rest) <= {"gemm.wide.b1.hot", *others}


def test_recording_whose_footer_would_end_the_process_is_refused(tmp_path):
    """One damaged byte of a column's statistics, which Arrow throws about in C++ where nothing catches it."""
    data = bytearray((find_path(ROOT, "nvidia-h200", "quick", "paper9", "s8", "cold")).read_bytes())
    assert data[8288] == 2, "the recording was made again: find a byte of the footer that ends pyarrow's process"
    data[8288] = 104
    path = tmp_path / "damaged.parquet"
    path.write_bytes(data)
    program = f"from pathlib import Path; from tilearena.dataset import read; read(Path({str(path)!r}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "RecordingError" in done.stderr
    assert "not a readable Parquet file" in done.stderr


def test_truncated_recording_is_refused_at_any_length(tmp_path):
    data = GOLDEN.read_bytes()
    path = tmp_path / "cut.parquet"
    for length in [*range(12), *np.linspace(12, len(data) - 1, 80).astype(int)]:
        path.write_bytes(data[:length])
        assert "not a readable Parquet file" in refusal(path)


def test_recording_with_a_flipped_bit_is_refused_or_unchanged(tmp_path):
    data, original = GOLDEN.read_bytes(), dataset.read(GOLDEN)
    path = tmp_path / "flipped.parquet"
    refused = 0
    for bit in np.random.default_rng(0).choice(8 * len(data), 400, replace=False):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            rows = dataset.read(path).rows
        except RecordingError:
            refusal(path)
            refused += 1
        else:
            assert rows.equals(original.rows)
    assert refused > 50


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=200), framed=st.booleans())
def test_random_bytes_are_refused(tmp_path, data, framed):
    path = tmp_path / "random.parquet"
    path.write_bytes(b"PAR1" + data + len(data).to_bytes(4, "little") + b"PAR1" if framed else data)
    assert "not a readable Parquet file" in refusal(path)


def test_recording_with_other_columns_is_refused(small_path):
    rewrite(small_path, rows=pq.read_table(small_path).drop_columns(["reason"]))
    assert "columns are" in refusal(small_path)
    rewrite(small_path, rows=pa.table({"m": [1]}))
    assert "columns are ['m'], expected" in refusal(small_path)
    rewrite(small_path, rows=pa.table({"m" * 9999: [1]}))
    assert len(refusal(small_path)) < len(str(small_path)) + 400


def test_recording_with_a_column_of_another_type_names_it(small_path):
    table = pq.read_table(small_path)
    rewrite(small_path, rows=table.set_column(2, "k", table["k"].cast(pa.int64())))
    assert "column k is int64, expected int32; fetch it again" in refusal(small_path)


@pytest.mark.parametrize("text", [b"elapsed_ns", b"row 3 of the"])
def test_recording_with_text_that_is_no_utf8_is_refused(small_path, text):
    small_path.write_bytes(small_path.read_bytes().replace(text, b"\xee" + text[1:]))
    assert "not a readable Parquet file" in refusal(small_path)


def test_recording_whose_rows_were_changed_is_refused(small_path, small_header):
    rewrite(small_path, rows=dataset.rows_from(ROWS[:3]), fingerprint=dataset.read(small_path).header.fingerprint)
    assert "does not match its fingerprint" in refusal(small_path)


@pytest.mark.parametrize("candidate", [-1, 3])
def test_recording_with_a_candidate_out_of_range_is_refused(small_path, candidate):
    rewrite(small_path, rows=dataset.rows_from([ok(1, candidate, [5])]))
    assert "a candidate that the header does not list" in refusal(small_path)


@pytest.mark.parametrize("change", [{"status": "ok"}, {"elapsed_ns": [1]}])
def test_recording_with_a_status_that_contradicts_its_samples_is_refused(small_path, change):
    rewrite(small_path, rows=changed_rows(1, change))
    assert "row 1 has a status that contradicts its samples" in refusal(small_path)


def changed_rows(row, change):
    rows = [m.model_dump(mode="json") for m in ROWS]
    rows[row] |= change
    return pa.Table.from_pylist(rows, schema=COLUMNS)


@pytest.mark.parametrize(
    ("row", "change", "said"),
    [
        (0, {"n": 9}, "row 0 has an m, n or k that no problem has"),
        (2, {"k": 8}, "row 2 has an m, n or k that no problem has"),
        (2, {"m": 0}, "row 2 has an m, n or k that no problem has"),
        (3, {"elapsed_ns": [1, 2, 3]}, "row 3 has a number of samples that its protocol does not take"),
        (3, {"launches": 0}, "row 3 has a number of launches that contradicts"),
        (3, {"launches": 21}, "row 3 has a number of launches that contradicts"),
        (1, {"launches": 1}, "row 1 has a number of launches that contradicts"),
        (1, {"status": "tired"}, "row 1 has an unknown status"),
        (1, {"reason": ""}, "row 1 has a reason that contradicts its status"),
        (2, {"reason": "so"}, "row 2 has a reason that contradicts its status"),
        (0, {"elapsed_ns": [5, 0, 5, 5]}, "not a positive time"),
        (0, {"elapsed_ns": [5, -5, 5, 5]}, "not a positive time"),
        (4, {"candidate": 0}, "exactly one row for each candidate"),
        (4, {"m": 3}, "exactly one row for each candidate"),
    ],
)
def test_recording_with_rows_that_no_measurement_gives_is_refused(small_path, row, change, said):
    rewrite(small_path, rows=changed_rows(row, change))
    assert said in refusal(small_path)


def test_recording_that_lacks_a_row_is_refused(small_path):
    rewrite(small_path, rows=dataset.rows_from(ROWS[:-1]))
    assert "exactly one row for each candidate" in refusal(small_path)


@pytest.mark.parametrize("column", COLUMNS.names)
def test_recording_with_an_empty_cell_is_refused(small_path, column):
    row = ok(1, 0, [5]).model_dump(mode="json") | {column: None}
    rewrite(small_path, rows=pa.Table.from_pylist([row], schema=COLUMNS), fingerprint="0" * 16)
    assert f"column {column} has empty cells" in refusal(small_path)


def test_recording_with_an_empty_sample_is_refused(small_path):
    row = ok(1, 0, [5]).model_dump(mode="json") | {"elapsed_ns": [5, None]}
    rewrite(small_path, rows=pa.Table.from_pylist([row], schema=COLUMNS), fingerprint="0" * 16)
    assert "column elapsed_ns has empty cells" in refusal(small_path)


def test_recording_without_rows_is_refused(small_path):
    rewrite(small_path, rows=dataset.rows_from([]))
    assert "holds no rows" in refusal(small_path)


def test_recording_with_more_values_than_memory_may_hold_is_refused_unread(small_path, monkeypatch):
    monkeypatch.setattr(dataset, "MAX_VALUES", 7 * len(ROWS))
    assert "holds more than 42 values; record fewer problems" in refusal(small_path)


@pytest.mark.parametrize("name", ["", "..", "a/b", "a b", ".hidden", "x" * 65, "a\n"])
def test_name_that_is_no_part_of_a_path_is_refused(tmp_path, name):
    with pytest.raises(RecordingError, match="names no recording") as caught:
        find_path(tmp_path, name, "quick", "paper9", "s8", "cold")
    assert "\n" not in str(caught.value)
