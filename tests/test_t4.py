"""A recording as T4: what is written passes the schemas, and says what the rows say."""

import json
from datetime import datetime
from pathlib import Path

import jsonschema
import pytest
from small_recording import GOLDEN, failed, ok

from tilearena import dataset
from tilearena.dataset import Recording
from tilearena.errors import RecordingError
from tilearena.exchange import t4
from tilearena.records import LABELS, Measurement, Status
from tilearena.spec import load_space

#: What the schema T4 1.0.0 of results asks for (Kernel Tuner 1.5.0, ``kernel_tuner/schema/T4/1.0.0``, Apache-2.0), and
#: what its readers do (AutoTuningAssociation/autotuning_methodology 1.1.0): names and objectives of measurements.
RESULTS = {
    "type": "object",
    "required": ["schema_version", "metadata", "results"],
    "properties": {
        "schema_version": {"const": "1.0.0"},
        "metadata": {"type": "object", "properties": {"timeunit": {"const": "milliseconds"}}, "required": ["timeunit"]},
        "results": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["configuration", "times", "invalidity", "correctness", "measurements", "objectives"],
                "properties": {
                    "timestamp": {"type": "string"},
                    "configuration": {"type": "object", "additionalProperties": {"type": "integer"}},
                    "times": {
                        "type": "object",
                        "properties": {"runtimes": {"type": "array", "items": {"type": "number"}}},
                    },
                    "invalidity": {
                        "enum": ["timeout", "compile", "runtime", "correctness", "constraints", "correct"],
                    },
                    "correctness": {"type": "number"},
                    "objectives": {"type": "array", "items": {"type": "string"}},
                    "measurements": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["name", "value", "unit"],
                            "properties": {
                                "name": {"type": "string"},
                                "value": {"type": ["number", "string", "array"]},
                                "unit": {"type": "string"},
                            },
                        },
                    },
                },
            },
        },
    },
}
#: The same of metadata.
METADATA = {
    "type": "object",
    "required": ["schema_version", "metadata"],
    "properties": {
        "schema_version": {"const": "1.0.0"},
        "metadata": {
            "type": "object",
            "properties": {
                "hardware": {"type": "object", "properties": {"hardware_description": {"type": "array"}}},
                "environment": {
                    "type": "object",
                    "properties": {
                        "device_query": {"type": "object"},
                        "requirements": {"type": "array", "items": {"type": "string"}},
                    },
                },
            },
        },
    },
}


#: Of a template of paper9.
PLAIN = {
    **{"generator": 2, "split_k": 1, "swizzle": 1, "cluster_m": 1, "cluster_n": 1},
    **{"schedule": 0, "stream_k": 0, "swapped": 0, "adding": 0},
}


def small(header, *rows):
    """Two problems, of templates 0 and 1 and a control (2)."""
    return Recording(header, dataset.rows_from(rows))


@pytest.fixture
def rows():
    return [
        ok(7, 2, [9, 9, 9, 9]),
        ok(7, 1, [50, 70, 40, 90]),
        failed(7, 0),
        ok(2, 0, [4_000_000, 1_000_000, 2_000_000, 3_200_000], launches=10),
        ok(2, 2, [8, 8, 8, 8]),
        ok(2, 1, [70, 70, 70, 70]),
    ]


def measurements(result):
    return {m["name"]: (m["value"], m["unit"]) for m in result["measurements"]}


def test_results_have_every_template_in_space_order_with_times_of_one_launch_in_milliseconds(small_header, rows):
    (first, seven), (second, two) = t4.results(small(small_header, *rows))
    assert (first, second) == ((7, 8, 16), (2, 8, 16))
    assert [len(document["results"]) for document in (seven, two)] == [2, 2]
    fast = two["results"][0]
    assert fast["times"]["runtimes"] == [0.4, 0.1, 0.2, 0.32]
    assert measurements(fast) == {"time": (0.26, "ms"), "launches": (10, "")}
    assert (fast["invalidity"], fast["correctness"], fast["objectives"]) == ("correct", 1.0, ["time"])
    assert measurements(seven["results"][1])["time"] == (60 / 1e6, "ms")


def test_no_two_templates_of_a_large_space_have_the_same_configuration():
    templates = load_space("h200-all").templates("s8")
    found = [t4.configuration(template) for template in templates]
    assert len({tuple(one.items()) for one in found}) == len(templates)
    native = {t.id: one for t, one in zip(templates, found, strict=True)}["s8_128x256x128_c2x1_cooperative_st4"]
    changed = {"generator": 3, "cluster_m": 2, "schedule": 3}
    assert {name: native[name] for name in PLAIN} == PLAIN | changed
    assert all(type(value) is int for one in found for value in one.values())


def test_configuration_is_what_tells_templates_apart(small_header, rows):
    (_, document), _ = t4.results(small(small_header, *rows))
    first, second = (result["configuration"] for result in document["results"])
    tile = {"threadblock_m": 128, "threadblock_n": 256, "threadblock_k": 64, "warp_m": 64, "warp_n": 64, "warp_k": 64}
    assert first == tile | {"instruction_m": 16, "instruction_n": 8, "instruction_k": 32, "stages": 2} | PLAIN
    assert second == first | {"stages": 3}
    assert document["metadata"]["default"] == second
    assert document["metadata"] | {"dtype": "s8", "m": 7, "n": 8, "k": 16} == document["metadata"]


