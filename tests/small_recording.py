"""A recording of six rows, ways to damage its file, and the sentence that refuses it."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tilearena import dataset
from tilearena.dataset import COLUMNS, METADATA_KEY
from tilearena.errors import RecordingError
from tilearena.provenance import Batch
from tilearena.records import Measurement, Status
from tilearena.rows import content_fingerprint

GOLDEN = Path(__file__).with_name("golden") / "recording-v2.parquet"


def ok(m, candidate, elapsed_ns, launches=1):
    return Measurement(
        m=m, n=8, k=16, candidate=candidate, status=Status.OK, elapsed_ns=tuple(elapsed_ns), launches=launches
    )


def failed(m, candidate, reason="row 3 of the output is wrong"):
    return Measurement(m=m, n=8, k=16, candidate=candidate, status=Status.WRONG_RESULT, reason=reason)


#: Two problems x (two templates and a control), 4 samples each, out of order.
ROWS = [
    ok(7, 0, [30, 10, 20, 60]),
    failed(7, 1),
    ok(2, 1, [50, 70, 40, 90]),
    ok(2, 0, [400, 100, 200, 320], launches=10),
    ok(7, 2, [9, 9, 9, 9]),
    ok(2, 2, [8, 8, 8, 8]),
]


@pytest.fixture(scope="module")
def small_header():
    """Of `ROWS`: hot, 4 rounds."""
    golden = dataset.read(GOLDEN).header
    few = (*golden.candidates[:2], golden.candidates[9])
    hot = golden.protocol.model_copy(update={"name": "hot", "rounds": 4, "screen_rounds": 0, "reference_rounds": 4})
    return golden.model_copy(update={"candidates": few, "protocol": hot, "batches": (), "anchors": ()})


@pytest.fixture
def small_path(tmp_path, small_header):
    """Where the recording of `ROWS` lies."""
    path = tmp_path / "recording.parquet"
    dataset.write(path, small_header, dataset.rows_from(ROWS))
    return path


def refusal(path):
    with pytest.raises(RecordingError) as caught:
        dataset.read(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message


def rewrite(path, *, rows=None, without=(), **changes):
    """The file again, with other rows or with other keys in its header."""
    table = pq.read_table(path)
    raw = json.loads(pq.read_metadata(path).metadata[METADATA_KEY]) | changes
    raw = {key: value for key, value in raw.items() if key not in without}
    rows = (table if rows is None else rows).replace_schema_metadata(None)
    if "fingerprint" not in changes and rows.schema.equals(COLUMNS):
        raw["fingerprint"] = content_fingerprint(raw, rows)
    with pq.ParquetWriter(path, rows.schema) as file:
        file.write_table(rows)
        file.add_key_value_metadata({METADATA_KEY: json.dumps(raw).encode()})


def batch(n_problems, card="one", session="a", started_at_s=0.0, seconds=1.0):
    return Batch(
        session=session, card=card, host="h", n_problems=n_problems, started_at_s=started_at_s, seconds=seconds
    )
