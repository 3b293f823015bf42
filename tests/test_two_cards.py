"""Figures about two cards, counted by hand on small recordings."""

import pytest
import two_cards
from small_recording import GOLDEN, ok

from tilearena import dataset
from tilearena.provenance import Batch


def recording(tmp_path, name, times, *, card="a" * 64, cards=(), seconds=2.0, noise_floor=0.015):
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
    rows = [ok(m, c, [time_ns]) for m, pair in enumerate(times, 1) for c, time_ns in enumerate([*pair, pair[1]])]
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


def test_speed_and_disturbance_are_by_card(tmp_path, alone):
    both = [[101, 202], [306, 303], [505, 404], [1100, 1000]]
    cards = ["a" * 64, "b" * 64] * 2
    together = recording(tmp_path, "both", both, cards=cards, seconds=1.0)
    found = two_cards.compare(alone, {"workers": together})
    assert found["rows_per_s"] == {"alone": [4.0, 4.0], "workers": 8.0}
    assert found["disturbed"]["workers"] == {
        "card0": {"problems": 2, "geomean": 1.01, "p05": 1.01, "p50": 1.01, "p95": 1.01},
        "card1": {"problems": 2, "geomean": 1.0, "p05": 1.0, "p50": 1.0, "p95": 1.0},
    }
    product = 1.1**4 * (306 / 300) * 1.0 * (1100 / 700) * (1000 / 900)
    assert found["times_card1_over_card0"]["geomean"] == round(product ** (1 / 8), 5)
    fewer = recording(tmp_path, "fewer", both[:3], cards=cards[:3])
    with pytest.raises(ValueError, match="have other problems, or in another order"):
        two_cards.compare(alone, {"a": fewer})
    stranger = recording(tmp_path, "stranger", both, cards=["c" * 64] * 4)
    with pytest.raises(ValueError, match=r"measured together, and alone"):
        two_cards.disturbed(stranger, alone)
