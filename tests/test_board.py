"""The page in a real browser: a figure read off it is the one in the JSON."""

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from datetime import UTC, datetime

import numpy as np
import plotly.graph_objects as go
import pytest
from standin import DEVICE
from streamlit.testing.v1 import AppTest

from tilearena import dataset, submission
from tilearena.errors import TilearenaError
from tilearena.evaluate import Subject, evaluate
from tilearena.final import is_final
from tilearena.leaderboard import charts, serve

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
START_S = 60
PATIENCE_MS = 60_000


@pytest.fixture(scope="module")
def chromium():
    path = shutil.which("chromium")
    if path is None:
        if os.environ.get("TILEARENA_REQUIRE_BROWSER") == "1":
            pytest.fail("TILEARENA_REQUIRE_BROWSER=1, but no chromium on PATH")
        pytest.skip("no chromium on PATH (Debian: apt-get install chromium)")
    return path


@pytest.fixture
def board_url(arena):
    """Address of a page with s8 of three predictors beside cuBLASLt, emulated s4 of one, and one that is damaged."""
    s8, s4 = arena.key("lowbit-random", "s8"), arena.key("lowbit-random", "s4")
    arena.record("lowbit-random", "s8", arena.shapes(40, seed=0), vendor=0.9)
    arena.record("lowbit-random", "s8", arena.shapes(40, seed=0), seed=1, repeat=True, vendor=0.9)
    arena.submit("gbdt", 0.01, [s8, s4])
    arena.submit("constant", 0, [s8])
    arena.submit("broken", 0, [s8], reason="it raised <b>*loudly*</b>")
    bad = arena.root / "leaderboard/submissions/synthetic-device/lowbit-random/bad/1.json"
    bad.parent.mkdir()
    bad.write_text("{}")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = arena.root / "streamlit.log"
    with log.open("w") as out:
        server = subprocess.Popen(serve.command(arena.root, port=port, headless=True), stdout=out, stderr=out)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_for(f"{url}/_stcore/health", server, log)
        yield url
    finally:
        server.terminate()
        server.wait(20)


def _wait_for(url, server, log):
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"streamlit did not start: {log.read_text()}")


def _choose(page, label, option):
    page.locator("[data-testid=stSelectbox]", has_text=label).first.click()
    page.get_by_role("option", name=option).click()


@pytest.mark.browser
def test_board_shows_the_figures_of_the_json(chromium, board_url, arena):
    from playwright.sync_api import expect, sync_playwright

    path = arena.root / "leaderboard/submissions/synthetic-device/lowbit-random/gbdt/1.json"
    s8, s4 = (result["figures"] for result in json.loads(path.read_text())["results"])
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.goto(board_url)
        metric = page.get_by_test_id("stMetric")
        expect(metric.first).to_contain_text(f"{100 * s8['top2']:.1f} %", timeout=PATIENCE_MS)
        expect(metric.nth(2)).to_contain_text(f"{s8['speedup_geomean']:.3f}x")
        expect(metric.nth(3)).to_contain_text(f"{s8['speedup_vs_cublaslt_geomean']:.3f}x")
        rows = page.locator("table tbody tr")
        expect(rows).to_have_count(3)
        expect(rows.nth(0)).to_contain_text(f"[{100 * s8['top2_lo']:.1f}, {100 * s8['top2_hi']:.1f}]")
        expect(rows.nth(1)).to_contain_text("constant 1 (baseline)")
        expect(rows.nth(2)).to_contain_text("40 of 40")
        expect(page.get_by_text("broken 1 failed: it raised <b>*loudly*</b>")).to_be_visible()
        expect(page.get_by_text("1 submission(s) refused")).to_be_visible()
        expect(page.get_by_text("Synthetic device (formula, not measured)")).to_be_visible()
        expect(page.locator(".js-plotly-plot")).to_have_count(2, timeout=PATIENCE_MS)
        expect(page.get_by_text("picked by gbdt 1")).to_be_visible()
        assert page.get_by_text("emulated").count() == 0
        _choose(page, "dtype", "s4")
        expect(metric.first).to_contain_text(f"{100 * s4['top2']:.1f} %", timeout=PATIENCE_MS)
        expect(page.get_by_text("is emulated on this device")).to_be_visible()
        expect(page.get_by_test_id("stException")).to_have_count(0)
        browser.close()


def _page(root, submissions=None):
    paths = f"Path({str(root)!r}), Path({str(submissions or root)!r})"
    script = f"from pathlib import Path\nfrom tilearena.leaderboard.app import main\nmain({paths})"
    page = AppTest.from_string(script, default_timeout=60).run()
    assert not page.exception
    return page


def test_board_without_submissions_says_how_to_write_some(tmp_path):
    (info,) = _page(tmp_path).info
    assert str(tmp_path / "leaderboard" / "submissions") in info.value
    assert "tilearena submit" in info.value


def test_board_without_the_recording_shows_no_figure_and_says_why(arena):
    arena.submit("gbdt", 0.01, [arena.key("lowbit-random", "s8")])
    next(arena.root.glob("baselines/**/lowbit-random/gemm.paper9.s8.cold.parquet")).unlink()
    page = _page(arena.root)
    assert len(page.table) == 0
    assert any("cannot be recomputed" in text.value and "no such recording" in text.value for text in page.text)


