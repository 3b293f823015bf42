"""Scores and picks -> one JSON and one Parquet file per (device, spec, predictor, version), and back.

The JSON says who claims what about which recordings. The Parquet beside it holds the first picks of every problem, from
which ``tilearena.check`` recomputes the claims. Both are data from strangers: bounded, strictly typed, never executed.
"""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from pydantic import AwareDatetime, TypeAdapter, ValidationError

import tilearena
from tilearena.atomic import replacing
from tilearena.errors import SubmissionError, one_line
from tilearena.manifest import MAX_TEXT, SCHEMA_VERSION, Fingerprints, Manifest, Result, Submitter
from tilearena.picks import picks_fingerprint, read_picks, write_picks
from tilearena.records import Origin
from tilearena.score import Key, Score
from tilearena.table import Ints

MAX_BYTES = 8 << 20


@dataclass(frozen=True)
class Submission:
    """Both files in memory; ``picks[i]`` is int64 [P, 8]: what ``manifest.results[i]`` ranks first, -1 where none."""

    path: Path
    manifest: Manifest
    picks: tuple[Ints, ...]


@dataclass(frozen=True)
class Scored:
    """One result to submit: a score, the picks [P, R] it was computed from, and their origin.

    ``code_fingerprint`` is of the predictor's source, None where there is none; ``origin`` is the tested recording's;
    ``isolated`` as in `tilearena.manifest.Result`.
    """

    score: Score
    picks: Ints
    fingerprints: Fingerprints
    seed: int
    code_fingerprint: str | None
    origin: Origin = "measured"
    isolated: bool | None = None

    def result(self) -> Result:
        """What the JSON says of it."""
        flat = self.score.flat()
        key = Key.model_validate({name: flat.pop(name) for name in Key.model_fields})
        return Result(
            key=key,
            fingerprints=self.fingerprints,
            picks_fingerprint=picks_fingerprint(self.picks),
            code_fingerprint=self.code_fingerprint,
            seed=self.seed,
            status=flat.pop("status"),
            reason=one_line(flat.pop("reason"))[:MAX_TEXT],
            figures=flat,
            isolated=self.isolated,
        )


def folder(root: Path) -> Path:
    """Where submissions lie below ``root``."""
    return root / "leaderboard" / "submissions"


def path_for(root: Path, device: str, spec: str, predictor: str, version: str) -> Path:
    """``leaderboard/submissions/<device>/<spec>/<predictor>/<version>.json`` below ``root``."""
    return folder(root) / device / spec / predictor / f"{version}.json"


def prepare(root: Path, submitter: str) -> None:
    """Make sure that submissions can be written below ``root``, before the work that they come from.

    Raises:
        SubmissionError: the folder cannot be written, or no such text can name a submitter.
    """
    try:
        TypeAdapter(Submitter).validate_python(submitter)
    except ValidationError as error:
        raise SubmissionError(f"the submitter {submitter[:40]!r} is refused: {error.errors()[0]['msg']}") from None
    place = folder(root)
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        raise SubmissionError(f"{place}: cannot be written ({error.strerror}); choose another folder") from None


def require_kept(root: Path, scored: Sequence[Scored], submitter: str) -> None:
    """Make sure that writing ``scored`` loses nothing of a submission that is there already, nor takes it from anyone.

    What cannot be read (damaged, or of another schema version) is no loss.

    Raises:
        SubmissionError: a file below ``root`` has results that ``scored`` lacks, or is of another submitter; names the
            file and what would be lost.
    """
    keys = dict.fromkeys(s.score.key for s in scored)
    for path in dict.fromkeys(path_for(root, k.device, k.spec, k.predictor, k.version) for k in keys):
        try:
            there = read(path).manifest
        except SubmissionError:
            continue
        if there.submitter != submitter:
            raise SubmissionError(
                f"{path}: was submitted by {there.submitter!r}; raise the predictor's version, or replace it with "
                "--force"
            )
        if lost := [result.label for result in there.results if result.key not in keys]:
            raise SubmissionError(
                f"{path}: also holds {', '.join(lost)}, which would be lost; submit these as well, or give --force"
            )


