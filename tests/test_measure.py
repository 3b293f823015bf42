"""Recording with hands that answer from a formula or from a recording: rows, header, batches, anchors, many hands."""

import json
import threading
import time

import numpy as np
import pytest
from inprocess import InProcessHand
from short_session import ANCHORS, expected_keys, keys, measured
from standin import DEVICE, StandInRunner
from sweeping import hands
from sweeping import session as whole_session

from tilearena import __version__, dataset, measure
from tilearena.anchors import anchor_problems
from tilearena.errors import MeasureError
from tilearena.measure import record
from tilearena.noise import noise_floor, spread
from tilearena.records import Problem
from tilearena.replay import ReplayRunner
from tilearena.space import Space

pytestmark = pytest.mark.usefixtures("small_batches")


def test_recording_has_every_row_in_the_order_of_the_problems(short_session, recording_path):
    seen = []
    (hand,) = hands(1, 0)
    header = record(short_session, [hand], recording_path, progress=lambda *report: seen.append(report))
    recording = dataset.read(recording_path)
    assert recording.header == header
    assert keys(recording_path) == expected_keys(short_session)
    assert seen[-1] == (12, 12, "quick")
    assert [done for done, *_ in seen] == sorted(done for done, *_ in seen)
    assert [file.name for file in recording_path.parent.iterdir()] == ["r.parquet"]
    assert hand.closed is False


def test_recording_of_a_replay_has_the_rows_of_the_recording(short_session, recording_path, tmp_path):
    record(short_session, hands(1, 0), recording_path)
    original = dataset.read(recording_path)
    again = tmp_path / "again.parquet"
    record(short_session, [InProcessHand(ReplayRunner(original))], again)
    assert dataset.read(again).rows.equals(original.rows)


def test_header_says_what_was_measured_and_how(short_session, recording_path):
    header = record(short_session, hands(1, 0), recording_path)
    assert (header.spec, header.spec_fingerprint) == ("quick", short_session.workload.fingerprint)
    assert (header.space, header.space_fingerprint) == ("paper9", short_session.space.fingerprint)
    assert (header.op, header.dtype, header.bit_op, header.support) == ("gemm", "s8", None, "native")
    assert (header.protocol, header.default) == (short_session.protocol, 1)
    assert header.device == DEVICE.model_copy(update={"uuid_sha256": "card 0"})
    assert [c.origin for c in header.candidates] == ["template"] * 9 + ["control"]
    assert header.versions == {"tilearena": __version__, "standin": "1"}
    assert (header.clock.empty_interval_ns, header.clock.resolution_ns) == (1000, 32)
    assert header.noise_floor == noise_floor(dataset.read(recording_path)) > 0


def test_batch_says_who_measured_it_when_and_how_well(short_session, recording_path):
    before = time.time()
    header = record(short_session, hands(1, 0.01), recording_path)
    recording = dataset.read(recording_path)
    assert [b.n_problems for b in header.batches] == [3, 3, 3, 3]
    assert len({b.session for b in header.batches}) == 1
    assert {(b.card, b.host, b.attempts, b.slowed) for b in header.batches} == {("card 0", "host 0", 1, False)}
    starts = [b.started_at_s for b in header.batches]
    assert before < starts[0]
    assert np.diff(starts).min() >= 0.03
    assert all(0.03 <= b.seconds <= time.time() - before for b in header.batches)
    second = dataset.Recording(header, recording.rows.slice(30, 30))
    assert header.batches[1].noise_floor == noise_floor(second)
    assert header.batches[1].spread == spread(second)
    assert 0.12 <= header.wall_time_s <= time.time() - before


def test_few_problems_still_make_two_batches_a_hand(short_session, recording_path, monkeypatch):
    monkeypatch.setattr(measure, "BATCH_PROBLEMS", 100)
    assert [b.n_problems for b in record(short_session, hands(1, 0), recording_path).batches] == [6, 6]


def test_failed_candidate_is_a_row_and_the_rest_are_measured(short_session, recording_path):
    record(short_session, [InProcessHand(StandInRunner(faults=[("wrong", None, 3)]))], recording_path)
    recording = dataset.read(recording_path)
    failed = [row for row in recording.rows.to_pylist() if row["status"] != "ok"]
    assert [row["candidate"] for row in failed] == [3] * 12
    assert {(row["status"], row["reason"]) for row in failed} == {("wrong_result", "row 3 of the output is wrong")}
    assert keys(recording_path) == expected_keys(short_session)
    assert np.isinf(recording.table.time_ns[:, 3]).all()
    assert np.isfinite(np.delete(recording.table.time_ns, 3, axis=1)).all()