@pytest.mark.parametrize(
    ("status", "invalidity", "time"),
    [
        ("build_failed", "compile", "CompilationFailedConfig"),
        ("infeasible", "constraints", "InvalidConfig"),
        ("launch_failed", "runtime", "RuntimeFailedConfig"),
        ("wrong_result", "correctness", "RuntimeFailedConfig"),
    ],
)
def test_failure_has_no_time_but_its_kind_and_reason(small_header, rows, status, invalidity, time):
    shape = {"m": 7, "n": 8, "k": 16, "candidate": 0}
    rows[2] = Measurement(**shape, status=Status(status), reason="it rained")
    (_, document), _ = t4.results(small(small_header, *rows))
    result = document["results"][0]
    assert (result["invalidity"], result["correctness"], result["times"]) == (invalidity, 0.0, {"runtimes": []})
    assert measurements(result) == {"time": (time, "ms"), "launches": (0, ""), "reason": ("it rained", "")}


def test_every_status_of_a_measurement_has_a_word():
    assert set(t4.VALIDITY) == set(Status) - set(LABELS)


def test_timestamp_is_the_start_of_the_problems_batch(small_header, rows):
    assert {r["timestamp"] for _, d in t4.results(small(small_header, *rows)) for r in d["results"]} == {
        small_header.started_at
    }
    golden = dataset.read(GOLDEN)
    stamps = [d["results"][0]["timestamp"] for _, d in t4.results(golden)]
    started_s = [batch.started_at_s for batch in golden.header.batches]
    assert [datetime.fromisoformat(s).timestamp() for s in stamps] == pytest.approx(started_s, rel=0, abs=1e-5)


def test_exported_files_pass_the_schemas_and_hold_the_recorded_times(tmp_path, recorded):
    recording = recorded("quick", "s8", "hot")
    written = t4.export(recording, tmp_path)
    folder = tmp_path / "nvidia-h200" / "quick" / "gemm.paper9.s8.hot"
    table = recording.table
    assert written == [folder / "metadata.json", *(folder / f"{m}x{n}x{k}.json" for m, n, k in table.problems.tolist())]
    jsonschema.validate(json.loads(written[0].read_text()), METADATA)
    for path, time_ns in zip(written[1:], table.time_ns.tolist(), strict=True):
        document = json.loads(path.read_text())
        jsonschema.validate(document, RESULTS)
        assert [measurements(r)["time"][0] for r in document["results"]] == [ns / 1e6 for ns in time_ns]
        assert document["metadata"]["recording"] == recording.header.fingerprint


def test_metadata_say_where_the_rows_come_from(recorded):
    header = recorded("quick", "s8", "hot").header
    document = t4.metadata(Recording(header, None))
    (device,) = document["metadata"]["hardware"]["hardware_description"]
    assert (device["product"], device["driver"]) == (header.device.product, header.device.driver)
    assert f"nvcc=={header.versions['nvcc']}" in document["metadata"]["environment"]["requirements"]
    rest = document["metadata"]["tilearena"]
    assert (rest["fingerprint"], rest["protocol"]["rounds"]) == (header.fingerprint, header.protocol.rounds)


def test_problems_that_are_asked_for_are_exported_alone(tmp_path, small_header, rows):
    written = t4.export(small(small_header, *rows), tmp_path, [(2, 8, 16)])
    assert [path.name for path in written] == ["metadata.json", "2x8x16.json"]
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == set(written)


def test_problem_that_is_not_recorded_is_refused_before_anything_is_written(tmp_path, small_header, rows):
    with pytest.raises(RecordingError, match="has no problem 3x8x16; leave --problem out"):
        t4.export(small(small_header, *rows), tmp_path, [(2, 8, 16), (3, 8, 16)])
    assert not list(tmp_path.iterdir())


def test_labels_alone_are_refused(tmp_path, small_header):
    labels = [
        Measurement(m=1, n=8, k=16, candidate=c, status=status)
        for c, status in enumerate([Status.BEST, Status.NOT_BEST, Status.NOT_BEST])
    ]
    header = small_header.model_copy(update={"origin": "labels"})
    with pytest.raises(RecordingError, match="has labels alone, and T4 is about times"):
        t4.export(small(header, *labels), tmp_path)
    assert not list(tmp_path.iterdir())


def test_document_gives_the_word_for_every_status():
    text = (Path(__file__).resolve().parents[1] / "docs" / "file-formats.md").read_text()
    for status, (invalidity, error) in t4.VALIDITY.items():
        assert f"| `{status}` | `{invalidity}` | {f'`{error}` ' if error else ''}|" in text


def test_recording_of_another_tool_says_so(small_header, rows):
    imported = small_header.model_copy(update={"origin": "cutlass_profiler"})
    (_, document), _ = t4.results(small(imported, *rows))
    described = t4.metadata(small(imported, *rows))["metadata"]["tilearena"]
    assert document["metadata"]["origin"] == described["origin"] == "cutlass_profiler"
