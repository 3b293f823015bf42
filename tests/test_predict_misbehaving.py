"""The runner keeps every misbehaving plugin in its own process; fake plugins are put on the import path for that."""

import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from faking import FOLDS, PLUGIN, TABLE, assert_failed, run

from tilearena.predict import MAX_ANSWER_BYTES, MEMORY_LIMIT_BYTES, UNKNOWN_VERSION, cross_fit

ODD = """class Odd({base}):
    def __repr__(self):
        raise SystemExit("x")
"""


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            "raise ValueError('no\\n  good')",
            "predictor 'fake' raised ValueError in costs (fake_plugin.py, line 13): no good",
        ),
        ("sys.exit(0)", "predictor 'fake' raised SystemExit in costs (fake_plugin.py, line 13): 0"),
        ("return np.zeros((P, T - 1))", "predictor 'fake' answered costs of shape (12, 8), expected (12, 9)"),
        ("return np.zeros((T, P))", "predictor 'fake' answered costs of shape (9, 12), expected (12, 9)"),
        ("return np.full((P, T), 'a')", "predictor 'fake' answered costs of type <U1, expected float64"),
        ("return np.zeros((P, T), complex)", "predictor 'fake' answered costs of type complex128, expected float64"),
        ("return None", "predictor 'fake' answered costs of shape (), expected (12, 9)"),
        ("return [[1], [2, 3]]", "predictor 'fake' answered list, not an array of costs"),
        ("os._exit(3)", "predictor 'fake' ended its process without an answer (exit code 3)"),
        ("os._exit(0)", "predictor 'fake' ended its process without an answer (exit code 0)"),
        ("import ctypes; ctypes.string_at(0)", "predictor 'fake' was killed by SIGSEGV"),
        ("os.kill(os.getpid(), 9)", "predictor 'fake' was killed by SIGKILL"),
        ("os.kill(os.getpid(), 40)", "predictor 'fake' was killed by signal 40"),  # it has no name
        (
            "problems[0, 0] = 1",
            "predictor 'fake' raised ValueError in costs (fake_plugin.py, line 13): "
            "assignment destination is read-only",
        ),
    ],
)
def test_misbehaving_plugin_becomes_a_failed_prediction(install_fake, body, reason):
    install_fake(PLUGIN.format(body=body))
    prediction = run()
    assert_failed(prediction, reason)
    assert prediction.version == "7"


@pytest.fixture
def heard():
    """Where a plugin and what it starts can speak to, which needs no file; and all that is said until it ends."""
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(30)

    def _heard():
        connection, _ = server.accept()
        with connection:
            connection.settimeout(30)  # it is closed when whoever spoke has ended
            return b"".join(iter(lambda: connection.recv(99), b""))

    with server:
        yield f"__import__('socket').create_connection({server.getsockname()!r})", _heard


def test_time_limit_stops_the_plugin_and_what_it_started(install_fake, heard):
    speaker, all_said = heard
    speaks = f"import time; s = {speaker}; s.send(b'begun'); time.sleep(30); s.send(b' alive')"
    body = f"""
        import subprocess
        subprocess.Popen([sys.executable, "-c", {speaks!r}])
        time.sleep(1000)"""
    install_fake(PLUGIN.format(body=body))
    start = time.monotonic()
    assert_failed(run(time_limit_s=3), "predictor 'fake' took longer than 3 s and was stopped")
    assert all_said() == b"begun"
    assert time.monotonic() - start < 20


