"""A recording that was interrupted goes on with the parts that it left, if they are its own and whole."""

import json

import pytest
import short_session
from inprocess import InProcessHand
from short_session import ANCHORS, Breaking, expected_keys, folder_of, keys, measured
from standin import StandInRunner
from sweeping import hands

from tilearena import dataset
from tilearena.errors import MeasureError
from tilearena.hands import HandLostError
from tilearena.measure import record
from tilearena.parts import Parts

session = short_session.session
path = short_session.path
small_batches = short_session.small_batches


def test_interrupted_session_goes_on_where_it_stopped(session, path):
    with pytest.raises(MeasureError, match="no more"):
        record(session, [Breaking(StandInRunner(), 11, HandLostError("no more"))], path, anchors=ANCHORS[:1])
    assert not path.exists()
    folder = folder_of(path)
    names = sorted(p.name for p in folder.iterdir())
    assert names == ["00000.anchors", "00000.parquet", "00001.parquet", "00002.parquet", "header.json", "lock"]
    begun = json.loads((folder / "header.json").read_text())
    (hand,) = [InProcessHand(StandInRunner())]
    header = record(session, [hand], path, anchors=ANCHORS[:1])
    assert measured(hand) == list(session.problems[9:])
    assert header.started_at == begun["started_at"]
    assert [b.n_problems for b in header.batches] == [3, 3, 3, 2, 1]
    first, second = (a.session for a in header.anchors)
    assert [b.session for b in header.batches] == [first] * 3 + [second] * 2
    assert first != second
    assert keys(path) == expected_keys(session)
    assert not folder.exists()


@pytest.mark.parametrize("lost", ["", "00001.parquet"])
def test_parts_that_a_kill_left_beside_their_recording_are_not_recorded_again(session, path, monkeypatch, lost):
    with monkeypatch.context() as patch:
        patch.setattr(Parts, "remove", lambda parts: (parts.folder / (lost or "nothing")).unlink(missing_ok=True))
        old = record(session, hands(1, 0), path)
    assert len(list(folder_of(path).glob("*.parquet"))) == (3 if lost else 4)
    (hand,) = hands(1, 0)
    header = record(session, [hand], path)
    assert measured(hand) == list(session.problems)
    assert len(header.batches) == 4
    assert {b.session for b in header.batches}.isdisjoint(b.session for b in old.batches)
    assert not list(path.parent.glob(".*.parts"))


def test_parts_beside_an_older_recording_are_continued(session, path):
    record(session, hands(1, 0), path)
    recording = dataset.read(path)
    dataset.write(path, recording.header.model_copy(update={"started_at": "2026-01-01T00:00:00+00:00"}), recording.rows)
    with pytest.raises(MeasureError):
        record(session, [Breaking(StandInRunner(), 6, HandLostError("no more"))], path)
    (hand,) = [InProcessHand(StandInRunner())]
    record(session, [hand], path)
    assert measured(hand) == list(session.problems[6:])


def test_session_of_another_card_does_not_take_the_parts(session, path):
    one, other = hands(2, 0)
    one.lost_after = 6
    with pytest.raises(MeasureError):
        record(session, [one], path)
    record(session, [other], path)
    assert measured(other) == list(session.problems)


def test_whole_parts_need_no_measuring(session, path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(dataset, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device", "x")))
        with pytest.raises(MeasureError, match=r"^x: No space left on device; .* 12 of 12 problems are kept in"):
            record(session, hands(1, 0), path)
    (hand,) = hands(1, 0)
    header = record(session, [hand], path)
    assert hand.asked == []
    assert [b.n_problems for b in header.batches] == [3, 3, 3, 3]
    assert keys(path) == expected_keys(session)


def test_problems_of_a_part_that_was_deleted_are_measured_again(session, path):
    with pytest.raises(MeasureError):
        record(session, [Breaking(StandInRunner(), 9, HandLostError("no more"))], path)
    (folder_of(path) / "00001.parquet").unlink()
    (hand,) = [InProcessHand(StandInRunner())]
    record(session, [hand], path)
    assert measured(hand) == [*session.problems[3:6], *session.problems[9:]]
    assert sorted(keys(path)) == sorted(expected_keys(session))


@pytest.mark.parametrize("name", ["00000.parquet", "header.json"])
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_damaged_part_is_named(session, path, name, share):
    with pytest.raises(MeasureError):
        record(session, [Breaking(StandInRunner(), 6, HandLostError("no more"))], path)
    damaged = folder_of(path) / name
    data = damaged.read_bytes()
    damaged.write_bytes(data[: int(share * len(data))])
    with pytest.raises(MeasureError) as caught:
        record(session, [InProcessHand(StandInRunner())], path)
    assert str(caught.value).startswith(f"{damaged} is damaged or of another run; delete ")


def test_two_processes_do_not_share_parts(session, path):
    class Nested(InProcessHand):
        def measure(self, order, stop, done=lambda n: None):
            with pytest.raises(MeasureError, match=r"another process is measuring into .*; wait for it"):
                record(session, [InProcessHand(StandInRunner())], path)
            return super().measure(order, stop, done)

    record(session, [Nested(StandInRunner())], path)
    assert keys(path) == expected_keys(session)
