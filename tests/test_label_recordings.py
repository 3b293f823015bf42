"""A recording of labels has no times, is scored by top1 and top2 alone, and cannot pass for anything else."""

import numpy as np
import pytest
from foreign_files import labels_of_best, profiler_file, recording_of, target
from scoring import values

from tilearena import dataset
from tilearena.errors import RecordingError
from tilearena.exchange.foreign_csv import Faults
from tilearena.exchange.importing import import_file
from tilearena.records import Measurement, Status
from tilearena.score import FIGURES, score


@pytest.fixture
def root(tmp_path):
    (tmp_path / "root" / "baselines" / "recordings").mkdir(parents=True)
    return tmp_path / "root"


def test_labels_are_scored_by_top1_and_top2_alone(tmp_path, root, arena):
    import_file(labels_of_best(tmp_path), target(root), Faults(tmp_path))
    recording = recording_of(root)
    picks = np.array([[1, 0]] * 3 + [[1, 8], [-1, 1], [7, 6]])  # first right: 2 of 6; second right: 3 more
    result = score(
        recording.table, picks, key=arena.key("quick", "s8"), repeat=recording.table, noise_floor=0.01, predict_us=2.0
    )
    expected = dict.fromkeys(FIGURES) | {"top1": 2 / 6, "top2": 5 / 6, "predict_us": 2.0}
    assert values(result) == pytest.approx(expected)
    assert 0 <= result.figures["top2"].lo < 5 / 6 < result.figures["top2"].hi <= 1
    assert (result.n_problems, result.n_failed, result.n_unmeasured, result.n_no_default) == (6, 1, 0, 0)


@pytest.mark.parametrize(("status", "reason"), [("best", "so"), ("not_best", "so")])
def test_label_has_neither_times_nor_a_reason(status, reason):
    row = {"m": 1, "n": 8, "k": 16, "candidate": 0, "status": status}
    assert Measurement(**row).status in (Status.BEST, Status.NOT_BEST)
    for change in ({"reason": reason}, {"elapsed_ns": (5,), "launches": 1}, {"launches": 1}):
        with pytest.raises(ValueError, match="has neither times nor a reason"):
            Measurement(**row, **change)


@pytest.mark.parametrize("best", [(), (1, 2)])
def test_labels_with_no_or_two_best_templates_are_refused(tmp_path, root, best):
    import_file(labels_of_best(tmp_path), target(root), Faults(tmp_path))
    recording = recording_of(root)
    rows = recording.rows.to_pylist()
    for candidate, row in enumerate(rows[:9]):
        row["status"] = "best" if candidate in best else "not_best"
    path = tmp_path / "changed.parquet"
    dataset.write(path, recording.header, dataset.COLUMNS.empty_table().from_pylist(rows, schema=dataset.COLUMNS))
    with pytest.raises(RecordingError, match="some problem does not have exactly one best template"):
        dataset.read(path)


@pytest.mark.parametrize("origin", ["measured", "cutlass_profiler"])
def test_labels_under_another_origin_are_refused(tmp_path, root, origin):
    import_file(labels_of_best(tmp_path), target(root), Faults(tmp_path))
    recording = recording_of(root)
    path = tmp_path / "changed.parquet"
    dataset.write(path, recording.header.model_copy(update={"origin": origin}), recording.rows)
    with pytest.raises(RecordingError, match="some row has a status of labels, though its origin says otherwise"):
        dataset.read(path)


def test_times_under_the_origin_of_labels_are_refused(tmp_path, root):
    import_file(profiler_file(tmp_path, {}), target(root), Faults(tmp_path))
    recording = recording_of(root, "cutlass-profiler")
    path = tmp_path / "changed.parquet"
    dataset.write(path, recording.header.model_copy(update={"origin": "labels"}), recording.rows)
    with pytest.raises(RecordingError, match="some row has no status of labels, though its origin says otherwise"):
        dataset.read(path)


def test_imported_recording_that_claims_a_noise_floor_is_refused(tmp_path, root):
    import_file(labels_of_best(tmp_path), target(root), Faults(tmp_path))
    recording = recording_of(root)
    path = tmp_path / "changed.parquet"
    dataset.write(path, recording.header.model_copy(update={"noise_floor": 0.01}), recording.rows)
    with pytest.raises(RecordingError, match="an imported recording has templates alone, and no clock, noise floor"):
        dataset.read(path)


@pytest.mark.parametrize("kind", ["control", "vendor"])
def test_labels_of_anything_but_templates_are_refused(tmp_path, root, kind):
    """The best could be none of the templates."""
    import_file(labels_of_best(tmp_path), target(root), Faults(tmp_path))
    recording = recording_of(root)
    template = recording.templates[recording.header.default] if kind == "control" else None
    other = dataset.Candidate(id="other", origin=kind, template=template)
    path = tmp_path / "changed.parquet"
    header = recording.header.model_copy(update={"candidates": (*recording.header.candidates, other)})
    dataset.write(path, header, recording.rows)
    with pytest.raises(RecordingError, match="an imported recording has templates alone"):
        dataset.read(path)
