"""What a row of labels says: a device, a problem, and the best template of a space."""

import re

import pytest
from foreign_files import LABELS, label, labels_file, read_with
from standin import DEVICE

from tilearena.errors import RecordingError
from tilearena.exchange.labels_csv import contents
from tilearena.spec import load_space

PAPER9 = load_space("paper9")
SMALL_4 = PAPER9.templates("s8")[8].id


def read(path, device=DEVICE):
    (found, n_others), faults = read_with(contents, path, PAPER9, device)
    return found, n_others, faults


def best(content):
    rows = content.rows.to_pylist()
    assert all(row["elapsed_ns"] == [] and row["launches"] == 0 and row["reason"] == "" for row in rows)
    assert [row["candidate"] for row in rows] == list(range(9)) * len(content.problems)
    return [(row["m"], row["candidate"]) for row in rows if row["status"] == "best"]


def test_label_is_a_label_or_an_id_of_the_space_and_no_time(tmp_path):
    (found,), n_others, faults = read(labels_file(tmp_path, label(7, "large/3"), label(9, SMALL_4)))
    assert best(found) == [(7, 1), (9, 8)]
    assert found.rows["status"].to_pylist().count("not_best") == 16
    assert (n_others, faults) == (0, [])
    assert (found.space, found.space_fingerprint, found.default) == ("paper9", PAPER9.fingerprint, 1)


def test_labels_of_other_numbers_of_sms_are_left_aside(tmp_path):
    path = labels_file(
        tmp_path, label(7, "large/3"), label(7, "small/2", sm_count=68), label(8, "small/2", sm_count=82)
    )
    (found,), n_others, faults = read(path)
    assert (best(found), n_others, faults) == ([(7, 1)], 2, [])


def test_labels_of_another_device_with_as_many_sms_are_left_aside(tmp_path):
    path = labels_file(tmp_path, label(7, "small/2", device="Other"), label(7, "large/3"))
    (found,), n_others, faults = read(path)
    assert (best(found), n_others, faults) == ([(7, 1)], 1, [])
    slugged = labels_file(tmp_path, label(7, "small/2", device="Other"), label(7, "large/3", device="RTX 9"))
    device = DEVICE.model_copy(update={"slug": "rtx-9"})
    assert best(read(slugged, device)[0][0]) == [(7, 1)]


def test_labels_of_a_device_with_another_name_are_not_taken_for_ours(tmp_path):
    """Products of equal SM counts exist: an H100 and an H200 have 132."""
    path = labels_file(tmp_path, label(7, "large/3", device="that box"))
    with pytest.raises(RecordingError, match=rf"SMs are of 'that box', none of which is called '{DEVICE.product[:9]}"):
        read(path)


def test_labels_give_one_recording_for_each_data_type(tmp_path):
    path = labels_file(tmp_path, label(7, "large/3", dtype="b1"), label(7, "small/2"), label(8, "large/2", dtype="b1"))
    found, _, _ = read(path)
    assert [(c.dtype, c.bit_op, best(c)) for c in found] == [("b1", "and", [(7, 1), (8, 0)]), ("s8", None, [(7, 6)])]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"dtype": "f16"}, "dtype is 'f16'; use one of s8, s4, b1"),
        ({"best": "huge/9"}, "best is 'huge/9', no template of the space 'paper9' for s8 (large/2, "),
        ({"best": PAPER9.templates("s4")[0].id}, "no template of the space 'paper9' for s8"),
        ({"best": ""}, "best is '', no template"),
        ({"sm_count": "1e3"}, "sm_count is '1e3', not a whole number"),
        ({"k": "8"}, "k=8 must be a multiple of 16 for s8"),
        ({"m": "nan"}, "m is 'nan', not a whole number"),
    ],
)
def test_label_that_makes_no_sense_is_left_out_with_its_reason(tmp_path, change, reason):
    bad = dict(zip(LABELS, label(6, "large/3"), strict=True)) | change
    (found,), _, faults = read(labels_file(tmp_path, list(bad.values()), label(7, "large/3")))
    assert best(found) == [(7, 1)]
    assert len(faults) == 1
    assert faults[0].startswith("line 2: ")
    assert reason in faults[0]


def test_second_label_of_a_problem_is_left_out(tmp_path):
    (found,), _, faults = read(labels_file(tmp_path, label(7, "large/3"), label(7, "small/2")))
    assert best(found) == [(7, 1)]
    assert faults == ["line 3: this problem is in line 2, too; that one is taken"]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([label(7, "large/3", sm_count=68), label(7, "large/3", sm_count=82)], "no row has the 132 SMs of synthetic"),
        ([label(7, "large/3", sm_count=82), label(7, "large/3", sm_count=68)], "-device; its rows have 68, 82"),
        ([], "no row has the 132 SMs of synthetic-device"),
        (
            [label(7, "large/3", device="a"), label(8, "large/3", device="b")],
            "are of 'a', 'b', none of which is called",
        ),
    ],
)
def test_labels_of_no_or_of_several_devices_are_refused(tmp_path, rows, words):
    with pytest.raises(RecordingError, match=re.escape(words)):
        read(labels_file(tmp_path, *rows))


def test_labels_without_a_column_are_refused(tmp_path):
    with pytest.raises(RecordingError, match="line 1 lacks the column sm_count; correct the header"):
        read(labels_file(tmp_path, columns=[c for c in LABELS if c != "sm_count"]))
