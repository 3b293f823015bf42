"""A recording whose header is none, or contradicts itself, is refused in one sentence that names the file."""

import json

import pyarrow.parquet as pq
import pytest
from small_recording import ROWS, batch, refusal, rewrite

from tilearena import dataset
from tilearena.dataset import COLUMNS, METADATA_KEY
from tilearena.errors import RecordingError
from tilearena.provenance import Telemetry


@pytest.mark.parametrize("counts", [(1,), (2, 1), (3,)])
def test_recording_whose_batches_are_of_other_problems_is_refused(small_path, small_header, counts):
    batches = tuple(batch(count) for count in counts)
    dataset.write(small_path, small_header.model_copy(update={"batches": batches}), dataset.rows_from(ROWS))
    assert f"its batches are of {sum(counts)} problems, but it has 2" in refusal(small_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("n_problems", 0),
        ("started_at_s", float("nan")),
        ("started_at_s", 1e308),
        ("seconds", -1.0),
        ("seconds", float("inf")),
        ("attempts", 0),
        ("retakes", -1),
        ("retakes", 1 << 63),
        ("telemetry", Telemetry(n_samples=0).model_copy(update={"n_samples": -1})),
    ],
)
def test_header_with_a_batch_that_no_card_measures_is_refused(small_path, small_header, key, value):
    impossible = batch(2).model_copy(update={key: value})
    dataset.write(small_path, small_header.model_copy(update={"batches": (impossible,)}), dataset.rows_from(ROWS))
    assert f"header key 'batches.0.{key}" in refusal(small_path)


def test_two_candidates_with_one_id_are_refused(small_path, small_header):
    first, second = small_header.candidates[:2]
    twins = (first, second.model_copy(update={"id": first.id}), *small_header.candidates[2:])
    dataset.write(small_path, small_header.model_copy(update={"candidates": twins}), dataset.rows_from(ROWS))
    assert "two of its candidates have the same id" in refusal(small_path)


@pytest.mark.parametrize("change", [{"default": 0}, {"noise_floor": 0.5}, {"started_at": "2020-01-01"}])
def test_recording_whose_header_was_changed_is_refused(small_path, change):
    rewrite(small_path, fingerprint=dataset.read(small_path).header.fingerprint, **change)
    assert "does not match its fingerprint" in refusal(small_path)


def test_recording_without_a_header_is_refused(small_path):
    pq.write_table(pq.read_table(small_path).replace_schema_metadata(None), small_path)
    assert "no tilearena header" in refusal(small_path)


@pytest.mark.parametrize("text", [b"{", b"[]", b"null", b"3", b"\xff\xfe", b"", b"[" * 100_000])
def test_recording_with_a_header_that_is_no_json_object_is_refused(small_path, text):
    pq.write_table(pq.read_table(small_path).replace_schema_metadata({METADATA_KEY: text}), small_path)
    assert "not a JSON object" in refusal(small_path)


@pytest.mark.parametrize(
    ("version", "advice"),
    [
        (0, "record it again"),
        (1, "record it again"),
        (3, "update tilearena"),
        (99, "update tilearena"),
        ("1", "record it again"),
    ],
)
def test_recording_of_another_schema_version_is_refused_with_advice(small_path, version, advice):
    rewrite(small_path, schema_version=version)
    message = refusal(small_path)
    assert f"schema version {version!r}, this tilearena reads 2" in message
    assert advice in message


def test_recording_without_a_schema_version_is_refused(small_path):
    rewrite(small_path, without=["schema_version"])
    assert "schema version None" in refusal(small_path)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"dtype": "s16"}, "dtype"),
        ({"device": {"slug": "x"}}, "device.product"),
        ({"without": ["default"]}, "default"),
        ({"colour": "red"}, "colour"),
        ({"k" * 999: 1}, "k" * 119),
    ],
)
def test_recording_with_a_wrong_header_key_names_it(small_path, change, key):
    rewrite(small_path, **change)
    assert f"header key '{key}" in (message := refusal(small_path))
    assert len(message) < len(str(small_path)) + 200


def test_recording_with_half_a_character_in_its_header_is_refused(small_path):
    rewrite(small_path, versions={"cuda": "\ud800"})
    assert "header key '': Invalid JSON" in refusal(small_path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"default": 2}, "its default is 2, but it has 2 templates"),
        ({"default": -1}, "its default is -1, but it has 2 templates"),
        ({"candidates": []}, "its default is 1, but it has 0 templates"),
        ({"dtype": "s4"}, "candidate 0 is no template of s4"),
        ({"bit_op": "and"}, "candidate 0 is no template of s8"),
        ({"noise_floor": float("nan")}, "header key 'noise_floor'"),
        ({"noise_floor": -0.1}, "header key 'noise_floor'"),
        ({"schema_version": [["x" * 99] * 99]}, "schema version [['xxx"),
    ],
)
def test_recording_whose_header_contradicts_itself_is_refused(small_path, change, said):
    rewrite(small_path, **change)
    assert said in (message := refusal(small_path))
    assert len(message) < len(str(small_path)) + 200
    with pytest.raises(RecordingError) as caught:  # nor is it listed without a look at its rows
        dataset.read_header(small_path)
    assert str(caught.value) == message


@pytest.mark.parametrize("shape", ["threadblock", "warp", "instruction"])
@pytest.mark.parametrize("extents", [[64, 0, 64], [-64, 64, 64], [64, 64, 10**400]])
def test_recording_with_a_template_of_no_shape_is_refused(small_path, shape, extents):
    first, *others = json.loads(pq.read_metadata(small_path).metadata[METADATA_KEY])["candidates"]
    rewrite(small_path, candidates=[first | {"template": first["template"] | {shape: extents}}, *others])
    assert "candidate 0 is a template of a shape that no kernel has" in refusal(small_path)


def test_recording_with_a_warp_larger_than_its_threadblock_is_refused(small_path):
    first, *others = json.loads(pq.read_metadata(small_path).metadata[METADATA_KEY])["candidates"]
    rewrite(small_path, candidates=[first | {"template": first["template"] | {"warp": [512, 64, 64]}}, *others])
    assert "candidate 0 is a template of a shape that no kernel has" in refusal(small_path)


@pytest.mark.parametrize("codec", ["utf-16", "utf-8-sig"])
def test_recording_whose_header_is_no_plain_utf8_is_refused(small_path, codec):
    text = pq.read_metadata(small_path).metadata[METADATA_KEY].decode()
    with pq.ParquetWriter(small_path, COLUMNS) as file:
        file.write_table(dataset.rows_from(ROWS))
        file.add_key_value_metadata({METADATA_KEY: text.encode(codec)})
    assert "not a JSON object; fetch it again" in refusal(small_path)


def test_recording_whose_templates_do_not_come_first_is_refused(small_path):
    raw = json.loads(pq.read_metadata(small_path).metadata[METADATA_KEY])
    rewrite(small_path, candidates=raw["candidates"][::-1])
    assert "a template comes after a control" in refusal(small_path)
    rewrite(small_path, candidates=[c | {"template": None} for c in raw["candidates"]])
    assert "candidate 0 is no template of s8" in refusal(small_path)