def test_anchors_are_timed_at_start_middle_and_end(short_session, recording_path):
    (hand,) = hands(1, 0)
    header = record(short_session, [hand], recording_path, anchors=ANCHORS)
    order = [(problem, which) for problem, which, _ in hand.asked]
    alone = [(problem, (1,)) for problem in ANCHORS]
    whole = [(problem, tuple(range(10))) for problem in short_session.problems]
    assert order == [*alone, *whole[:6], *alone, *whole[6:], *alone]
    (anchors,) = header.anchors
    assert (anchors.session, anchors.card) == (header.batches[0].session, "card 0")
    # the formula gives the same times whenever it is asked
    assert anchors.start_ns == anchors.middle_ns == anchors.end_ns
    assert len(anchors.start_ns) == 4
    assert anchors.drift == anchors.drift_to_middle == 0


def test_clock_of_each_hand_is_kept_with_its_anchors(short_session, recording_path):
    both = hands(2, 0.005)
    both[1].clock = both[0].clock.model_copy(update={"empty_interval_ns": 1500.0})
    header = record(short_session, both, recording_path, anchors=ANCHORS[:1])
    assert {a.card: a.clock for a in header.anchors} == {"card 0": both[0].clock, "card 1": both[1].clock}
    assert header.clock == both[0].clock


def test_retakes_are_kept_with_their_batch(short_session, recording_path):
    fifth = short_session.problems[4]
    hand = InProcessHand(StandInRunner(faults=[("retake", (fifth.m, fifth.n, fifth.k), 3)]))
    assert [b.retakes for b in record(short_session, [hand], recording_path).batches] == [0, 1, 0, 0]


def test_no_anchors_are_timed_where_none_are_given(short_session, recording_path):
    (hand,) = hands(1, 0)
    assert record(short_session, [hand], recording_path).anchors == ()
    assert measured(hand) == list(short_session.problems)


def test_several_hands_share_the_problems_and_each_is_measured_by_one(recording_path):
    session, three = whole_session(), hands(3, 0.005)
    header = record(session, three, recording_path, anchors=ANCHORS)
    assert sorted(keys(recording_path)) == sorted(expected_keys(session))
    recording = dataset.read(recording_path)
    by_card = {hand.device.uuid_sha256: {(p.m, p.n, p.k) for p in measured(hand)} for hand in three}
    assert all(len(shapes) >= 3 for shapes in by_card.values())
    assert sum(map(len, by_card.values())) == 42
    assert {b.host for b in header.batches} == {"host 0", "host 1", "host 2"}
    for shape, card in zip(recording.table.problems.tolist(), recording.cards, strict=True):
        assert tuple(shape) in by_card[card]
    assert header.device == DEVICE
    assert [a.card for a in header.anchors] == ["card 0", "card 1", "card 2"]
    assert all(a.start_ns == a.end_ns != () for a in header.anchors)


def test_recording_of_a_pool_in_which_one_card_measured_all_is_of_that_card(short_session, recording_path):
    idle, busy = hands(2, 0)
    idle.lost_after = 0
    header = record(short_session, [idle, busy], recording_path)
    assert header.device.uuid_sha256 == "card 1"
    assert {b.card for b in header.batches} == {"card 1"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda hand: setattr(hand, "versions", {"standin": "2"}),
            "version of standin is '1' at one and '2' at another",
        ),
        (lambda hand: setattr(hand, "versions", {}), r"tools is \['standin'\] at one and \[\] at another"),
        (lambda hand: setattr(hand, "candidates", hand.candidates[:9]), "candidates is"),
        (lambda hand: setattr(hand, "default", 2), "default is 1 at one and 2 at another"),
        (
            lambda hand: setattr(hand, "device", hand.device.model_copy(update={"driver": "9"})),
            r"device driver is '0.0' at one and '9' at another \(hosts host 0 and host 1\); leave one out",
        ),
    ],
)
def test_hands_that_differ_are_refused_and_the_difference_named(short_session, recording_path, change, said):
    first, second = hands(2, 0)
    change(second)
    with pytest.raises(MeasureError, match=said):
        record(short_session, [first, second], recording_path)
    assert first.asked == []


def test_clock_of_the_system_that_is_set_back_does_not_change_when_batches_began(
    short_session, recording_path, monkeypatch
):
    now = time.time()
    jumps = iter([now, *(now - 1000 * i for i in range(1, 100))])
    monkeypatch.setattr(time, "time", lambda: next(jumps))
    header = record(short_session, hands(1, 0.01), recording_path)
    starts = [one.started_at_s for one in header.batches]
    assert starts == sorted(starts)
    assert 0.12 <= header.wall_time_s < 60


def test_opening_is_json_that_names_all_problems_and_the_anchors(short_session):
    arguments = json.loads(measure.opening(short_session, ordinal=1, sms=72).model_dump_json())["arguments"]
    problems = [Problem.model_validate(p) for p in arguments.pop("problems")]
    assert problems == [*short_session.problems, *anchor_problems("s8", None)]
    assert Space.model_validate(arguments.pop("space")) == short_session.space
    assert arguments == {"seed": short_session.protocol.seed, "ordinal": 1, "sms": 72, "torch": True, "instance": False}


def test_threads_of_hands_are_gone_when_the_recording_is_there(short_session, recording_path):
    before = threading.active_count()
    record(short_session, hands(2, 0), recording_path)
    assert threading.active_count() == before
