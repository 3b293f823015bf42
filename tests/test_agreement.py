"""How a choice carries, where the recordings have other problems or failures; two_cards has the plain case."""

import pytest
from small_recording import failed, ok

from tilearena import dataset
from tilearena.agreement import carried
from tilearena.errors import RecordingError


@pytest.fixture
def recorded_as(tmp_path, small_header):
    """Writes and reads a recording of two templates and a control: {m: (ns, ns or None where it failed)}."""
    once = small_header.protocol.model_copy(update={"name": "cold", "rounds": 1, "reference_rounds": 1})
    header = small_header.model_copy(update={"protocol": once, "noise_floor": 0.01})

    def _recorded(times, **changes):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.parquet"
        rows = [
            ok(m, c, [time_ns]) if time_ns else failed(m, c)
            for m, pair in times.items()
            for c, time_ns in enumerate((*pair, 1000))
        ]
        dataset.write(path, header.model_copy(update=changes), dataset.rows_from(rows))
        return dataset.read(path)

    return _recorded


def test_only_problems_of_both_count_in_whatever_order(recorded_as):
    chooser = recorded_as({1: (100, 200), 2: (300, 200), 3: (50, 60)})
    judge = recorded_as({2: (110, 100), 9: (1, 5), 1: (100, 300)})
    found = carried(chooser, judge)
    assert (found["problems"], found["same_best"], found["regret_max"]) == (2, 1.0, 0.0)
    assert carried(judge, recorded_as({9: (8, 4)}))["regret_mean"] == 1.0


def test_choice_that_failed_counts_as_the_slowest_that_ran(recorded_as):
    found = carried(recorded_as({1: (100, 200), 2: (90, 100)}), recorded_as({1: (None, 300), 2: (120, 100)}))
    assert found == {
        "problems": 2,
        "same_best": 0.0,
        "tied": 0.5,  # the only one that ran is the slowest that ran, too
        "regret_mean": 0.1,
        "regret_p95": 0.19,
        "regret_max": 0.2,
    }


def test_recordings_that_cannot_be_compared_are_refused(recorded_as, small_header):
    one = recorded_as({1: (100, 200)})
    with pytest.raises(RecordingError, match="without a common problem"):
        carried(one, recorded_as({2: (100, 200)}))
    first, second, control = small_header.candidates
    with pytest.raises(RecordingError, match="of other templates"):
        carried(one, recorded_as({1: (100, 200)}, candidates=(second, first, control), default=0))