def test_board_shows_submissions_of_another_root(arena, tmp_path_factory):
    key = arena.key("lowbit-random", "s8")
    elsewhere = tmp_path_factory.mktemp("results")
    submission.write(elsewhere, [arena.scored(key, 0.01)], submitter="synthetic", created_at=datetime.now(UTC))
    page = _page(arena.root, elsewhere)
    assert list(page.table[0].value["predictor"]) == ["gbdt 1"]
    assert not page.error
    assert len(page.get("plotly_chart")) == 2


def test_board_shows_the_vendor_where_it_was_recorded(arena):
    path = arena.record("lowbit-random", "s8", arena.shapes(40, seed=0), vendor=0.9)
    arena.record("lowbit-random", "s8", arena.shapes(40, seed=0), seed=1, repeat=True, vendor=0.9)
    arena.submit("gbdt", 0.05, [arena.key("lowbit-random", "s8"), arena.key("lowbit-random", "s4")])
    arena.submit("oracle", 0, [arena.key("lowbit-random", "s8")])
    page = _page(arena.root)
    oracle, gbdt = (float(cell[:-1]) for cell in page.table[0].value["speedup_vs_cublaslt_geomean"])
    assert 0.5 < gbdt < oracle
    ran = np.isfinite(dataset.read(path).column_ns(9)).sum()
    said = f"ran on {ran} of 40 problems; the best templates are {oracle:.3f}x as fast there."
    assert any(said in text.value for text in page.caption)
    page.selectbox("dtype").select("s4").run()
    assert list(page.table[0].value["speedup_vs_cublaslt_geomean"]) == ["n/a"]
    assert not any("cuBLASLt" in text.value for text in page.caption)


def test_board_draws_the_problems_that_the_split_tests_and_no_other(arena, monkeypatch):
    """Those of lowbit-full that are locked are in no chart of the split random, and no other one is of final."""
    path = arena.record("lowbit-full", "s8", np.unique(arena.shapes(80, seed=3), axis=0))
    subjects = [Subject("lowbit-full", "paper9", "s8", "cold", DEVICE.slug, split) for split in ("random", "final")]
    scored = [one for subject in subjects for one in evaluate(arena.root, subject, ["nearest"])]
    submission.write(arena.root, scored, submitter="synthetic", created_at=datetime.now(UTC))
    problems = dataset.read(path).table.problems
    locked = is_final(problems)
    drawn, bands = [], []
    monkeypatch.setattr(charts, "regret_ecdf", lambda regrets, style: drawn.append(regrets) or go.Figure())
    monkeypatch.setattr(charts, "template_map", lambda chosen, *_: bands.append(chosen) or go.Figure())
    page = _page(arena.root)
    page.selectbox("split").select("final").run()
    for regrets, chosen, one, tested in zip(drawn, bands, scored, (~locked, locked), strict=True):
        assert len(regrets["nearest 1"]) == tested.sum()
        assert np.mean(regrets["nearest 1"]) == pytest.approx(one.score.figures["regret_mean"].value, rel=1e-12)
        assert len(chosen.problems) > 0
        assert set(map(tuple, chosen.problems.tolist())) <= set(map(tuple, problems[tested].tolist()))
        assert "none" not in chosen.pick


def test_board_recomputes_figures_when_a_recording_changes(arena):
    arena.submit("gbdt", 0.01, [arena.key("lowbit-random", "s8")])
    arena.submit("constant", 0, [arena.key("networks", "s8")])
    assert _page(arena.root).selectbox("spec").options == ["lowbit-random", "networks"]
    arena.record("lowbit-random", "s8", arena.shapes(40, seed=0), seed=9)
    page = _page(arena.root)
    assert list(page.table[0].value["predictor"]) == ["constant 1 (baseline)"]
    assert any("gbdt/1.json: s8/cold/random: fingerprints.test is claimed as" in text.value for text in page.text)


def test_board_says_that_no_row_is_verified(arena):
    arena.submit("gbdt", 0.01, [arena.key("lowbit-random", "s8")])
    assert any("the picks were not refitted, so no row is verified" in text.value for text in _page(arena.root).caption)


def test_serve_stays_on_this_machine_and_sends_nothing(tmp_path):
    command = serve.command(tmp_path, port=1234)
    options = dict(zip(command[5:-3:2], command[6:-3:2], strict=True))
    assert options["--server.address"] == "127.0.0.1"
    assert options["--server.port"] == "1234"
    assert options["--browser.gatherUsageStats"] == "false"
    assert options["--server.showEmailPrompt"] == "false"  # it would wait for an answer on a first run
    assert command[-3:] == ["--", str(tmp_path), str(tmp_path)]
    assert serve.command(tmp_path, tmp_path / "results")[-2:] == [str(tmp_path), str(tmp_path / "results")]
    assert serve.PAGE.is_file()


def test_serve_without_streamlit_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setattr(serve, "find_spec", lambda name: None)
    with pytest.raises(TilearenaError, match=r"pip install 'tilearena\[leaderboard\]'"):
        serve.command(tmp_path)
