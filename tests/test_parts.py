"""Parts of a recording: each appears whole or not at all, and comes back as it was."""

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from standin import StandInRunner

from tilearena import dataset
from tilearena.errors import MeasureError
from tilearena.measure import Session
from tilearena.parts import Parts
from tilearena.provenance import Anchors, Batch
from tilearena.race import measure_problem
from tilearena.spec import load_space, load_workload


@pytest.fixture(scope="module")
def session():
    workload = load_workload("quick")
    return Session(workload, load_space("paper9"), workload.problems_for("s8")[:6], workload.protocol("hot", "s8"))


@pytest.fixture(scope="module")
def header(session):
    from inprocess import InProcessHand

    return session.header([InProcessHand(StandInRunner())])


@pytest.fixture(scope="module")
def tables(session):
    """Rows of each problem."""
    runner = StandInRunner(faults=[("wrong", (1, 4096, 4096), 3)])
    return [
        dataset.rows_from(measure_problem(runner, problem, session.protocol, range(10))) for problem in session.problems
    ]


def batch(session="a", card="one"):
    return Batch(session=session, card=card, host="h", n_problems=1, started_at_s=2.0, seconds=1.0, spread=0.01)


def shapes(session):
    return [(p.m, p.n, p.k) for p in session.problems]


def test_parts_come_back_in_the_order_of_their_numbers(tmp_path, session, header, tables):
    with Parts(tmp_path / "r.parquet", header) as parts:
        parts.write(1, tables[1], batch("b"))
        parts.write(0, tables[0], batch("a"))
        assert parts.done() == set(shapes(session)[:2])
        parts.write_anchors([Anchors(session="a", card="one", start_ns=(1, 2))])
        found = parts.collect()
    assert found.rows.to_pylist() == tables[0].to_pylist() + tables[1].to_pylist()
    assert found.rows.schema.equals(dataset.COLUMNS)
    assert found.rows["status"].num_chunks == 1
    assert [b.session for b in found.batches] == ["a", "b"]
    assert found.anchors == (Anchors(session="a", card="one", start_ns=(1, 2)),)


def test_part_that_is_written_again_is_there_once(tmp_path, header, tables):
    with Parts(tmp_path / "r.parquet", header) as parts:
        for _ in range(2):
            parts.write(0, tables[0], batch())
            parts.write_anchors([Anchors(session="a", card="one")])
        found = parts.collect()
    assert (len(found.rows), len(found.batches), len(found.anchors)) == (10, 1, 1)


def test_next_run_adds_to_the_parts_and_anchors_of_the_one_before(tmp_path, session, header, tables):
    for run in range(3):
        with Parts(tmp_path / "r.parquet", header) as parts:
            parts.write(0, tables[2 * run], batch(str(run)))
            parts.write(1, tables[2 * run + 1], batch(str(run)))
            parts.write_anchors([Anchors(session=str(run), card=card) for card in ("x", "y")])
            found = parts.collect()
    assert [b.session for b in found.batches] == ["0", "0", "1", "1", "2", "2"]
    assert [(a.session, a.card) for a in found.anchors] == [(s, c) for s in "012" for c in "xy"]
    assert parts.done() == set(shapes(session))


def test_parts_keep_the_header_of_the_run_that_began(tmp_path, header):
    later = header.model_copy(update={"started_at": "2030-01-01T00:00:00+00:00"})
    with Parts(tmp_path / "r.parquet", header) as parts:
        assert parts.header() == header
    with Parts(tmp_path / "r.parquet", later) as parts:
        assert parts.header() == header
        parts.discard()
        assert parts.header() == later


def test_discarded_parts_are_gone_and_numbers_start_again(tmp_path, header, tables):
    with Parts(tmp_path / "r.parquet", header) as parts:
        parts.write(0, tables[0], batch())
        parts.write_anchors([Anchors(session="a", card="one")])
    with Parts(tmp_path / "r.parquet", header) as parts:
        parts.discard()
        assert parts.done() == set()
        parts.write(0, tables[1], batch())
        assert [p.name for p in parts.folder.glob("*.parquet")] == ["00000.parquet"]
        assert parts.collect().anchors == ()


def test_header_of_parts_is_the_last_to_go(tmp_path, header, tables, monkeypatch):
    gone, unlink = [], Path.unlink

    def noting(path, missing_ok=False):
        gone.append(path.name)
        unlink(path, missing_ok=missing_ok)

    with Parts(tmp_path / "r.parquet", header) as parts:
        parts.header()
        parts.write(0, tables[0], batch())
        parts.write_anchors([Anchors(session="a", card="one")])
        monkeypatch.setattr(Path, "unlink", noting)
        parts.remove()
    assert gone[:3] == ["00000.parquet", "00000.anchors", "header.json"]
    assert not parts.folder.exists()


