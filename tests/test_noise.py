"""Noise floor and spread of hand-made recordings."""

import pytest
from inprocess import InProcessHand
from standin import CONTROL, DEFAULT, StandInRunner

from tilearena import dataset
from tilearena.dataset import Recording
from tilearena.measure import Session
from tilearena.noise import noise_floor, spread
from tilearena.records import Measurement, Status
from tilearena.spec import load_space, load_workload


@pytest.fixture(scope="module")
def header():
    """Of templates, the control and a vendor, with two screen rounds."""
    workload = load_workload("quick")
    protocol = workload.protocol("cold", "s8").model_copy(update={"screen_rounds": 2})
    session = Session(workload, load_space("paper9"), workload.problems_for("s8"), protocol)
    return session.header([InProcessHand(StandInRunner(vendor=1.0))])


def row(m, candidate, *elapsed_ns, launches=1):
    samples = {"elapsed_ns": elapsed_ns, "launches": launches, "status": Status.OK}
    return Measurement(m=m, n=8, k=16, candidate=candidate, **samples)


def of(header, rows):
    return Recording(header, dataset.rows_from(rows))


def test_noise_floor_is_the_95th_percentile_of_default_against_control(header):
    # |difference| is 0, 1, ... 20 per cent: the 95th percentile of 21 values is the 20th
    rows = [r for i in range(21) for r in (row(i + 1, DEFAULT, 1000), row(i + 1, CONTROL, 1000 + 10 * i * (-1) ** i))]
    assert noise_floor(of(header, rows)) == pytest.approx(0.19)
    rows = [row(1, DEFAULT, 1000), row(1, CONTROL, 2040, launches=2), row(2, DEFAULT, 1000)]
    assert noise_floor(of(header, rows)) == pytest.approx(0.02)
    assert noise_floor(of(header, rows[2:])) is None


def test_noise_floor_does_not_see_the_screen(header):
    rows = [row(1, DEFAULT, 5000, 5000, 1000, 1000, 1000), row(1, CONTROL, 1010, 1010, 1010)]
    assert noise_floor(of(header, rows)) == pytest.approx(0.01)


def test_noise_floor_of_a_recording_without_a_control_is_unknown(header):
    header = header.model_copy(update={"candidates": header.candidates[:9]})
    assert noise_floor(of(header, [row(1, DEFAULT, 1000)])) is None


def test_spread_is_of_the_samples_that_a_time_is_the_median_of(header):
    rows = [
        row(1, 0, 900, 5000, 100, 110, 90, 120),  # a contender: (120 - 90) / 105
        row(1, 2, 100, 140),  # screened only: 40 / 120
        row(1, CONTROL, 100, 100, 101, 101),  # not screened: 1 / 100.5
    ]
    assert spread(of(header, rows)) == pytest.approx(30 / 105)
    assert spread(of(header, rows[1:2])) == pytest.approx(1 / 3)
    assert spread(of(header, rows[1:])) == pytest.approx((1 / 3 + 1 / 100.5) / 2)


def test_spread_of_rows_without_a_time_is_unknown(header):
    failed = Measurement(m=1, n=8, k=16, candidate=0, status=Status.WRONG_RESULT, reason="row 0 is wrong")
    assert spread(of(header, [failed])) is None
    assert spread(of(header, [failed, row(1, 1, 100, 110)])) == pytest.approx(10 / 105)