def require_file(path: Path) -> None:
    """Make sure that there is a file to read.

    Raises:
        SubmissionError: there is none, or its folder cannot be searched.
    """
    try:
        found, what = path.is_file(), "a folder" if path.is_dir() else "no such file"
    except OSError as error:
        raise SubmissionError(f"{path}: cannot be read ({error.strerror})") from None
    if not found:
        raise SubmissionError(f"{path}: {what}; a submission is a .json with a .parquet of the same name beside it")


def write(root: Path, scored: Sequence[Scored], *, submitter: str, created_at: AwareDatetime) -> Path:
    """Write the JSON and its Parquet; returns the path of the JSON.

    Raises:
        SubmissionError: nothing to write, results of several subjects, or a name that cannot be part of a path.
    """
    if not scored:
        raise SubmissionError("nothing to submit: no result was scored")
    key = scored[0].score.key
    try:
        manifest = Manifest(
            predictor=key.predictor,
            version=key.version,
            device=key.device,
            spec=key.spec,
            submitter=submitter,
            created_at=created_at,
            tilearena=tilearena.__version__,
            results=tuple(s.result() for s in scored),
        )
    except ValidationError as error:
        _refuse(f"submission of {key.predictor!r} on {key.spec!r}", error)
    path = path_for(root, key.device, key.spec, key.predictor, key.version)
    write_picks(path.with_suffix(".parquet"), [s.picks for s in scored])
    with replacing(path) as scratch:
        scratch.write_text(manifest.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return path


def read(path: Path) -> Submission:
    """Read both files and check all that needs no recording.

    Raises:
        SubmissionError: missing, too large, malformed, of another schema version, or not where its content belongs.
    """
    manifest = _manifest(path, _bytes(path))
    expected = path_for(Path(), manifest.device, manifest.spec, manifest.predictor, manifest.version).parts[-4:]
    if path.absolute().parts[-4:] != expected:
        raise SubmissionError(f"{path}: by its content it belongs in {'/'.join(expected)}; move it there")
    parquet = path.with_suffix(".parquet")
    ranked = read_picks(parquet, _bytes(parquet), [result.label for result in manifest.results])
    for result, own in zip(manifest.results, ranked, strict=True):
        if picks_fingerprint(own) != result.picks_fingerprint:
            raise SubmissionError(f"{parquet}: {result.label}: picks do not match the JSON's picks_fingerprint")
    return Submission(path, manifest, ranked)


def _bytes(path: Path) -> bytes:
    """The file's content, unless it is large or reached through a link, which could lead out of the folder."""
    try:
        for part in (path, *path.absolute().parents[:3]):
            if part.is_symlink():
                raise SubmissionError(f"{path}: {part.name!r} is a symbolic link; put the file itself there")
        require_file(path)
        if path.stat().st_size > MAX_BYTES:
            raise SubmissionError(f"{path}: larger than {MAX_BYTES >> 20} MiB; split the submission by spec")
        return path.read_bytes()
    except OSError as error:
        raise SubmissionError(f"{path}: cannot be read ({error.strerror})") from None


def _manifest(path: Path, data: bytes) -> Manifest:
    try:
        raw = json.loads(data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant)
    except RecursionError:
        raise SubmissionError(f"{path}: nested too deeply to be a submission") from None
    except ValueError as error:
        raise SubmissionError(f"{path}: not valid JSON ({error})") from None
    if not isinstance(raw, dict):
        raise SubmissionError(f"{path}: not a JSON object, so it is not a submission")
    version = raw.get("schema_version")
    if version != SCHEMA_VERSION or isinstance(version, bool):
        newer = isinstance(version, int) and version > SCHEMA_VERSION
        advice = "update tilearena" if newer else "no upgrade from it exists: run `tilearena submit` again"
        shown = ascii(version)[:40]
        raise SubmissionError(f"{path}: schema version {shown}, this tilearena reads {SCHEMA_VERSION}; {advice}")
    try:
        return Manifest.model_validate(raw)
    except ValidationError as error:
        _refuse(str(path), error)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has one key twice")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number; write null for what is unknown")


def _refuse(where: str, error: ValidationError) -> NoReturn:
    first = error.errors(include_url=False, include_input=False)[0]
    key = ascii(".".join(map(str, first["loc"])))[:120]
    raise SubmissionError(f"{where}: key {key}: {first['msg']}") from None
