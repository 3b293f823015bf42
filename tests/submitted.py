"""A written submission, and the sentence that refuses it."""

from pathlib import Path

import pytest

from tilearena.errors import SubmissionError
from tilearena.submission import read


@pytest.fixture
def written(arena):
    """A submission of two results: s8 of 40 problems and emulated s4 of 40."""
    return arena.submit("gbdt", 0.01, [arena.key("lowbit-random", "s8"), arena.key("lowbit-random", "s4")])


def refused(path: Path, match: str) -> None:
    with pytest.raises(SubmissionError, match=match) as caught:
        read(path)
    assert str(path.with_suffix("")) in str(caught.value)
    assert "\n" not in str(caught.value)
