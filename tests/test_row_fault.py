"""What no measurement gives: numbers of samples, by the kind of candidate and the protocol."""

import numpy as np
import pytest

from tilearena import dataset
from tilearena.records import Measurement, Protocol, Status
from tilearena.row_fault import MAX_SAMPLES, candidate_fault, row_fault, sample_counts
from tilearena.spec import load_space

COLD = Protocol(name="cold", rounds=16, seed=5)
ORIGINS = ("template", "template", "control", "vendor")


def allowed(protocol, origins=ORIGINS):
    return [np.flatnonzero(row).tolist() for row in sample_counts(protocol, origins)]


def rows(*counts, launches=1, m=1):
    return dataset.rows_from(
        Measurement(m=m, n=8, k=16, candidate=i, status=Status.OK, elapsed_ns=(100,) * count, launches=launches)
        for i, count in enumerate(counts)
    )


def fault(*counts, protocol=COLD, **options):
    return row_fault(rows(*counts, **options), "s8", protocol, ORIGINS)


def test_template_has_its_screen_and_perhaps_one_or_two_finals():
    assert allowed(COLD) == [[2, 6, 10, 18, 22, 34]] * 2 + [[4, 8]] * 2
    assert allowed(COLD.model_copy(update={"rounds": 3, "reference_rounds": 3})) == [[2, 5, 8]] * 2 + [[3, 6]] * 2


def test_without_a_screen_everyone_has_all_rounds():
    assert allowed(COLD.model_copy(update={"screen_rounds": 0})) == [[16]] * 4


def test_most_samples_of_any_protocol_are_allowed():
    longest = COLD.model_copy(update={"rounds": 64, "screen_rounds": 64, "reference_rounds": 64})
    assert allowed(longest)[0] == [64, 128, MAX_SAMPLES]


@pytest.mark.parametrize("counts", [(2, 6, 4, 4), (18, 18, 4, 4), (6, 6, 4, 4), (18, 2, 4, 4)])
def test_rows_of_a_race_have_no_fault(counts):
    assert fault(*counts) is None


@pytest.mark.parametrize(
    ("counts", "row"),
    [
        ((3, 6, 4, 4), 0),
        ((2, 16, 4, 4), 1),
        ((2, 19, 4, 4), 1),
        ((2, 6, 16, 4), 2),
        ((2, 6, 4, 6), 3),
        ((2, 6, 4, 300), 3),
    ],
)
def test_number_of_samples_that_no_race_takes_is_named(counts, row):
    assert fault(*counts) == f"row {row} has a number of samples that its protocol does not take"


def test_launches_keep_to_the_protocol():
    assert fault(2, 6, 4, 4, launches=2) == "row 0 has a number of launches that contradicts its status or protocol"
    hot = COLD.model_copy(update={"name": "hot"})
    assert fault(2, 6, 4, 4, launches=20, protocol=hot) is None
    assert "launches" in fault(2, 6, 4, 4, launches=21, protocol=hot)


def test_control_is_of_the_default():
    large, small = (load_space("paper9").templates("s8", None)[i] for i in (0, 6))
    twice = [("template", large), ("template", small)]
    assert candidate_fault([*twice, ("control", small)], 1, "s8", None) is None
    assert candidate_fault([*twice, ("control", large)], 1, "s8", None) == (
        "candidate 2 is a control, but not of the default"
    )
