"""What is published can be loaded by its own description, and nothing is published that should not be."""

import hashlib
import json
import os
from pathlib import Path

import pyarrow.dataset as ds
import pytest
import typer
import yaml
from foreign_files import profiler_file, target

from tilearena import __version__, cli_recordings, dataset
from tilearena.datasheet import page as datasheet
from tilearena.datasheet import publish
from tilearena.datasheet.collection import collect
from tilearena.datasheet.pictures import draw
from tilearena.errors import RecordingError, SpecError
from tilearena.exchange.foreign_csv import Faults
from tilearena.exchange.importing import import_file
from tilearena.inventory import inventory
from tilearena.root import RECORDINGS, recorded


@pytest.fixture(scope="module")
def published(shared_root, tmp_path_factory):
    folder = tmp_path_factory.mktemp("folder") / "out"
    publish.publish(shared_root, folder)
    return folder


def front_matter(folder):
    _, text, body = (folder / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    return yaml.safe_load(text), body


def test_configs_load_all_rows_and_fingerprints(published, shared_root):
    card, _ = front_matter(published)
    files = {}
    for config in card["configs"]:
        paths = [split["path"] for split in config["data_files"]]
        assert len({split["split"] for split in config["data_files"]}) == len(paths)
        assert ds.dataset([published / path for path in paths]).count_rows() == sum(
            len(dataset.read(shared_root / path).rows) for path in paths
        )
        for path in paths:
            spec, device = config["config_name"].split("@")
            header = dataset.read(published / path).header
            assert (header.spec, header.device.slug) == (spec, device)
            files[path] = header.fingerprint
    originals = {path.relative_to(shared_root).as_posix(): path for path in recorded(shared_root)}
    assert files == {name: dataset.read(path).header.fingerprint for name, path in originals.items()}
    assert all((published / name).read_bytes() == path.read_bytes() for name, path in originals.items())


def test_card_says_licence_size_and_language(published):
    card, body = front_matter(published)
    assert (card["license"], card["language"], card["size_categories"]) == ("cc-by-4.0", ["en"], ["1K<n<10K"])
    assert body.strip().startswith("# tilearena recordings")
    for line in body.splitlines():
        if line.startswith("!["):
            assert (published / line.split("](")[1].rstrip(")")).is_file()


def test_folder_is_a_root_and_its_checksums_hold(published):
    assert [entry.fault for entry in inventory(published, verify=True) if entry.fault] == []
    sums = [line.split("  ", 1) for line in (published / "SHA256SUMS").read_text().splitlines()]
    assert all(hashlib.sha256((published / name).read_bytes()).hexdigest() == digest for digest, name in sums)
    files = {path.relative_to(published).as_posix() for path in published.rglob("*") if path.is_file()}
    assert {name for _, name in sums} == files - {"SHA256SUMS"}
    assert {"README.md", "CITATION.cff", ".zenodo.json", "LICENSE"} <= files


def test_citation_and_zenodo_name_what_is_there(published):
    cff = yaml.safe_load((published / "CITATION.cff").read_text(encoding="utf-8"))
    deposit = json.loads((published / ".zenodo.json").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(cff)  # what schema 1.2.0 requires
    assert (cff["type"], cff["license"], cff["version"]) == ("dataset", "CC-BY-4.0", "2026-01-02")
    assert (deposit["upload_type"], deposit["license"], deposit["title"]) == ("dataset", "cc-by-4.0", cff["title"])
    assert cff["identifiers"][0]["value"] in (published / "README.md").read_text(encoding="utf-8")
    assert "CC-BY-4.0" in (published / "LICENSE").read_text()


def refused(root, folder):
    with pytest.raises(RecordingError) as caught:
        publish.publish(root, folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_damaged_recording_is_not_published(published_root, tmp_path):
    path = recorded(published_root)[0]
    path.write_bytes(path.read_bytes()[:-100])
    assert refused(published_root, tmp_path / "out").startswith(f"{path}: not a readable Parquet file")
    assert not (tmp_path / "out").exists()


def test_imported_recording_is_neither_published_nor_described(published_root, tmp_path):
    before = collect(published_root)
    file = profiler_file(tmp_path, {})
    ((path, *_),) = import_file(file, target(published_root), Faults(file)).recordings
    assert refused(published_root, tmp_path / "out").startswith(f"{path}: is imported (cutlass_profiler), not measured")
    assert [one.path for one in collect(published_root).held] == [one.path for one in before.held]


def test_folder_that_holds_something_is_left_alone(shared_root, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    assert "is there and not an empty folder" in refused(shared_root, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]
    assert "is there and not an empty folder" in refused(shared_root, tmp_path / "out" / "mine")


@pytest.mark.parametrize("name", ["link", "nowhere", ".", ".."])
def test_name_that_no_folder_can_take_the_place_of_is_refused_at_once(shared_root, tmp_path, monkeypatch, name):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    (tmp_path / "nowhere").symlink_to("gone")
    monkeypatch.setattr(publish, "collect", None)
    folder = Path(name) if name.startswith(".") else tmp_path / name
    assert "is there and not an empty folder" in refused(shared_root, folder)


def test_half_of_it_is_never_left(shared_root, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(publish, "draw", lambda collection: [])
    monkeypatch.setattr(publish, "save", full)
    with pytest.raises(OSError, match="No space left"):
        publish.publish(shared_root, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def command(*arguments):
    return typer.main.get_command(cli_recordings.app)(list(map(str, arguments)), standalone_mode=False)


def test_verbs_write_where_they_are_told(shared_root, published, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(publish, "draw", lambda collection: [])
    monkeypatch.setattr(datasheet, "draw", lambda collection: [p for p in draw(collection) if p.name == "winners"])
    command("publish", tmp_path / "out", "--root", shared_root)
    count = len(recorded(shared_root))
    said = f"{tmp_path / 'out'}: {count} recordings and 5 other files; nothing was uploaded\n"
    assert capsys.readouterr().out == said
    odd = tmp_path / os.fsdecode(b"out\x1b\xff")
    command("publish", odd, "--root", shared_root)
    assert capsys.readouterr().out.startswith(f"{tmp_path}/out\\x1b\\udcff: {count} recordings")
    command("datasheet", tmp_path / "page.md", "--root", published)
    written = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert written == [tmp_path / "page.md", tmp_path / "page" / "winners.png"]
    assert written[1].is_file()
    assert "](page/winners.png)" in written[0].read_text(encoding="utf-8")


def test_list_keeps_working_without_a_verb_and_takes_no_options_before_one(shared_root, capsys):
    command("--json", "--root", shared_root)
    assert len(json.loads(capsys.readouterr().out)) == len(recorded(shared_root))
    with pytest.raises(SpecError, match="give options after `tilearena recordings publish`"):
        command("--root", shared_root, "publish", "x")


def test_citation_of_the_program_has_its_version(checkout):
    cff = yaml.safe_load((checkout / "CITATION.cff").read_text(encoding="utf-8"))
    assert (cff["version"], cff["license"], cff["type"]) == (__version__, "Apache-2.0", "software")


def test_empty_root_is_refused(tmp_path):
    (tmp_path / RECORDINGS).mkdir(parents=True)
    assert "nothing measured is recorded there" in refused(tmp_path, tmp_path / "out")
