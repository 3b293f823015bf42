"""The recordings as a folder that Hugging Face data sets and Zenodo take as it is; written offline, uploaded by hand.

The recordings lie in it as they do in a checkout, byte for byte, so that ``--root`` may name the folder.
"""

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import yaml

from tilearena.datasheet.collection import Collection, collect
from tilearena.datasheet.page import AUTHORS, LICENCE_URL, TITLE, days, render
from tilearena.datasheet.pictures import draw, save
from tilearena.errors import RecordingError
from tilearena.inventory import inventory
from tilearena.root import RECORDINGS

PICTURES = "pictures"
KEYWORDS = ("CUTLASS", "GEMM", "GPU", "autotuning", "benchmark", "low-bit", "int8", "binary", "performance-modeling")
ABSTRACT = (
    "Times of CUTLASS GEMM templates (tile shape, pipeline stages) for low-bit matrix products on NVIDIA GPUs, sample "
    "by sample, with the state of the card: for learning and judging the choice of a template."
)
#: Of rows, as Hugging Face's size_categories names them (docs/hub, datasetcard.md), with their upper bounds.
SIZES = {"n<1K": 10**3, "1K<n<10K": 10**4, "10K<n<100K": 10**5, "100K<n<1M": 10**6, "1M<n<10M": 10**7}


def publish(root: Path, folder: Path) -> list[Path]:
    """Write the recordings below ``root`` with all that cites and describes them; returns the paths in ``folder``.

    ``folder`` appears whole or not at all.

    Raises:
        RecordingError: ``folder`` holds something; a recording is damaged, misplaced or imported; or there is none.
        PictureError: matplotlib is missing.
    """
    named = folder.name not in ("", "..") and not folder.is_symlink()
    if not named or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise RecordingError(f"{folder}: is there and not an empty folder; name one that does not exist yet")
    _require_publishable(root)
    collection = collect(root)
    scratch = folder.absolute().with_name(f".{folder.name}.{os.getpid()}")
    try:
        _write(root, collection, scratch)
        if folder.exists():
            folder.rmdir()
        scratch.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


def _require_publishable(root: Path) -> None:
    for entry in inventory(root, verify=True):
        path = root / RECORDINGS / entry.path
        if entry.fault:
            raise RecordingError(f"{path}: {entry.fault}")
        if entry.header is not None and (origin := entry.header.origin) != "measured":
            raise RecordingError(f"{path}: is imported ({origin}), not measured, so it is not ours to publish; move it")


def _write(root: Path, collection: Collection, folder: Path) -> None:
    for one in collection.held:
        target = folder / RECORDINGS / one.path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / RECORDINGS / one.path, target)
    pictures = draw(collection)
    save(pictures, folder / PICTURES)
    page = render(collection, pictures, PICTURES, linked=False)
    texts = {
        "README.md": f"---\n{_yaml(card(collection))}---\n\n{page}",
        "CITATION.cff": _yaml(citation(collection)),
        ".zenodo.json": json.dumps(zenodo(collection), indent=2) + "\n",
        "LICENSE": _licence(),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    sums = (f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder).as_posix()}" for path in paths)
    (folder / "SHA256SUMS").write_text("\n".join(sums) + "\n", encoding="utf-8")


def _yaml(value: dict[str, Any]) -> str:
    return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=10**6))


def card(collection: Collection) -> dict[str, Any]:
    """Front matter of a Hugging Face data set card: a config for each device and workload, a split for each file.

    Keys as in huggingface/hub-docs, datasetcard.md and docs/hub/datasets-manual-configuration.md.
    """
    files: dict[str, list[dict[str, str]]] = {}
    for one in collection.held:
        config = f"{one.header.spec}@{one.header.device.slug}"  # no name has an @
        split = one.path.name.removesuffix(".parquet").replace("-", "_")  # a split's name has none
        files.setdefault(config, []).append({"split": split, "path": (RECORDINGS / one.path).as_posix()})
    rows = sum(len(one.recording.rows) for one in collection.held)
    return {
        "license": "cc-by-4.0",
        "language": ["en"],
        "pretty_name": "tilearena recordings",
        "size_categories": [next((name for name, most in SIZES.items() if rows < most), "10M<n<100M")],
        "task_categories": ["tabular-classification", "tabular-regression"],
        "tags": [keyword.lower() for keyword in KEYWORDS],
        "configs": [{"config_name": name, "data_files": splits} for name, splits in files.items()],
    }


def citation(collection: Collection) -> dict[str, Any]:
    """CITATION.cff, schema 1.2.0 (citation-file-format/citation-file-format, schema-guide.md)."""
    return {
        "cff-version": "1.2.0",
        "message": "If you use these recordings, please cite them as below.",
        "type": "dataset",
        "title": TITLE,
        "abstract": ABSTRACT,
        "authors": [{"name": AUTHORS}],
        "version": days(collection)[1],
        "license": "CC-BY-4.0",
        "keywords": list(KEYWORDS),
        "identifiers": [
            {"type": "other", "value": collection.fingerprint, "description": "Fingerprint of all recordings together"}
        ],
    }


def zenodo(collection: Collection) -> dict[str, Any]:
    """.zenodo.json: the metadata of a deposit (developers.zenodo.org, Deposit metadata)."""
    return {
        "upload_type": "dataset",
        "title": TITLE,
        "description": f"<p>{ABSTRACT}</p><p>Fingerprint of all recordings: {collection.fingerprint}.</p>",
        "creators": [{"name": AUTHORS}],
        "access_right": "open",
        "license": "cc-by-4.0",
        "version": days(collection)[1],
        "language": "eng",
        "keywords": list(KEYWORDS),
    }


def _licence() -> str:
    return (
        f"Creative Commons Attribution 4.0 International (SPDX: CC-BY-4.0)\n\n"
        f"{AUTHORS} license all files in this folder under CC BY 4.0.\n"
        f"The licence in short: {LICENCE_URL}\nIts text, which alone is binding: {LICENCE_URL}legalcode\n"
    )
