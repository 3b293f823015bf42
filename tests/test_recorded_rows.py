"""The rows of the tables in docs/measuring.md, counted by hand on two small recordings."""

import pytest
from recorded_figures import ratio_row, speed_row, trust_row
from recorded_repeats import race_row, repeat_row
from small_recording import GOLDEN, ok

from tilearena import dataset
from tilearena.dataset import Candidate
from tilearena.provenance import Anchors, Batch, Clock, Range, Telemetry

#: Elapsed ns of templates 0 and 1, the control of 1, and cuBLASLt on each of two problems; a template's first two are
#: its screen.
FIRST = [
    [[40_000, 42_000, 44_000, 45_000, 52_000], [99_000, 98_000], [98_000] * 3, [60_000, 61_000, 49_000]],
    [[70_000, 71_000], [60_000, 60_000, 61_000, 61_000, 61_000], [61_000] * 3, [30_000, 31_000, 32_000]],
]
SECOND = [
    [[40_000, 42_000, 49_500, 49_500, 49_500], [99_000, 98_000], [98_000] * 3, [60_000, 61_000, 62_000]],
    [[70_000, 71_000], [60_000, 60_000, 61_000, 61_000, 61_000], [61_000] * 3, [30_000, 31_000, 32_000]],
]
LAUNCHES, MORE = [10, 10, 10, 20], [11, 11, 11, 20]
TELEMETRY = Telemetry(
    n_samples=9, power_w=Range(min=90, median=300, max=412.4), sm_clock_mhz=Range(min=1700, median=1900, max=1980)
)


def recording(
    tmp_path, samples, launches, *, name="hot", empty_launch_ns=3_500.0, start_ns=(100, 200), end_ns=(101, 202)
):
    golden = dataset.read(GOLDEN).header
    ids = [golden.candidates[i] for i in (0, 1, 9)] + [Candidate(id="cublaslt", origin="vendor")]
    change = {"name": name, "rounds": 3, "screen_rounds": 2, "reference_rounds": 3}
    batch = Batch(
        session="a", card=None, host="0" * 16, n_problems=2, started_at_s=0.0, seconds=0.5, telemetry=TELEMETRY
    )
    header = golden.model_copy(
        update={
            "candidates": tuple(ids),
            "device": golden.device.model_copy(update={"uuid_sha256": "c0ffee" + "0" * 58}),
            "default": 1,
            "protocol": golden.protocol.model_copy(update=change),
            "clock": Clock(empty_interval_ns=1_000.0, empty_launch_ns=empty_launch_ns, resolution_ns=32.0),
            "batches": (batch,),
            "anchors": (Anchors(session="a", card=None, start_ns=start_ns, end_ns=end_ns),),
            "noise_floor": 0.0123,
        }
    )
    rows = [
        ok(m, c, elapsed_ns, launches=1 if name == "cold" else launches[p][c])
        for p, (m, problem) in enumerate(zip((5, 6), samples, strict=True))
        for c, elapsed_ns in enumerate(problem)
    ]
    path = tmp_path / f"{name}{empty_launch_ns}.parquet"
    dataset.write(path, header, dataset.rows_from(rows))
    return dataset.read(path)


@pytest.fixture
def first(tmp_path):
    return recording(tmp_path, FIRST, [LAUNCHES, LAUNCHES])


@pytest.fixture
def second(tmp_path):
    changes = {"empty_launch_ns": 3_400.0, "start_ns": (110, 220), "end_ns": (110, 220)}
    return recording(tmp_path, SECOND, [MORE, LAUNCHES], **changes)


def test_speed_is_rows_of_templates_over_the_time_of_the_batches(first):
    timed_s = sum(sum(samples) for problem in FIRST for samples in problem) * 1e-9
    assert speed_row("x", first) == ["x", "4", "8", "0.5", "8", f"{timed_s:.1f}", f"{timed_s / 0.5:.0%}"]


def test_race_row_counts_who_was_spared_and_the_samples_that_are_too_short(first, tmp_path):
    # of 10 samples of the best 40, 42, 44 and 45 us are too short; cuBLASLt has its most launches on the second problem
    assert race_row("x", first) == ["x", "1.0 of 2", "0", "40.0%, 40.0 us", "0.0%"]
    fewer = recording(tmp_path, FIRST, [[10, 10, 10, 12], LAUNCHES], empty_launch_ns=1.0)
    assert race_row("x", fewer)[4] == "16.7%, 49.0 us"
    again = [FIRST[0], [[70_000] * 5, [*FIRST[1][1], *[61_000] * 3], [61_000] * 6, [30_000] * 6]]
    assert race_row("x", recording(tmp_path, again, [LAUNCHES] * 2, empty_launch_ns=2.0))[1:3] == ["0.5 of 2", "1"]
    assert race_row("x", recording(tmp_path, FIRST, [], name="cold"))[3:] == ["-", "-"]


def test_repeat_row_compares_the_best_of_the_first_recording(first, second):
    # 4,500 ns a launch against 49,500 / 11 = 4,500, and 6,100 both times: nothing is off, but one took more launches
    assert repeat_row("x", first, second) == [
        *("x", "+0.0%", "0.0%", "0.0%", "0.0%", "0.0%", "+10.0%"),
        *("3.50 / 3.40 us", "50.0% / 0.0%"),
    ]
    assert repeat_row("x", second, first)[-1] == "0.0% / 50.0%"


def test_repeat_row_takes_the_shift_of_all_out_of_what_single_problems_are_off(first, tmp_path):
    slower = [[[2 * t for t in samples] for samples in problem] for problem in FIRST]
    slower[1][1] = [2 * 1.21 * t for t in FIRST[1][1]]
    row = repeat_row("x", first, recording(tmp_path, slower, [LAUNCHES] * 2, empty_launch_ns=1.0))
    assert row[1:6] == ["+120.0%", "9.5%", "10.0%", "10.0%", "10.0%"]  # 2 and 2.42, whose mean is 2.2


def test_trust_row_has_floor_drift_power_and_ceilings(first, second):
    assert trust_row("x", first, None) == ["x", "c0ff", "1.23%", "+1.00%", "412 W", "1700 MHz", "0%", "-", "-", "-"]
    assert trust_row("x", first, second)[7:] == ["100.00%", "100.00%", "0.000%"]


def test_ratio_row_takes_off_what_an_interval_adds_to_each_launch(first):
    # best / default: 9,850 / 4,500 and 6,100 / 6,100; less 250 ns a launch: 9,600 / 4,250 and the same
    ratio, less = (9_850 / 4_500) ** 0.5, (9_600 / 4_250) ** 0.5
    vendor = (3_000 / 4_500 * 1_550 / 6_100) ** 0.5
    vendor_less = ((3_000 - 125) / 4_250 * (1_550 - 125) / 5_850) ** 0.5
    expected = [f"{value:.3f}x" for value in (ratio, less, vendor, vendor_less)]
    assert ratio_row("x", first, 1_000.0) == ["x", "2.50 us", *expected]
