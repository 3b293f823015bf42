"""A recording comes back as it was written, with the times, cards and fingerprint that its rows give."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from small_recording import GOLDEN, ROWS, batch, failed, ok, refusal

from tilearena import dataset
from tilearena.dataset import Recording
from tilearena.records import Measurement, Status
from tilearena.root import path_for
from tilearena.rows import content_fingerprint, median_time_ns

OLD = Path(__file__).with_name("golden") / "recording-v1.parquet"


def digest(rows):
    return content_fingerprint({"any": "header"}, dataset.rows_from(rows))


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


def test_recording_round_trip_keeps_samples_failures_and_header(small_path, small_header):
    recording = dataset.read(small_path)
    assert [Measurement.model_validate(row) for row in recording.rows.to_pylist()] == ROWS
    assert recording.header.model_copy(update={"fingerprint": small_header.fingerprint}) == small_header
    raw = small_header.model_dump(mode="json")
    assert recording.header.fingerprint == content_fingerprint(raw, dataset.rows_from(ROWS))
    assert recording.header.fingerprint != small_header.fingerprint


def test_recording_problems_are_in_order_of_appearance(small_path):
    assert dataset.read(small_path).table.problems.tolist() == [[7, 8, 16], [2, 8, 16]]


def test_recording_time_is_the_median_of_all_samples_for_one_launch(small_path):
    recording = dataset.read(small_path)
    assert recording.column_ns(0).tolist() == [25, 26]  # of 30 10 20 60; of 400 100 200 320 over 10 launches
    assert recording.column_ns(1).tolist() == [np.inf, 60]
    assert recording.column_ns(2).tolist() == [9, 8]


def of_race(header):
    return header.model_copy(
        update={"protocol": header.protocol.model_copy(update={"screen_rounds": 2, "reference_rounds": 3})}
    )


def test_recording_time_of_a_contender_is_the_median_of_its_fresh_samples(small_path, small_header):
    rows = [
        ok(7, 0, [1, 1, 30, 10, 20, 60]),  # a contender: of 30 10 20 60
        ok(7, 1, [2, 2, 50, 70, 60]),  # the default: of 50 70 60
        ok(7, 2, [9, 8, 7]),  # the control, which is not screened
        ok(2, 0, [400, 200], launches=10),  # screened only: of both
        failed(2, 1),
        ok(2, 2, [3, 5, 4]),
    ]
    dataset.write(small_path, of_race(small_header), dataset.rows_from(rows))
    recording = dataset.read(small_path)
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


def test_recording_tells_the_card_of_each_problem(small_path, small_header):
    assert dataset.read(small_path).cards == []
    batches = (batch(1, "one"), batch(1, "two"))
    dataset.write(small_path, small_header.model_copy(update={"batches": batches}), dataset.rows_from(ROWS))
    assert dataset.read(small_path).cards == ["one", "two"]


def test_wall_time_is_from_first_start_to_last_end_of_each_session(small_header):
    batches = (
        batch(1, "one", "a", 100.0, 3.0),
        batch(1, "two", "a", 101.0, 4.0),
        batch(1, "one", "b", 500.0, 0.5),
    )
    assert small_header.model_copy(update={"batches": batches}).wall_time_s == 5.5
    assert small_header.wall_time_s == 0


def test_recording_table_leaves_out_the_control(small_path):
    recording = dataset.read(small_path)
    assert recording.table.time_ns.shape == (2, 2)
    assert [c.origin for c in recording.header.candidates] == ["template", "template", "control"]


def test_table_take_keeps_problems_and_times_together(small_path):
    part = dataset.read(small_path).table.take(np.array([1]))
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


def test_fingerprint_tells_samples_of_neighbouring_rows_apart():
    left, right = [ok(1, 0, [1, 2]), ok(1, 1, [3])], [ok(1, 0, [1]), ok(1, 1, [2, 3])]
    assert digest(left) != digest(right)


def test_write_that_fails_leaves_the_old_file_and_no_other(small_path, small_header, monkeypatch):
    before = small_path.read_bytes()

    def full(writer, table):
        (scratch,) = set(small_path.parent.iterdir()) - {small_path}
        scratch.write_bytes(b"PAR1")
        raise OSError("No space left on device")

    monkeypatch.setattr(dataset.pq.ParquetWriter, "write_table", full)
    with pytest.raises(OSError, match="No space left"):
        dataset.write(small_path, small_header, dataset.rows_from(ROWS[:1]))
    assert [p.name for p in small_path.parent.iterdir()] == [small_path.name]
    assert small_path.read_bytes() == before


def test_path_of_a_recording_says_what_it_is_of(small_header, tmp_path):
    folder = tmp_path / "baselines" / "recordings" / "synthetic-device" / "quick"
    assert path_for(tmp_path, small_header) == folder / "gemm.paper9.s8.hot.parquet"
    assert path_for(tmp_path, small_header, repeat=True) == folder / "gemm.paper9.s8.hot.repeat.parquet"


def test_rows_do_not_need_every_candidate_of_every_problem(small_header):
    recording = Recording(small_header, dataset.rows_from([ok(1, 1, [8])]))
    assert np.flatnonzero(np.isfinite(recording.table.time_ns[0])).tolist() == [1]
