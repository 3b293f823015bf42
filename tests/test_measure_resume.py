"""A recording that was interrupted goes on with the parts that it left, if they are its own and whole."""

import json
from dataclasses import replace

import pytest
from inprocess import InProcessHand
from short_session import ANCHORS, Breaking, expected_keys, folder_of, keys, measured
from standin import StandInRunner
from sweeping import hands

from tilearena import dataset
from tilearena.errors import MeasureError
from tilearena.hands import HandLostError
from tilearena.measure import record
from tilearena.parts import Parts

pytestmark = pytest.mark.usefixtures("small_batches")


def test_interrupted_session_goes_on_where_it_stopped(short_session, recording_path):
    with pytest.raises(MeasureError, match="no more"):
        record(
            short_session,
            [Breaking(StandInRunner(), 11, HandLostError("no more"))],
            recording_path,
            anchors=ANCHORS[:1],
        )
    assert not recording_path.exists()
    folder = folder_of(recording_path)
    names = sorted(p.name for p in folder.iterdir())
    assert names == ["00000.anchors", "00000.parquet", "00001.parquet", "00002.parquet", "header.json", "lock"]
    begun = json.loads((folder / "header.json").read_text())
    (hand,) = [InProcessHand(StandInRunner())]
    header = record(short_session, [hand], recording_path, anchors=ANCHORS[:1])
    assert measured(hand) == list(short_session.problems[9:])
    assert header.started_at == begun["started_at"]
    assert [b.n_problems for b in header.batches] == [3, 3, 3, 2, 1]
    first, second = (a.session for a in header.anchors)
    assert [b.session for b in header.batches] == [first] * 3 + [second] * 2
    assert first != second
    assert keys(recording_path) == expected_keys(short_session)
    assert not folder.exists()


def test_other_problems_of_the_same_workload_begin_anew(short_session, recording_path):
    """As with another --sample: a recording has the problems that were asked for, and no others."""
    with pytest.raises(MeasureError, match="no more"):
        record(short_session, [Breaking(StandInRunner(), 11, HandLostError("no more"))], recording_path)
    fewer = replace(short_session, problems=short_session.problems[::2])
    (hand,) = hands(1, 0)
    record(fewer, [hand], recording_path)
    assert measured(hand) == list(fewer.problems)
    assert keys(recording_path) == expected_keys(fewer)


@pytest.mark.parametrize("lost", ["", "00001.parquet"])
def test_parts_that_a_kill_left_beside_their_recording_are_not_recorded_again(
    short_session, recording_path, monkeypatch, lost
):
    with monkeypatch.context() as patch:
        patch.setattr(Parts, "remove", lambda parts: (parts.folder / (lost or "nothing")).unlink(missing_ok=True))
        old = record(short_session, hands(1, 0), recording_path)
    assert len(list(folder_of(recording_path).glob("*.parquet"))) == (3 if lost else 4)
    (hand,) = hands(1, 0)
    header = record(short_session, [hand], recording_path)
    assert measured(hand) == list(short_session.problems)
    assert len(header.batches) == 4
    assert {b.session for b in header.batches}.isdisjoint(b.session for b in old.batches)
    assert not list(recording_path.parent.glob(".*.parts"))


def test_parts_beside_an_older_recording_are_continued(short_session, recording_path):
    record(short_session, hands(1, 0), recording_path)
    recording = dataset.read(recording_path)
    dataset.write(
        recording_path, recording.header.model_copy(update={"started_at": "2026-01-01T00:00:00+00:00"}), recording.rows
    )
    with pytest.raises(MeasureError):
        record(short_session, [Breaking(StandInRunner(), 6, HandLostError("no more"))], recording_path)
    (hand,) = [InProcessHand(StandInRunner())]
    record(short_session, [hand], recording_path)
    assert measured(hand) == list(short_session.problems[6:])


def test_session_of_another_card_does_not_take_the_parts(short_session, recording_path):
    one, other = hands(2, 0)
    one.lost_after = 6
    with pytest.raises(MeasureError):
        record(short_session, [one], recording_path)
    record(short_session, [other], recording_path)
    assert measured(other) == list(short_session.problems)


def test_whole_parts_need_no_measuring(short_session, recording_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(dataset, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device", "x")))
        with pytest.raises(MeasureError, match=r"^x: No space left on device; .* 12 of 12 problems are kept in"):
            record(short_session, hands(1, 0), recording_path)
    (hand,) = hands(1, 0)
    header = record(short_session, [hand], recording_path)
    assert hand.asked == []
    assert [b.n_problems for b in header.batches] == [3, 3, 3, 3]
    assert keys(recording_path) == expected_keys(short_session)


def test_problems_of_a_part_that_was_deleted_are_measured_again(short_session, recording_path):
    with pytest.raises(MeasureError):
        record(short_session, [Breaking(StandInRunner(), 9, HandLostError("no more"))], recording_path)
    (folder_of(recording_path) / "00001.parquet").unlink()
    (hand,) = [InProcessHand(StandInRunner())]
    record(short_session, [hand], recording_path)
    assert measured(hand) == [*short_session.problems[3:6], *short_session.problems[9:]]
    assert sorted(keys(recording_path)) == sorted(expected_keys(short_session))


@pytest.mark.parametrize("name", ["00000.parquet", "header.json"])
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_damaged_part_is_named(short_session, recording_path, name, share):
    with pytest.raises(MeasureError):
        record(short_session, [Breaking(StandInRunner(), 6, HandLostError("no more"))], recording_path)
    damaged = folder_of(recording_path) / name
    data = damaged.read_bytes()
    damaged.write_bytes(data[: int(share * len(data))])
    with pytest.raises(MeasureError) as caught:
        record(short_session, [InProcessHand(StandInRunner())], recording_path)
    assert str(caught.value).startswith(f"{damaged} is damaged or of another run; delete ")


def test_two_processes_do_not_share_parts(short_session, recording_path):
    class Nested(InProcessHand):
        def measure(self, order, stop, done=lambda n: None):
            with pytest.raises(MeasureError, match=r"another process is measuring into .*; wait for it"):
                record(short_session, [InProcessHand(StandInRunner())], recording_path)
            return super().measure(order, stop, done)

    record(short_session, [Nested(StandInRunner())], recording_path)
    assert keys(recording_path) == expected_keys(short_session)
