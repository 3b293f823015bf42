"""docs/file-formats.md names every key and column on disk, and no other."""

import re
from pathlib import Path

import pytest

from tilearena import dataset, manifest, picks, provenance, records, score, submission

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "file-formats.md"
COUNTS = [name for name in score.Score.model_fields if name.startswith("n_")]
SECTIONS = {
    "Recording columns": dataset.COLUMNS.names,
    "Recording header": dataset.Header.model_fields,
    "Protocol": records.Protocol.model_fields,
    "Clock": provenance.Clock.model_fields,
    "Batch": provenance.Batch.model_fields,
    "Telemetry": provenance.Telemetry.model_fields,
    "Anchors": provenance.Anchors.model_fields,
    "Device": records.Device.model_fields,
    "Candidate": dataset.Candidate.model_fields,
    "Template": records.Template.model_fields,
    "Submission JSON": manifest.Manifest.model_fields,
    "Result": manifest.Result.model_fields,
    "Key": score.Key.model_fields,
    "Fingerprints": manifest.Fingerprints.model_fields,
    "Figures": [*COUNTS, *score.FIGURES],
    "Picks": picks.COLUMNS.names,
}


def section(title: str) -> str:
    return re.split(r"^#+ ", DOCUMENT.read_text().split(f"\n### {title}\n")[1], flags=re.MULTILINE)[0]


@pytest.mark.parametrize("title", SECTIONS)
def test_file_formats_document_every_key(title):
    documented = re.findall(r"^\| `(\w+)` \|", section(title), flags=re.MULTILINE)
    assert documented == list(SECTIONS[title])


def test_file_formats_give_the_types_of_the_picks():
    documented = re.findall(r"^\| `\w+` \| (\w+) \|", section("Picks"), flags=re.MULTILINE)
    assert documented == [str(field.type) for field in picks.COLUMNS]


@pytest.mark.parametrize(("kind", "module"), [("recording", dataset), ("submission", manifest)])
def test_file_formats_give_the_schema_version(kind, module):
    assert f"| {kind} | {module.SCHEMA_VERSION} |" in DOCUMENT.read_text()


def test_file_formats_give_every_status_and_limit():
    text = DOCUMENT.read_text()
    assert all(f"`{status}`" in text for status in records.Status)
    assert f"at most {picks.MAX_ROWS} rows" in text
    assert f"1 to {manifest.MAX_RESULTS} results" in text
    assert f"at most\n{submission.MAX_BYTES >> 20} MiB" in text