@pytest.mark.skipif(sys.platform != "linux", reason="there is no seccomp")
@pytest.mark.parametrize("how", ["start_new_session=True", "process_group=0", "preexec_fn=os.setsid"])
@pytest.mark.parametrize("end", ["return np.zeros((P, T))", "os._exit(0)", "os.kill(os.getppid(), 9); time.sleep(60)"])
def test_what_the_plugin_started_in_a_session_of_its_own_ends_with_it(install_fake, heard, how, end):
    """However the plugin ends, or the process that waits for it."""
    speaker, all_said = heard
    speaks = f"import time; s = {speaker}; s.send(b'begun'); print(flush=True); time.sleep(60); s.send(b' alive')"
    body = f"""
        import subprocess
        child = subprocess.Popen([sys.executable, "-c", {speaks!r}], stdout=subprocess.PIPE, {how})
        child.stdout.readline()
        {end}"""
    install_fake(PLUGIN.format(body=body))
    subprocess.run([sys.executable, "-c", "from faking import run; run()"], cwd=Path(__file__).parent, check=False)
    start = time.monotonic()
    assert all_said() == b"begun"
    assert time.monotonic() - start < 10


def test_memory_limit_stops_the_plugin_with_a_sentence(install_fake):
    install_fake(PLUGIN.format(body="return np.ones((P, 1 << 20, T)).sum(axis=1)"))  # 12 x 8 MiB x 9
    prediction = cross_fit("fake", FOLDS, TABLE, memory_limit_bytes=1 << 29)
    assert prediction.reason.startswith(
        "predictor 'fake' needed more memory than its limit of 0.5 GiB: MemoryError in "
    )
    assert prediction.reason.endswith(
        "Unable to allocate 864. MiB for an array with shape (12, 1048576, 9) and data type float64"
    )
    assert_failed(prediction, prediction.reason)
    assert cross_fit("fake", FOLDS, TABLE, memory_limit_bytes=1 << 31).reason == ""


def test_abort_names_the_memory_limit_as_a_possible_reason(install_fake):
    install_fake(PLUGIN.format(body="os.abort()"))
    assert_failed(
        run(), "predictor 'fake' was killed by SIGABRT; perhaps it needed more memory than its limit of 4 GiB"
    )