@pytest.mark.parametrize(
    "change",
    [
        {"spec_fingerprint": "0" * 16},
        {"space_fingerprint": "0" * 16},
        {"versions": {"nvcc": "1"}},
        {"candidates": ()},
    ],
)
def test_parts_of_something_else_lie_in_another_folder(tmp_path, header, change):
    path = tmp_path / "r.parquet"
    assert Parts(path, header.model_copy(update=change)).folder != Parts(path, header).folder


def test_parts_of_another_protocol_driver_or_card_lie_in_another_folder(tmp_path, header):
    path = tmp_path / "r.parquet"
    others = [
        header.model_copy(update={"protocol": header.protocol.model_copy(update={"rounds": 9})}),
        *(
            header.model_copy(update={"device": header.device.model_copy(update=change)})
            for change in ({"driver": "1"}, {"uuid_sha256": "another"})
        ),
    ]
    folders = {Parts(path, h).folder for h in (header, *others)} | {Parts(path, header, pool=True).folder}
    assert len(folders) == 5


def test_parts_of_a_pool_do_not_depend_on_its_cards(tmp_path, header):
    path = tmp_path / "r.parquet"
    folders = {
        Parts(
            path,
            header.model_copy(update={"device": header.device.model_copy(update={"uuid_sha256": card})}),
            pool=True,
        ).folder
        for card in ("one", "another", None)
    }
    assert len(folders) == 1


def test_damaged_part_is_named(tmp_path, header, tables):
    with Parts(tmp_path / "r.parquet", header) as parts:
        parts.write(0, tables[0], batch())
        part = parts.folder / "00000.parquet"
        table = pq.read_table(part)
        for note in (None, {b"batch": b"{}"}, {b"other": b""}):
            pq.write_table(table.replace_schema_metadata(note), part)
            with pytest.raises(
                MeasureError,
                match=r"00000.parquet is damaged or of another run; delete it to measure its problems again",
            ):
                parts.done()
        parts.write(0, tables[0], batch())
        parts.write_anchors([Anchors(session="a", card="one")])
        (parts.folder / "00000.anchors").write_text("{")
        with pytest.raises(MeasureError, match=r"00000.anchors is damaged; delete it"):
            parts.collect()


def test_part_that_is_there_twice_or_of_another_run_is_named(tmp_path, header, tables):
    other = header.model_copy(update={"versions": {"nvcc": "1"}})
    with Parts(tmp_path / "r.parquet", header) as parts, Parts(tmp_path / "r.parquet", other) as others:
        parts.write(0, tables[0], batch())
        parts.write(1, tables[1], batch())
        others.write(2, tables[2], batch())
        shutil.copy(parts.folder / "00000.parquet", parts.folder / "00007.parquet")
        with pytest.raises(
            MeasureError, match=r"00007.parquet holds problems that a part before it holds, too; delete"
        ):
            parts.done()
        shutil.move(others.folder / "00002.parquet", parts.folder / "00007.parquet")
        with pytest.raises(MeasureError, match=r"00007.parquet is damaged or of another run; delete it"):
            parts.done()
        (parts.folder / "00007.parquet").unlink()
        assert len(parts.done()) == 2


def test_header_of_another_run_is_named(tmp_path, header):
    other = header.model_copy(update={"versions": {"nvcc": "1"}})
    with Parts(tmp_path / "r.parquet", header) as parts, Parts(tmp_path / "r.parquet", other) as others:
        others.header()
        shutil.copy(others.folder / "header.json", parts.folder)
        with pytest.raises(MeasureError, match=r"header.json is damaged or of another run; delete .* the beginning$"):
            parts.header()


def test_files_of_others_among_the_parts_are_left_alone(tmp_path, header, tables):
    with Parts(tmp_path / "r.parquet", header) as parts:
        parts.write(0, tables[0], batch())
        for name in ("notes.parquet", "00000 (copy).parquet", "notes.anchors"):
            (parts.folder / name).write_text("x")
    with Parts(tmp_path / "r.parquet", header) as parts:
        parts.write(0, tables[1], batch())
        assert len(parts.done()) == 2
        assert parts.collect().rows.equals(pa.concat_tables(tables[:2]).unify_dictionaries().combine_chunks())
