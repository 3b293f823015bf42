"""A submission comes back as it was written, or its JSON is refused in one sentence."""

import json
import os
import re
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from submitted import refused

from tilearena import submission
from tilearena.errors import SubmissionError
from tilearena.manifest import Manifest, Result
from tilearena.submission import MAX_BYTES, path_for, read

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def edit(path: Path, *keys: Any, to: Any) -> None:
    raw = json.loads(path.read_text())
    part = raw
    for key in keys[:-1]:
        part = part[key]
    part[keys[-1]] = to
    path.write_text(json.dumps(raw))


def test_submission_comes_back_as_written(arena, written):
    key = arena.key("lowbit-random", "s8")
    scored = arena.scored(key, 0.01)
    assert written == path_for(arena.root, "synthetic-device", "lowbit-random", "gbdt", "1")
    found = read(written)
    assert found.manifest.created_at == NOW
    assert [result.label for result in found.manifest.results] == ["s8/cold/random", "s4/cold/random"]
    assert found.manifest.results[0].key == key
    assert found.manifest.results[0].figures["top2"] == scored.score.figures["top2"].value
    np.testing.assert_array_equal(found.picks[0], scored.picks)
    assert found.picks[1].shape == (40, 8)


def test_submission_label_names_an_unusual_space(arena, written):
    result = read(written).manifest.results[0]
    other = result.model_copy(update={"key": result.key.model_copy(update={"space": "wide"})})
    assert other.label == "wide/s8/cold/random"


def test_write_leaves_only_the_two_files(written):
    assert sorted(p.name for p in written.parent.iterdir()) == ["1.json", "1.parquet"]


def test_narrower_submission_names_the_results_that_it_would_lose(arena, written):
    key = arena.key("lowbit-random", "s8")
    both = [arena.scored(k, 0.01) for k in (key, arena.key("lowbit-random", "s4"))]
    submission.require_kept(arena.root, both, "synthetic")
    submission.require_kept(arena.root, [arena.scored(key.model_copy(update={"version": "2"}), 0.01)], "synthetic")
    with pytest.raises(SubmissionError) as caught:
        submission.require_kept(arena.root, [arena.scored(arena.key("networks", "s8"), 0.01), both[1]], "synthetic")
    assert str(caught.value) == (
        f"{written}: also holds s8/cold/random, which would be lost; submit these as well, or give --force"
    )


def test_submission_of_somebody_else_is_not_taken_over(arena, written):
    both = [arena.scored(arena.key("lowbit-random", dtype), 0.01) for dtype in ("s8", "s4")]
    with pytest.raises(
        SubmissionError, match=r"was submitted by 'synthetic'; raise the predictor's version, or replace"
    ):
        submission.require_kept(arena.root, both, "somebody else")


def test_submission_that_cannot_be_read_is_no_loss(arena, written):
    edit(written, "schema_version", to=1)
    submission.require_kept(arena.root, [arena.scored(arena.key("lowbit-random", "s8"), 0.01)], "synthetic")


def test_write_refuses_nothing(tmp_path):
    with pytest.raises(SubmissionError, match="nothing to submit"):
        submission.write(tmp_path, [], submitter="", created_at=NOW)


@pytest.mark.parametrize("version", ["../../1", ".hidden", "a/b", "", "v" * 65])
def test_write_refuses_a_name_that_is_no_safe_file_name(arena, version):
    key = arena.key("lowbit-random", "s8").model_copy(update={"version": version})
    with pytest.raises(SubmissionError, match="version"):
        submission.write(arena.root, [arena.scored(key, 0.01)], submitter="", created_at=NOW)
    assert not (arena.root / "leaderboard").exists()


def test_write_refuses_two_subjects(arena):
    keys = [arena.key("lowbit-random", "s8"), arena.key("networks", "s8")]
    with pytest.raises(SubmissionError, match=r"results\.1\.key\.spec differs from the submission's spec"):
        arena.submit("gbdt", 0.01, keys)


def test_write_refuses_one_result_twice(arena):
    with pytest.raises(SubmissionError, match="s8/cold/random is there twice"):
        arena.submit("gbdt", 0.01, [arena.key("lowbit-random", "s8")] * 2)


def test_write_makes_a_reason_one_short_line(arena):
    path = arena.submit("gbdt", 0, [arena.key("lowbit-random", "s8")], reason="it\nraised " + "x" * 600)
    result = read(path).manifest.results[0]
    assert result.reason == ("it raised " + "x" * 600)[:500]
    assert (result.status, result.figures["n_failed"]) == ("failed", 40)


