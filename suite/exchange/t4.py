"""A recording -> T4, the auto-tuning community's exchange format: a results file per problem, and one of metadata.

Sources: the schemas T4 1.0.0 that Kernel Tuner 1.5.0 ships (``kernel_tuner/schema/T4``) and writes; how it is shared:
FAIR Sharing of Data in Autotuning Research, doi 10.1145/3629527.3651429.
"""

import json
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

from tilearena.atomic import replacing
from tilearena.dataset import Recording
from tilearena.errors import RecordingError
from tilearena.records import Schedule, Template

SCHEMA_VERSION = "1.0.0"
OBJECTIVE = "time"
Shape = tuple[int, int, int]

SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)
#: T4's ``invalidity`` of a status, and what Kernel Tuner writes for a time that there is none of. It has no word for a
#: wrong result, which it takes for an error at run time.
VALIDITY: dict[str, tuple[str, str]] = {
    "ok": ("correct", ""),
    "build_failed": ("compile", "CompilationFailedConfig"),
    "infeasible": ("constraints", "InvalidConfig"),
    "launch_failed": ("runtime", "RuntimeFailedConfig"),
    "wrong_result": ("correctness", "RuntimeFailedConfig"),
}


def export(recording: Recording, out: Path, problems: Collection[Shape] = ()) -> list[Path]:
    """Write the results of ``problems`` (m, n, k), all where empty, and the metadata below ``out``; returns the files.

    The folder is ``<device>/<spec>/<op>.<space>.<dtype>.<protocol>``, a file ``<m>x<n>x<k>.json`` or ``metadata.json``.

    Raises:
        RecordingError: the recording has labels alone, or not one of ``problems``.
        OSError: a file cannot be written; names it.
    """
    h = recording.header
    name = f"{h.op}.{h.space}.{h.dtype}.{h.protocol.name}"
    of = f"the recording of {h.spec}/{name} on {h.device.slug}"
    if recording.task.labels_only:
        raise RecordingError(f"{of} has labels alone, and T4 is about times; export one that was measured")
    known = set(map(tuple, recording.table.problems.tolist()))
    for problem in problems:
        if problem not in known:
            raise RecordingError(f"{of} has no problem {_named(problem)}; leave --problem out to export all")
    folder = out / h.device.slug / h.spec / name
    written = [_write(folder / "metadata.json", metadata(recording))]
    for problem, document in results(recording):
        if not problems or problem in problems:
            written.append(_write(folder / f"{_named(problem)}.json", document))
    return written


def results(recording: Recording) -> Iterator[tuple[Shape, dict[str, Any]]]:
    """Each problem in order of appearance, and its results file: every template in space order, times in milliseconds.

    A control and the vendor's kernels are no configurations of the space, and left out.
    """
    header, table = recording.header, recording.table
    shared = {
        "timeunit": "milliseconds",
        "device": header.device.slug,
        "op": header.op,
        "dtype": header.dtype,
        "bit_op": header.bit_op,
        "protocol": header.protocol.name,
        "origin": header.origin,
        "recording": header.fingerprint,
        "default": configuration(recording.templates[header.default]),
    }
    rows: dict[Shape, dict[int, dict[str, Any]]] = {}
    for row in recording.rows.to_pylist():
        rows.setdefault((row["m"], row["n"], row["k"]), {})[row["candidate"]] = row
    taken = [_utc(batch.started_at_s) for batch in header.batches for _ in range(batch.n_problems)]
    for p, (problem, of_candidate) in enumerate(rows.items()):
        timestamp = taken[p] if taken else header.started_at
        found = [
            _result(of_candidate[c], template, timestamp, float(table.time_ns[p, c]))
            for c, template in enumerate(recording.templates)
        ]
        about = shared | dict(zip("mnk", problem, strict=True))
        yield problem, {"schema_version": SCHEMA_VERSION, "metadata": about, "results": found}


def configuration(template: Template) -> dict[str, int]:
    """The parameters of a template that are tuned, shapes in elements; no two templates of a space have the same.

    T4 has integers alone: ``generator`` is the 2 or 3 of CUTLASS, ``schedule`` a number of `SCHEDULES`.
    """
    shapes = {"threadblock": template.threadblock, "warp": template.warp, "instruction": template.instruction}
    named = {f"{name}_{axis}": size for name, shape in shapes.items() for axis, size in zip("mnk", shape, strict=True)}
    return named | {
        "stages": template.stages,
        "generator": int(template.generator.removeprefix("cutlass")),
        "split_k": template.split_k,
        "swizzle": template.swizzle,
        "cluster_m": template.cluster[0],
        "cluster_n": template.cluster[1],
        "schedule": SCHEDULES.index(template.schedule),
        "stream_k": int(template.stream_k),
        "swapped": int(template.swapped),
        "adding": int(template.adding),
    }


def metadata(recording: Recording) -> dict[str, Any]:
    """The metadata file: the device, the versions of the tools, and the rest of the header under ``tilearena``."""
    header = recording.header.model_dump(mode="json", exclude={"candidates", "batches", "anchors"})
    device, versions = header.pop("device"), header.pop("versions")
    return {
        "schema_version": SCHEMA_VERSION,
        "metadata": {
            "hardware": {"hardware_description": [device]},
            "environment": {
                "device_query": {"product": device["product"], "driver": device["driver"]},
                "requirements": [f"{tool}=={version}" for tool, version in versions.items()],
            },
            "tilearena": header,
        },
    }


def _result(row: dict[str, Any], template: Template, timestamp: str, time_ns: float) -> dict[str, Any]:
    invalidity, error = VALIDITY[row["status"]]
    measurements = [
        {"name": OBJECTIVE, "value": error or time_ns / 1e6, "unit": "ms"},
        {"name": "launches", "value": row["launches"], "unit": ""},
    ]
    if row["reason"]:
        measurements.append({"name": "reason", "value": row["reason"], "unit": ""})
    return {
        "timestamp": timestamp,
        "configuration": configuration(template),
        "times": {"runtimes": [ns / row["launches"] / 1e6 for ns in row["elapsed_ns"]]},
        "invalidity": invalidity,
        "correctness": float(not error),
        "measurements": measurements,
        "objectives": [OBJECTIVE],
    }


def _utc(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).isoformat(sep=" ")


def _named(problem: Shape) -> str:
    return "x".join(map(str, problem))


def _write(path: Path, document: dict[str, Any]) -> Path:
    with replacing(path) as scratch:
        scratch.write_text(json.dumps(document, allow_nan=False))
    return path
