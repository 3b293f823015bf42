"""The lock of a card: the same file for all users and jobs of a host."""

import os
import pwd
import subprocess
import sys

import pytest
from standin import DEVICE

from tilearena import card_lock
from tilearena.errors import MeasureError

CARD = DEVICE.model_copy(update={"uuid_sha256": "c0ffee"})


def test_locks_lie_in_one_folder_whatever_tmpdir_says(tmp_path):
    code = "from tilearena import card_lock; print(card_lock.FOLDER)"
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "/tmp\n"


def test_lock_is_held_until_it_is_released(tmp_path):
    class WaitedError(Exception):
        pass

    def waiting(text):
        assert text == f"another process measures on this {DEVICE.product}: waiting for it to end"
        raise WaitedError

    lock = card_lock.take(CARD, waiting, tmp_path)
    with pytest.raises(WaitedError):
        card_lock.take(CARD, waiting, tmp_path)
    another = card_lock.take(DEVICE, waiting, tmp_path)
    lock.release()
    card_lock.take(CARD, waiting, tmp_path).release()
    another.release()


@pytest.mark.parametrize(
    ("theirs", "advice"),
    [
        (False, "remove it if nothing measures"),
        (True, "it belongs to {owner}, who (or root) can remove it once nobody measures"),
    ],
)
def test_lock_that_cannot_be_opened_says_whose_it_is_and_what_to_do(tmp_path, monkeypatch, theirs, advice):
    path, owner = tmp_path / "tilearena-gpu-c0ffee.lock", os.getuid()
    path.mkdir()
    monkeypatch.setattr(os, "getuid", lambda: owner + theirs)
    with pytest.raises(MeasureError) as caught:
        card_lock.take(CARD, print, tmp_path)
    assert str(caught.value) == (
        f"{path}: cannot be locked (Is a directory); {advice.format(owner=pwd.getpwuid(owner).pw_name)}"
    )


def test_owner_without_a_name_is_a_number(tmp_path, monkeypatch):
    path, owner = tmp_path / "tilearena-gpu-c0ffee.lock", os.getuid()
    path.mkdir()
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)

    def nameless(uid):
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", nameless)
    with pytest.raises(MeasureError, match=rf"; it belongs to user {owner}, who \(or root\) can remove it once nobody"):
        card_lock.take(CARD, print, tmp_path)