@pytest.mark.parametrize(
    ("keys", "value", "match"),
    [
        (["schema_version"], 3, "schema version 3, this tilearena reads 2; update tilearena"),
        (["schema_version"], 1, "schema version 1, .*; no upgrade from it exists: run `tilearena submit` again"),
        (["schema_version"], 0, "schema version 0, .* run `tilearena submit` again"),
        (["schema_version"], True, "schema version True"),
        (["kind"], "recording", "key 'kind'"),
        (["surplus"], 1, "key 'surplus'"),
        (["submitter"], "x" * 201, "key 'submitter'"),
        (["submitter"], "\x1b[31m", "key 'submitter'"),
        (["created_at"], "yesterday", "key 'created_at'"),
        (["results"], [], "key 'results'"),
        (["results", 0, "key", "dtype"], "f16", r"key 'results\.0\.key\.dtype'"),
        (["results", 0, "key", "space"], "../../etc", r"key 'results\.0"),
        (["results", 0, "key", "device"], "other", r"results\.0\.key\.device differs"),
        (["results", 0, "seed"], 1 << 32, r"key 'results\.0\.seed'"),
        (["results", 0, "seed"], 1.0, r"key 'results\.0\.seed'"),
        (["results", 0, "figures", "top2"], "0.9", r"key 'results\.0\.figures\.top2"),
        (["results", 0, "figures", "top2"], True, r"key 'results\.0\.figures\.top2"),
        (["results", 0, "figures", "n_failed"], 10**30, r"key 'results\.0\.figures\.n_failed"),
        (["results", 0, "figures", "top2"], float("nan"), "NaN is not a number"),
        (["results", 0, "figures", "top2"], float("inf"), "Infinity is not a number"),
        (["results", 0, "figures", "bad name"], 1, r"key 'results\.0\.figures\.bad name"),
        (["results", 0, "fingerprints", "test"], "XYZ", r"key 'results\.0\.fingerprints\.test'"),
        (["results", 0, "code_fingerprint"], "XYZ", r"key 'results\.0\.code_fingerprint'"),
        (["results", 0, "picks_fingerprint"], "0" * 16, "s8/cold/random: picks do not match"),
        (["version"], "2", r"results\.0\.key\.version differs"),
    ],
)
def test_read_names_the_wrong_key(written, keys, value, match):
    edit(written, *keys, to=value)
    refused(written, match)


def test_read_refuses_a_number_that_overflows(written):
    written.write_text(re.sub('"top2": [^,]+', '"top2": 1e999', written.read_text(), count=1))
    refused(written, r"key 'results\.0\.figures\.top2")


@pytest.mark.parametrize("where", ["networks/gbdt/1.json", "lowbit-random/mlp/1.json", "lowbit-random/gbdt/2.json"])
def test_read_refuses_a_file_in_the_wrong_place(arena, written, where):
    moved = written.parents[2] / where
    moved.parent.mkdir(parents=True, exist_ok=True)
    for suffix in (".json", ".parquet"):
        written.with_suffix(suffix).rename(moved.with_suffix(suffix))
    refused(moved, "belongs in synthetic-device/lowbit-random/gbdt/1.json; move it there")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (b"", "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b"[]", "not a JSON object"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"schema_version": 2, "a": ' + b'{"a":' * 50_000, "nested too deeply"),
        (b'{"kind": 1, "kind": 2}', "one key twice"),
        (b"9" * 5_000, "not valid JSON"),
        (b" " * (MAX_BYTES + 1), "larger than 8 MiB"),
    ],
    ids=["empty", "not-utf8", "array", "deep-array", "deep-object", "twice", "huge-integer", "large"],
)
def test_read_refuses_json_that_is_no_submission(written, text, match):
    written.write_bytes(text)
    refused(written, match)


@pytest.mark.parametrize("suffix", [".json", ".parquet"])
def test_read_refuses_a_missing_half(written, suffix):
    written.with_suffix(suffix).unlink()
    refused(written, "no such file")


@pytest.mark.parametrize("suffix", [".json", ".parquet"])
def test_read_refuses_a_symbolic_link(written, tmp_path_factory, suffix):
    outside = tmp_path_factory.mktemp("outside") / "file"
    half = written.with_suffix(suffix)
    half.rename(outside)
    half.symlink_to(outside)
    refused(written, f"'1{suffix}' is a symbolic link")


def test_read_refuses_a_linked_folder(written, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "gbdt"
    written.parent.rename(outside)
    written.parent.symlink_to(outside)
    refused(written, "'gbdt' is a symbolic link")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_read_does_not_wait_on_a_pipe(written):
    written.unlink()
    os.mkfifo(written)
    refused(written, "no such file")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
mangled = st.fixed_dictionaries(
    {"schema_version": st.just(2)},
    optional={name: json_values for name in Manifest.model_fields if name not in ("schema_version", "results")}
    | {
        "results": st.lists(
            st.dictionaries(st.sampled_from([*Result.model_fields, "x"]), json_values, max_size=7), max_size=2
        )
    },
)


def read_bytes_as_submission(json_bytes: bytes, parquet: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "d" / "s" / "p" / "1.json"
        path.parent.mkdir(parents=True)
        path.write_bytes(json_bytes)
        path.with_suffix(".parquet").write_bytes(parquet)
        with pytest.raises(SubmissionError):
            read(path)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200), st.binary(max_size=50))
def test_read_of_random_bytes_raises_only_submission_errors(data, parquet):
    read_bytes_as_submission(data, parquet)


@settings(max_examples=150, deadline=None)
@given(json_values | mangled)
def test_read_of_random_json_raises_only_submission_errors(value):
    read_bytes_as_submission(json.dumps(value).encode(), b"")


@pytest.mark.parametrize("character", ["\x9b", "\u202e", "\u2066", "\u2028"])
def test_submitter_that_steers_a_terminal_or_turns_text_is_refused(written, character):
    edit(written, "submitter", to=f"a{character}b")
    refused(written, "key 'submitter'")


def test_path_that_is_too_long_is_refused(tmp_path):
    with pytest.raises(SubmissionError, match=r"cannot be read \(File name too long\)"):
        read(tmp_path / f"{'x' * 300}.json")