@pytest.mark.parametrize("name", ["gbdt", "mlp"])
def test_own_predictors_need_an_eighth_of_the_default_memory_limit(name):
    prediction = cross_fit(name, FOLDS[:1], TABLE, memory_limit_bytes=MEMORY_LIMIT_BYTES // 8)
    assert prediction.status == "ok", prediction.reason


def test_time_limit_is_for_all_folds_together(install_fake):
    source = PLUGIN.format(body="return np.zeros((P, T))").replace("self.train = train", "time.sleep(1)")
    install_fake(source)
    assert_failed(run(time_limit_s=4), "predictor 'fake' took longer than 4 s and was stopped")


def test_plugin_that_ignores_signals_and_leaves_threads_behind_is_stopped(install_fake):
    body = """
        import signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        threading.Thread(target=time.sleep, args=(1000,)).start()
        return np.zeros((P, T))"""
    install_fake(PLUGIN.format(body=body))
    assert run().status == "ok"


def test_prints_of_a_plugin_do_not_disturb_the_answer(install_fake):
    body = """
        for stream in (1, 2):
            for _ in range(20): os.write(stream, b"{\\x00}" * (1 << 20))
        print('{"status": "ok"}', flush=True)
        return np.zeros((P, T))"""
    install_fake(PLUGIN.format(body=body))
    assert (run().picks == np.arange(8)).all()


@pytest.mark.parametrize("file", ["answer.json", "costs.npz"])
def test_damaged_answer_is_a_failure(install_fake, file):
    # only a hostile plugin can do this: it replaces what the child writes after it
    body = f"""
        import pathlib, tilearena.predict_child as child
        def leave(code):
            pathlib.Path({file!r}).write_bytes(b"PK garbage")
            child_exit(code)
        child_exit, os._exit = os._exit, leave
        return np.zeros((P, T))"""
    install_fake(PLUGIN.format(body=body))
    prediction = run()
    assert prediction.status == "failed"
    assert prediction.reason.startswith("predictor 'fake' left an unreadable answer")
    assert "\n" not in prediction.reason
    assert (prediction.picks == -1).all()


def test_one_failing_fold_fails_the_whole_prediction(install_fake):
    source = PLUGIN.format(body="return np.zeros((P, T))").replace(
        "self.train = train", f"assert train.problems[0].tolist() != {FOLDS[3].train.problems[0].tolist()}"
    )
    install_fake(source)
    prediction = run()
    assert prediction.status == "failed"
    assert (prediction.picks == -1).all()


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (
            "import no_such_module_here",
            "predictor 'fake' cannot be imported: No module named 'no_such_module_here'; install the extra it needs",
        ),
        ("class Plugin: name = 'fake'", "predictor 'fake' lacks name, version, fit or costs"),
        (
            PLUGIN.format(body="").replace('"fake"', '"other"'),
            "predictor 'fake' calls itself 'other'; entry point and name must agree",
        ),
        (
            PLUGIN.format(body="").replace('"7"', "7"),
            "predictor 'fake' has version 7; it must be a string of 1 to 64 letters, digits, '.', '_' and '-'",
        ),
        (
            PLUGIN.format(body="").replace('"7"', '"../7"'),
            "predictor 'fake' has version '../7'; it must be a string of 1 to 64 letters, digits, '.', '_' and '-'",
        ),
        ("import sys\nsys.exit(3)", "predictor 'fake' cannot be created: SystemExit: 3"),
        (
            PLUGIN.format(body="").replace('"7"', "property(lambda self: 1 / 0)"),
            "predictor 'fake' cannot be created: ZeroDivisionError: division by zero",
        ),
        ("raise GeneratorExit('g')", "predictor 'fake' cannot be created: GeneratorExit: g"),
        (
            "raise type('Odd', (Exception,), {'__str__': lambda self: 1 / 0})",
            "predictor 'fake' cannot be created: Odd: its message cannot be shown",
        ),
        (
            ODD.format(base="object") + PLUGIN.format(body="") + "    name = Odd()",
            "predictor 'fake' calls itself an object of Odd; entry point and name must agree",
        ),
        (
            ODD.format(base="str") + PLUGIN.format(body="") + "    version = Odd()",
            "predictor 'fake' has version an object of Odd; it must be a string of 1 to 64 letters, digits, '.', '_' "
            "and '-'",
        ),
    ],
)
def test_plugin_that_cannot_be_loaded_is_a_failed_prediction(install_fake, source, reason):
    install_fake(source)
    prediction = run()
    assert_failed(prediction, reason)
    assert prediction.version == UNKNOWN_VERSION


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise ValueError('red \\x1b[31m\\n\\u202e\\udcff')", r"red \x1b[31m \u202e\udcff"),
        ("raise type('Odd', (Exception,), {'__str__': lambda self: 1 / 0})", "its message cannot be shown"),
    ],
)
def test_message_of_a_plugin_is_one_printable_line(install_fake, body, message):
    install_fake(PLUGIN.format(body=body))
    assert run().reason.endswith(f": {message}")


@pytest.mark.parametrize(
    "body",
    [
        "os.unlink('version.json'); os.mkfifo('version.json'); return np.zeros((P, T))",
        "open('version.json', 'w').write('\"../7\"'); return np.zeros((P, T))",
    ],
    ids=["pipe", "path"],
)
def test_version_that_the_plugin_forged_is_unknown(install_fake, body):
    install_fake(PLUGIN.format(body=body))
    prediction = run()
    assert (prediction.status, prediction.version) == ("ok", UNKNOWN_VERSION)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("truncate(1 << 29)", f"answer.json is no file of at most {MAX_ANSWER_BYTES} bytes"),
        ('write(\'{"status": "ok"}\')', f"costs.npz is no file of at most {MAX_ANSWER_BYTES} bytes"),
        ('write(\'{"status": "ok", "predict_us": -1}\')', "1 validation error for Answer"),
    ],
    ids=["huge", "pipe", "negative time"],
)
def test_answer_that_the_plugin_forged_is_a_failure(install_fake, answer, why):
    install_fake(PLUGIN.format(body=f"os.mkfifo('costs.npz'); open('answer.json', 'w').{answer}; os._exit(0)"))
    assert_failed(run(), f"predictor 'fake' left an unreadable answer ({why})")
