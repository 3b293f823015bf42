"""A file that is no recording, or contradicts itself, is refused in one sentence that names the file."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_recording import GOLDEN, ROWS, batch, ok, refusal, rewrite

from tilearena import dataset
from tilearena.dataset import COLUMNS, METADATA_KEY
from tilearena.errors import RecordingError
from tilearena.provenance import Telemetry
from tilearena.root import find_path


@pytest.mark.parametrize("counts", [(1,), (2, 1), (3,)])
def test_recording_whose_batches_are_of_other_problems_is_refused(small_path, small_header, counts):
    batches = tuple(batch(count) for count in counts)
    dataset.write(small_path, small_header.model_copy(update={"batches": batches}), dataset.rows_from(ROWS))
    assert f"its batches are of {sum(counts)} problems, but it has 2" in refusal(small_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("n_problems", 0),
        ("started_at_s", float("nan")),
        ("started_at_s", 1e308),
        ("seconds", -1.0),
        ("seconds", float("inf")),
        ("attempts", 0),
        ("retakes", -1),
        ("retakes", 1 << 63),
        ("telemetry", Telemetry(n_samples=0).model_copy(update={"n_samples": -1})),
    ],
)
def test_header_with_a_batch_that_no_card_measures_is_refused(small_path, small_header, key, value):
    impossible = batch(2).model_copy(update={key: value})
    dataset.write(small_path, small_header.model_copy(update={"batches": (impossible,)}), dataset.rows_from(ROWS))
    assert f"header key 'batches.0.{key}" in refusal(small_path)


def test_two_candidates_with_one_id_are_refused(small_path, small_header):
    first, second = small_header.candidates[:2]
    twins = (first, second.model_copy(update={"id": first.id}), *small_header.candidates[2:])
    dataset.write(small_path, small_header.model_copy(update={"candidates": twins}), dataset.rows_from(ROWS))
    assert "two of its candidates have the same id" in refusal(small_path)


@pytest.mark.parametrize("change", [{"default": 0}, {"noise_floor": 0.5}, {"started_at": "2020-01-01"}])
def test_recording_whose_header_was_changed_is_refused(small_path, change):
    rewrite(small_path, fingerprint=dataset.read(small_path).header.fingerprint, **change)
    assert "does not match its fingerprint" in refusal(small_path)


def test_missing_recording_is_refused(tmp_path):
    assert "no such recording" in refusal(tmp_path / "none.parquet")


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


def test_recording_without_a_header_is_refused(small_path):
    pq.write_table(pq.read_table(small_path).replace_schema_metadata(None), small_path)
    assert "no tilearena header" in refusal(small_path)


@pytest.mark.parametrize("text", [b"{", b"[]", b"null", b"3", b"\xff\xfe", b"", b"[" * 100_000])
def test_recording_with_a_header_that_is_no_json_object_is_refused(small_path, text):
    pq.write_table(pq.read_table(small_path).replace_schema_metadata({METADATA_KEY: text}), small_path)
    assert "not a JSON object" in refusal(small_path)


@pytest.mark.parametrize(
    ("version", "advice"),
    [
        (0, "record it again"),
        (1, "record it again"),
        (3, "update tilearena"),
        (99, "update tilearena"),
        ("1", "record it again"),
    ],
)
def test_recording_of_another_schema_version_is_refused_with_advice(small_path, version, advice):
    rewrite(small_path, schema_version=version)
    message = refusal(small_path)
    assert f"schema version {version!r}, this tilearena reads 2" in message
    assert advice in message


def test_recording_without_a_schema_version_is_refused(small_path):
    rewrite(small_path, without=["schema_version"])
    assert "schema version None" in refusal(small_path)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"dtype": "s16"}, "dtype"),
        ({"device": {"slug": "x"}}, "device.product"),
        ({"without": ["default"]}, "default"),
        ({"colour": "red"}, "colour"),
        ({"k" * 999: 1}, "k" * 119),
    ],
)
def test_recording_with_a_wrong_header_key_names_it(small_path, change, key):
    rewrite(small_path, **change)
    assert f"header key '{key}" in (message := refusal(small_path))
    assert len(message) < len(str(small_path)) + 200


def test_recording_with_half_a_character_in_its_header_is_refused(small_path):
    rewrite(small_path, versions={"cuda": "\ud800"})
    assert "header key '': Invalid JSON" in refusal(small_path)


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


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"default": 2}, "its default is 2, but it has 2 templates"),
        ({"default": -1}, "its default is -1, but it has 2 templates"),
        ({"candidates": []}, "its default is 1, but it has 0 templates"),
        ({"dtype": "s4"}, "candidate 0 is no template of s4"),
        ({"bit_op": "and"}, "candidate 0 is no template of s8"),
        ({"noise_floor": float("nan")}, "header key 'noise_floor'"),
        ({"noise_floor": -0.1}, "header key 'noise_floor'"),
        ({"schema_version": [["x" * 99] * 99]}, "schema version [['xxx"),
    ],
)
def test_recording_whose_header_contradicts_itself_is_refused(small_path, change, said):
    rewrite(small_path, **change)
    assert said in (message := refusal(small_path))
    assert len(message) < len(str(small_path)) + 200
    with pytest.raises(RecordingError) as caught:  # nor is it listed without a look at its rows
        dataset.read_header(small_path)
    assert str(caught.value) == message


@pytest.mark.parametrize("shape", ["threadblock", "warp", "instruction"])
@pytest.mark.parametrize("extents", [[64, 0, 64], [-64, 64, 64], [64, 64, 10**400]])
def test_recording_with_a_template_of_no_shape_is_refused(small_path, shape, extents):
    first, *others = json.loads(pq.read_metadata(small_path).metadata[METADATA_KEY])["candidates"]
    rewrite(small_path, candidates=[first | {"template": first["template"] | {shape: extents}}, *others])
    assert "candidate 0 is a template of a shape that no kernel has" in refusal(small_path)


def test_recording_with_a_warp_larger_than_its_threadblock_is_refused(small_path):
    first, *others = json.loads(pq.read_metadata(small_path).metadata[METADATA_KEY])["candidates"]
    rewrite(small_path, candidates=[first | {"template": first["template"] | {"warp": [512, 64, 64]}}, *others])
    assert "candidate 0 is a template of a shape that no kernel has" in refusal(small_path)


@pytest.mark.parametrize("codec", ["utf-16", "utf-8-sig"])
def test_recording_whose_header_is_no_plain_utf8_is_refused(small_path, codec):
    text = pq.read_metadata(small_path).metadata[METADATA_KEY].decode()
    with pq.ParquetWriter(small_path, COLUMNS) as file:
        file.write_table(dataset.rows_from(ROWS))
        file.add_key_value_metadata({METADATA_KEY: text.encode(codec)})
    assert "not a JSON object; fetch it again" in refusal(small_path)


def test_recording_whose_templates_do_not_come_first_is_refused(small_path):
    raw = json.loads(pq.read_metadata(small_path).metadata[METADATA_KEY])
    rewrite(small_path, candidates=raw["candidates"][::-1])
    assert "a template comes after a control" in refusal(small_path)
    rewrite(small_path, candidates=[c | {"template": None} for c in raw["candidates"]])
    assert "candidate 0 is no template of s8" in refusal(small_path)


def test_recording_with_more_values_than_memory_may_hold_is_refused_unread(small_path, monkeypatch):
    monkeypatch.setattr(dataset, "MAX_VALUES", 7 * len(ROWS))
    assert "holds more than 42 values; record fewer problems" in refusal(small_path)


@pytest.mark.parametrize("name", ["", "..", "a/b", "a b", ".hidden", "x" * 65, "a\n"])
def test_name_that_is_no_part_of_a_path_is_refused(tmp_path, name):
    with pytest.raises(RecordingError, match="names no recording") as caught:
        find_path(tmp_path, name, "quick", "paper9", "s8", "cold")
    assert "\n" not in str(caught.value)
