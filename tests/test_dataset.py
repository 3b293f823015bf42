"""A recording comes back as it was written, or is refused in one sentence that names the file."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilearena import dataset
from tilearena.dataset import COLUMNS, METADATA_KEY, Recording
from tilearena.errors import RecordingError
from tilearena.provenance import Batch, Telemetry
from tilearena.records import Measurement, Status
from tilearena.rows import content_fingerprint, median_time_ns

GOLDEN = Path(__file__).with_name("golden") / "recording-v2.parquet"
OLD = Path(__file__).with_name("golden") / "recording-v1.parquet"


def ok(m, candidate, elapsed_ns, launches=1):
    return Measurement(
        m=m, n=8, k=16, candidate=candidate, status=Status.OK, elapsed_ns=tuple(elapsed_ns), launches=launches
    )


def failed(m, candidate, reason="row 3 of the output is wrong"):
    return Measurement(m=m, n=8, k=16, candidate=candidate, status=Status.WRONG_RESULT, reason=reason)


#: Two problems x (two templates and a control), 4 samples each, out of order.
ROWS = [
    ok(7, 0, [30, 10, 20, 60]),
    failed(7, 1),
    ok(2, 1, [50, 70, 40, 90]),
    ok(2, 0, [400, 100, 200, 320], launches=10),
    ok(7, 2, [9, 9, 9, 9]),
    ok(2, 2, [8, 8, 8, 8]),
]


@pytest.fixture(scope="module")
def header():
    golden = dataset.read(GOLDEN).header
    few = (*golden.candidates[:2], golden.candidates[9])
    hot = golden.protocol.model_copy(update={"name": "hot", "rounds": 4, "screen_rounds": 0, "reference_rounds": 4})
    return golden.model_copy(update={"candidates": few, "protocol": hot, "batches": (), "anchors": ()})


@pytest.fixture
def path(tmp_path, header):
    path = tmp_path / "recording.parquet"
    dataset.write(path, header, dataset.rows_from(ROWS))
    return path


def digest(rows):
    return content_fingerprint({"any": "header"}, dataset.rows_from(rows))


def refusal(path):
    with pytest.raises(RecordingError) as caught:
        dataset.read(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message


def rewrite(path, *, rows=None, without=(), **changes):
    """The file again, with other rows or with other keys in its header."""
    table = pq.read_table(path)
    raw = json.loads(table.schema.metadata[METADATA_KEY]) | changes
    raw = {key: value for key, value in raw.items() if key not in without}
    rows = table.replace_schema_metadata(None) if rows is None else rows
    if "fingerprint" not in changes and rows.schema.equals(COLUMNS):
        raw["fingerprint"] = content_fingerprint(raw, rows)
    pq.write_table(rows.replace_schema_metadata({METADATA_KEY: json.dumps(raw).encode()}), path)


def test_golden_recording_of_version_1_is_refused_with_advice():
    assert refusal(OLD) == (
        f"{OLD}: schema version 1, this tilearena reads 2; record it again: no upgrade from that version exists"
    )


def test_golden_recording_of_version_2_reads_with_its_values():
    recording = dataset.read(GOLDEN)
    header = recording.header
    assert (header.schema_version, header.fingerprint) == (2, "d818642aa399e086")
    assert (header.device.product, header.device.uuid_sha256) == ("Synthetic device (formula, not measured)", None)
    assert (header.protocol.name, header.protocol.screen_rounds, header.protocol.rounds) == ("cold", 2, 16)
    assert (header.clock.empty_interval_ns, header.clock.resolution_ns) == (1000, 32)
    assert [c.origin for c in header.candidates] == ["template"] * 9 + ["control", "vendor"]
    assert recording.rows["elapsed_ns"][0].as_py() == [57976, 58105]
    assert [len(samples) for samples in recording.rows["elapsed_ns"].to_pylist()[:11]] == [
        2,
        10,
        2,
        2,
        2,
        2,
        18,
        18,
        18,
        8,
        8,
    ]
    assert recording.table.problems.tolist() == [[1, 4096, 4096], [1, 11008, 4096], [8, 4096, 11008], [8, 1536, 8960]]
    assert recording.table.time_ns[0].tolist() == [
        58040.5, 29969.5, 29527.5, 34226.5, 33516.0, 25789.0, 12540.0, 12460.0, 12474.0
    ]  # fmt: skip
    assert np.argwhere(np.isinf(recording.table.time_ns)).tolist() == [[2, 3]]
    assert recording.cards == ["synthetic-card-0", "synthetic-card-1", "synthetic-card-0", "synthetic-card-1"]
    assert [b.n_problems for b in header.batches] == [1, 1, 1, 1]
    assert [len(a.end_ns) for a in header.anchors] == [64, 64]
    assert header.anchors[0].drift == 0
    assert recording.task.templates[header.default].id == "s8_128x256x64_w64x64x64_i16x8x32_st3"


def test_recording_round_trip_keeps_samples_failures_and_header(path, header):
    recording = dataset.read(path)
    assert [Measurement.model_validate(row) for row in recording.rows.to_pylist()] == ROWS
    assert recording.header.model_copy(update={"fingerprint": header.fingerprint}) == header
    raw = header.model_dump(mode="json")
    assert recording.header.fingerprint == content_fingerprint(raw, dataset.rows_from(ROWS))
    assert recording.header.fingerprint != header.fingerprint


def test_recording_problems_are_in_order_of_appearance(path):
    assert dataset.read(path).table.problems.tolist() == [[7, 8, 16], [2, 8, 16]]


def test_recording_time_is_the_median_of_all_samples_for_one_launch(path):
    recording = dataset.read(path)
    assert recording.column_ns(0).tolist() == [25, 26]  # of 30 10 20 60; of 400 100 200 320 over 10 launches
    assert recording.column_ns(1).tolist() == [np.inf, 60]
    assert recording.column_ns(2).tolist() == [9, 8]


def of_race(header):
    return header.model_copy(
        update={"protocol": header.protocol.model_copy(update={"screen_rounds": 2, "reference_rounds": 3})}
    )


def test_recording_time_of_a_contender_is_the_median_of_its_fresh_samples(path, header):
    rows = [
        ok(7, 0, [1, 1, 30, 10, 20, 60]),  # a contender: of 30 10 20 60
        ok(7, 1, [2, 2, 50, 70, 60]),  # the default: of 50 70 60
        ok(7, 2, [9, 8, 7]),  # the control, which is not screened
        ok(2, 0, [400, 200], launches=10),  # screened only: of both
        failed(2, 1),
        ok(2, 2, [3, 5, 4]),
    ]
    dataset.write(path, of_race(header), dataset.rows_from(rows))
    recording = dataset.read(path)
    assert recording.header.screens.tolist() == [2, 2, 0]
    assert recording.column_ns(0).tolist() == [25, 30]
    assert recording.column_ns(1).tolist() == [60, np.inf]
    assert recording.column_ns(2).tolist() == [8, 4]


def test_median_of_rows_of_any_lengths_is_each_rows_own():
    rng = np.random.default_rng(0)
    rows = [ok(i + 1, i % 3, rng.integers(1, 999, rng.integers(1, 9)).tolist(), launches=1 + i % 4) for i in range(60)]
    screens = np.array([2, 2, 0])
    fresh = [r.elapsed_ns[screens[r.candidate] :] or r.elapsed_ns for r in rows]
    expected = [np.median(samples) / r.launches for samples, r in zip(fresh, rows, strict=True)]
    assert median_time_ns(dataset.rows_from(rows), screens).tolist() == expected


def batch(n_problems, card="one", session="a", started_at_s=0.0, seconds=1.0):
    return Batch(
        session=session, card=card, host="h", n_problems=n_problems, started_at_s=started_at_s, seconds=seconds
    )


def test_recording_tells_the_card_of_each_problem(path, header):
    assert dataset.read(path).cards == []
    batches = (batch(1, "one"), batch(1, "two"))
    dataset.write(path, header.model_copy(update={"batches": batches}), dataset.rows_from(ROWS))
    assert dataset.read(path).cards == ["one", "two"]


@pytest.mark.parametrize("counts", [(1,), (2, 1), (3,)])
def test_recording_whose_batches_are_of_other_problems_is_refused(path, header, counts):
    batches = tuple(batch(count) for count in counts)
    dataset.write(path, header.model_copy(update={"batches": batches}), dataset.rows_from(ROWS))
    assert f"its batches are of {sum(counts)} problems, but it has 2" in refusal(path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("n_problems", 0),
        ("started_at_s", float("nan")),
        ("seconds", -1.0),
        ("seconds", float("inf")),
        ("attempts", 0),
        ("retakes", -1),
        ("retakes", 1 << 63),
        ("telemetry", Telemetry(n_samples=0).model_copy(update={"n_samples": -1})),
    ],
)
def test_header_with_a_batch_that_no_card_measures_is_refused(path, header, key, value):
    impossible = batch(2).model_copy(update={key: value})
    dataset.write(path, header.model_copy(update={"batches": (impossible,)}), dataset.rows_from(ROWS))
    assert f"header key 'batches.0.{key}" in refusal(path)


def test_two_candidates_with_one_id_are_refused(path, header):
    first, second = header.candidates[:2]
    twins = (first, second.model_copy(update={"id": first.id}), *header.candidates[2:])
    dataset.write(path, header.model_copy(update={"candidates": twins}), dataset.rows_from(ROWS))
    assert "two of its candidates have the same id" in refusal(path)


def test_wall_time_is_from_first_start_to_last_end_of_each_session(header):
    batches = (
        batch(1, "one", "a", 100.0, 3.0),
        batch(1, "two", "a", 101.0, 4.0),
        batch(1, "one", "b", 500.0, 0.5),
    )
    assert header.model_copy(update={"batches": batches}).wall_time_s == 5.5
    assert header.wall_time_s == 0


def test_recording_table_leaves_out_the_control(path):
    recording = dataset.read(path)
    assert recording.table.time_ns.shape == (2, 2)
    assert [c.origin for c in recording.header.candidates] == ["template", "template", "control"]


def test_table_take_keeps_problems_and_times_together(path):
    part = dataset.read(path).table.take(np.array([1]))
    assert part.problems.tolist() == [[2, 8, 16]]
    assert part.time_ns[0].tolist() == [26, 60]


def test_fingerprint_does_not_depend_on_chunks_or_dictionaries():
    whole, any_header = dataset.rows_from(ROWS), {"any": "header"}
    chunked = pa.concat_tables([dataset.rows_from(ROWS[:1]), dataset.rows_from(ROWS[1:])])
    assert chunked["status"].num_chunks == 2
    reordered = pa.concat_tables([dataset.rows_from(ROWS[1:2]), whole]).unify_dictionaries().slice(1)
    digests = {content_fingerprint(any_header, rows) for rows in (chunked, whole, reordered)}
    assert len(digests) == 1


@pytest.mark.parametrize(
    ("row", "change"),
    [
        (0, {"m": 8}),
        (0, {"n": 16}),
        (0, {"k": 32}),
        (0, {"candidate": 2}),
        (3, {"launches": 11}),
        (0, {"elapsed_ns": (30, 10, 21)}),
        (0, {"elapsed_ns": (10, 30, 20)}),
        (0, {"elapsed_ns": (30, 10)}),
        (1, {"reason": "row 4 of the output is wrong"}),
        (1, {"status": Status.LAUNCH_FAILED}),
    ],
)
def test_fingerprint_changes_with_any_value(row, change):
    changed = [m.model_copy(update=change) if i == row else m for i, m in enumerate(ROWS)]
    assert digest(changed) != digest(ROWS)


@pytest.mark.parametrize("change", [{"default": 0}, {"noise_floor": 0.5}, {"started_at": "2020-01-01"}])
def test_recording_whose_header_was_changed_is_refused(path, change):
    rewrite(path, fingerprint=dataset.read(path).header.fingerprint, **change)
    assert "does not match its fingerprint" in refusal(path)


def test_fingerprint_tells_samples_of_neighbouring_rows_apart():
    left, right = [ok(1, 0, [1, 2]), ok(1, 1, [3])], [ok(1, 0, [1]), ok(1, 1, [2, 3])]
    assert digest(left) != digest(right)


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


def test_recording_without_a_header_is_refused(path):
    pq.write_table(pq.read_table(path).replace_schema_metadata(None), path)
    assert "no tilearena header" in refusal(path)


@pytest.mark.parametrize("text", [b"{", b"[]", b"null", b"3", b"\xff\xfe", b"", b"[" * 100_000])
def test_recording_with_a_header_that_is_no_json_object_is_refused(path, text):
    pq.write_table(pq.read_table(path).replace_schema_metadata({METADATA_KEY: text}), path)
    assert "not a JSON object" in refusal(path)


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
def test_recording_of_another_schema_version_is_refused_with_advice(path, version, advice):
    rewrite(path, schema_version=version)
    message = refusal(path)
    assert f"schema version {version!r}, this tilearena reads 2" in message
    assert advice in message


def test_recording_without_a_schema_version_is_refused(path):
    rewrite(path, without=["schema_version"])
    assert "schema version None" in refusal(path)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"dtype": "s16"}, "dtype"),
        ({"device": {"slug": "x"}}, "device.product"),
        ({"without": ["default"]}, "default"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_recording_with_a_wrong_header_key_names_it(path, change, key):
    rewrite(path, **change)
    assert f"header key '{key}'" in refusal(path)


def test_recording_with_other_columns_is_refused(path):
    rewrite(path, rows=pq.read_table(path).drop_columns(["reason"]))
    assert "columns are" in refusal(path)
    rewrite(path, rows=pa.table({"m": [1]}))
    assert "columns are ['m'], expected" in refusal(path)


@pytest.mark.parametrize("text", [b"elapsed_ns", b"row 3 of the"])
def test_recording_with_text_that_is_no_utf8_is_refused(path, text):
    path.write_bytes(path.read_bytes().replace(text, b"\xee" + text[1:]))
    assert "not a readable Parquet file" in refusal(path)


def test_recording_whose_rows_were_changed_is_refused(path, header):
    rewrite(path, rows=dataset.rows_from(ROWS[:3]), fingerprint=dataset.read(path).header.fingerprint)
    assert "does not match its fingerprint" in refusal(path)


@pytest.mark.parametrize("candidate", [-1, 3])
def test_recording_with_a_candidate_out_of_range_is_refused(path, candidate):
    rewrite(path, rows=dataset.rows_from([ok(1, candidate, [5])]))
    assert "a candidate that the header does not list" in refusal(path)


@pytest.mark.parametrize("change", [{"status": "ok"}, {"elapsed_ns": [1]}])
def test_recording_with_a_status_that_contradicts_its_samples_is_refused(path, change):
    rewrite(path, rows=changed_rows(1, change))
    assert "row 1 has a status that contradicts its samples" in refusal(path)


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
        (0, {"elapsed_ns": [5, 0, 5, 5]}, "not a positive time"),
        (0, {"elapsed_ns": [5, -5, 5, 5]}, "not a positive time"),
        (4, {"candidate": 0}, "exactly one row for each candidate"),
        (4, {"m": 3}, "exactly one row for each candidate"),
    ],
)
def test_recording_with_rows_that_no_measurement_gives_is_refused(path, row, change, said):
    rewrite(path, rows=changed_rows(row, change))
    assert said in refusal(path)


def test_recording_that_lacks_a_row_is_refused(path):
    rewrite(path, rows=dataset.rows_from(ROWS[:-1]))
    assert "exactly one row for each candidate" in refusal(path)


@pytest.mark.parametrize("column", COLUMNS.names)
def test_recording_with_an_empty_cell_is_refused(path, column):
    row = ok(1, 0, [5]).model_dump(mode="json") | {column: None}
    rewrite(path, rows=pa.Table.from_pylist([row], schema=COLUMNS), fingerprint="0" * 16)
    assert f"column {column} has empty cells" in refusal(path)


def test_recording_with_an_empty_sample_is_refused(path):
    row = ok(1, 0, [5]).model_dump(mode="json") | {"elapsed_ns": [5, None]}
    rewrite(path, rows=pa.Table.from_pylist([row], schema=COLUMNS), fingerprint="0" * 16)
    assert "column elapsed_ns has empty cells" in refusal(path)


def test_recording_without_rows_is_refused(path):
    rewrite(path, rows=dataset.rows_from([]))
    assert "holds no rows" in refusal(path)


def test_write_that_fails_leaves_the_old_file_and_no_other(path, header, monkeypatch):
    before = path.read_bytes()

    def full(table, where, **options):
        Path(where).write_bytes(b"PAR1")
        raise OSError("No space left on device")

    monkeypatch.setattr(dataset.pq, "write_table", full)
    with pytest.raises(OSError, match="No space left"):
        dataset.write(path, header, dataset.rows_from(ROWS[:1]))
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    assert path.read_bytes() == before


def test_path_of_a_recording_says_what_it_is_of(header, tmp_path):
    folder = tmp_path / "baselines" / "recordings" / "synthetic-device" / "quick"
    assert dataset.path_for(tmp_path, header) == folder / "gemm.paper9.s8.hot.parquet"
    assert dataset.path_for(tmp_path, header, repeat=True) == folder / "gemm.paper9.s8.hot.repeat.parquet"


def test_rows_do_not_need_every_candidate_of_every_problem(header):
    recording = Recording(header, dataset.rows_from([ok(1, 1, [8])]))
    assert np.flatnonzero(np.isfinite(recording.table.time_ns[0])).tolist() == [1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"default": 2}, "its default is 2, but it has 2 templates"),
        ({"default": -1}, "its default is -1, but it has 2 templates"),
        ({"dtype": "s4"}, "candidate 0 is no template of s4"),
        ({"bit_op": "and"}, "candidate 0 is no template of s8"),
        ({"noise_floor": float("nan")}, "header key 'noise_floor'"),
        ({"noise_floor": -0.1}, "header key 'noise_floor'"),
        ({"schema_version": [["x" * 99] * 99]}, "schema version [['xxx"),
    ],
)
def test_recording_whose_header_contradicts_itself_is_refused(path, change, said):
    rewrite(path, **change)
    assert said in (message := refusal(path))
    assert len(message) < len(str(path)) + 200


def test_recording_whose_templates_do_not_come_first_is_refused(path):
    raw = json.loads(pq.read_table(path).schema.metadata[METADATA_KEY])
    rewrite(path, candidates=raw["candidates"][::-1])
    assert "a template comes after a control" in refusal(path)
    rewrite(path, candidates=[c | {"template": None} for c in raw["candidates"]])
    assert "candidate 0 is no template of s8" in refusal(path)


def test_recording_with_more_values_than_memory_may_hold_is_refused_unread(path, monkeypatch):
    monkeypatch.setattr(dataset, "MAX_VALUES", 7 * len(ROWS))
    assert "holds more than 42 values; record fewer problems" in refusal(path)


@pytest.mark.parametrize("name", ["", "..", "a/b", "a b", ".hidden", "x" * 65, "a\n"])
def test_name_that_is_no_part_of_a_path_is_refused(tmp_path, name):
    with pytest.raises(RecordingError, match="names no recording") as caught:
        dataset.find_path(tmp_path, name, "quick", "paper9", "s8", "cold")
    assert "\n" not in str(caught.value)
