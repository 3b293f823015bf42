"""Figures about two cards, counted by hand on small recordings."""

from dataclasses import replace

import pytest
import two_cards
import two_cards_speed
from small_recording import GOLDEN, ok

from tilearena import dataset
from tilearena.provenance import Batch


def recording(tmp_path, name, times, *, card="a" * 64, cards=(), seconds=2.0, noise_floor=0.015, shapes=None):
    """Two templates and a control; ``times`` [problem][template] in ns; ``cards`` of problem after problem."""
    golden = dataset.read(GOLDEN).header
    cards = cards or [card] * len(times)
    each_s = seconds / len(cards)
    batches = tuple(
        Batch(session="a", card=one, host="0" * 16, n_problems=1, started_at_s=i * each_s, seconds=each_s)
        for i, one in enumerate(cards)
    )
    once = {"name": "cold", "rounds": 1, "screen_rounds": 0, "reference_rounds": 1}
    header = golden.model_copy(
        update={
            "candidates": (*golden.candidates[:2], golden.candidates[9]),
            "protocol": golden.protocol.model_copy(update=once),
            "device": golden.device.model_copy(update={"uuid_sha256": cards[0] if len(set(cards)) == 1 else None}),
            "batches": batches,
            "anchors": (),
            "noise_floor": noise_floor,
        }
    )
    rows = [
        ok(m, c, [time_ns])
        for m, pair in zip(shapes or range(1, len(times) + 1), times, strict=True)
        for c, time_ns in enumerate([*pair, pair[1]])
    ]
    path = tmp_path / f"{name}.parquet"
    dataset.write(path, header, dataset.rows_from(rows))
    return dataset.read(path)


TIMES0 = [[100, 200], [300, 303], [500, 400], [700, 900]]
TIMES1 = [[110, 220], [306, 303], [550, 440], [1100, 1000]]


@pytest.fixture
def alone(tmp_path):
    cards = ("a" * 64, "b" * 64)
    return [recording(tmp_path, str(i), t, card=cards[i]) for i, t in enumerate((TIMES0, TIMES1))]


def test_choice_of_one_card_is_judged_by_the_times_of_the_other(alone):
    # the second problem is a tie (306 / 303 is 1 %), the last one costs 10 %
    assert two_cards.carried(*alone) == {
        "problems": 4,
        "same_best": 0.5,
        "tied": 0.75,
        "regret_mean": round((306 / 303 - 1 + 0.1) / 4, 6),
        "regret_p95": pytest.approx(0.0865, abs=1e-3),
        "regret_max": 0.1,
    }
    assert two_cards.carried(*alone[::-1])["regret_max"] == round(900 / 700 - 1, 6)


def test_tie_is_two_per_cent_at_most(tmp_path):
    first = recording(tmp_path, "x", [[100, 103]], noise_floor=0.05)
    second = recording(tmp_path, "y", [[103, 100]], noise_floor=0.05)
    assert two_cards.carried(first, second)["tied"] == 0.0


def test_speed_disturbance_and_repeats_are_by_card(tmp_path, alone):
    both = [[1100, 1000], [101, 202], [306, 303], [505, 404]]  # in another order than alone
    shapes = [4, 1, 2, 3]
    cards = ["b" * 64, "a" * 64, "b" * 64, "a" * 64]
    together = recording(tmp_path, "both", both, cards=cards, seconds=1.0, shapes=shapes)
    again = [recording(tmp_path, f"{c}again", TIMES0, card=c * 64, seconds=s) for c, s in (("a", 2.0), ("b", 4.0))]
    found = two_cards.compare(alone, again, {"workers": together})
    assert found["rows_per_s_alone"] == [[4.0, 4.0], [4.0, 2.0]]
    assert (found["together"]["workers"]["rows_per_s"], found["together"]["workers"]["times_one_card"]) == (
        8.0,
        round(8 / 3.5, 3),
    )
    assert found["together"]["workers"]["disturbed"] == {
        "card0": {"problems": 2, "geomean": 1.01, "p05": 1.01, "p50": 1.01, "p95": 1.01},
        "card1": {"problems": 2, "geomean": 1.0, "p05": 1.0, "p50": 1.0, "p95": 1.0},
    }
    product = 1.1**4 * (306 / 300) * 1.0 * (1100 / 700) * (1000 / 900)
    assert found["times_card1_over_card0"]["geomean"] == round(product ** (1 / 8), 5)
    assert [times["geomean"] for times in found["times_repeat_over_first"]] == [1.0, round(product ** (-1 / 8), 5)]
    assert [own["regret_max"] for own in found["by_own_repeat"]] == [0.0, round(900 / 700 - 1, 6)]
    fewer = recording(tmp_path, "fewer", both[:3], cards=cards[:3])
    with pytest.raises(ValueError, match="have other problems"):
        two_cards.compare(alone, again, {"a": fewer})
    with pytest.raises(ValueError, match="have other problems"):
        two_cards.compare([alone[0], fewer], again, {})
    stranger = recording(tmp_path, "stranger", both, cards=["c" * 64] * 4)
    with pytest.raises(ValueError, match=r"measured together, and alone"):
        two_cards.disturbed(stranger, alone)


def test_seconds_are_lost_between_batches_and_at_the_ends(tmp_path):
    """Of 10 s, card a measures 1 to 4 and 5 to 10, card b 0 to 4 and 4 to 8."""
    one = recording(tmp_path, "one", TIMES0)
    spans = [("b", 0, 4), ("a", 1, 4), ("b", 4, 8), ("a", 5, 10)]
    batches = tuple(
        Batch(session="a", card=card * 64, host="0" * 16, n_problems=1, started_at_s=start, seconds=end - start)
        for card, start, end in spans
    )
    one = replace(one, header=one.header.model_copy(update={"batches": batches}))
    assert two_cards.lost(one) == {"between": 0.05, "ends": pytest.approx((0.1 + 0.2) / 2)}


def test_seconds_outside_intervals_are_a_problems_share(tmp_path):
    """2 s of batches, of which 1 s was timed, shared by four problems."""
    times = [[100_000_000, 50_000_000]] * 2 + [[50_000_000, 100_000_000]] * 2
    one = recording(tmp_path, "one", times)  # the control of each takes as long as its second template
    timed_s = (2 * 0.2) + (2 * 0.25)
    assert two_cards_speed.untimed_ms(one) == pytest.approx((2.0 - timed_s) / 4 * 1e3)


def test_speed_of_both_is_over_the_mean_of_one(tmp_path, monkeypatch):
    seconds = {("a",): 4.0, ("b",): 2.0, ("a", "b"): 1.5}

    def record(what, hands, folder):
        return recording(
            tmp_path, "".join(hands), TIMES0, cards=list(hands) * (4 // len(hands)), seconds=seconds[tuple(hands)]
        )

    monkeypatch.setattr(two_cards_speed, "record", record)
    found = two_cards_speed.compare(None, ["a", "b"], tmp_path)
    assert found["rows_per_s"] == [2.0, 4.0, pytest.approx(8 / 1.5, abs=0.05)]
    assert found["times_one_card"] == pytest.approx(8 / 1.5 / 3.0, abs=0.02)
