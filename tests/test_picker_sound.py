"""A model's file that is damaged or hostile: every pick is refused in one sentence, at once, and so is the header."""

import json

import pytest

from tilearena.errors import SpecError
from tilearena.picker import choose, model
from tilearena.picker.choose import Shipped

NAMES = Shipped("nvidia-h200", "h200-all", "s8", "cold")
LAYOUT = [64, 64, 1, 1, 1]


@pytest.fixture
def damaged(tmp_path, monkeypatch):
    """Puts a text, or the shipped model with some parts replaced, in its place; returns the path."""
    whole = json.loads(NAMES.path.read_text())
    monkeypatch.setattr(choose, "MODELS", tmp_path)
    choose._model.cache_clear()

    def _damaged(text=None, **parts):
        of_whole = {key: part(whole[key]) if callable(part) else part for key, part in parts.items()}
        NAMES.path.write_text(json.dumps(whole | of_whole) if text is None else text)
        return NAMES.path

    yield _damaged
    choose._model.cache_clear()


def refusal(path):
    with pytest.raises(SpecError) as caught:
        choose.pick(1, 8, 16, "s8", space="h200-all")
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    with pytest.raises(SpecError):  # what `export` calls
        choose.load("s8", "nvidia-h200", "h200-all")
    return message.removeprefix(f"{path}: ")


def at(place, value):
    return lambda part: [*part[:place], value, *part[place + 1 :]]


def in_first(**values):
    return lambda templates: [templates[0] | values, *templates[1:]]


def each(term):
    return lambda terms: [term] * len(terms)


def test_whole_model_is_taken(damaged):
    damaged()
    assert choose.pick(1, 8, 16, "s8", space="h200-all").dtype == "s8"


@pytest.mark.parametrize("text", ["", "[" * 100_000, '{"a":' * 100_000, "null", '{"schema_version": 1}'])
def test_text_that_is_no_model_is_refused(damaged, text):
    assert "no picker's model" in refusal(damaged(text))


@pytest.mark.parametrize(
    ("part", "says"),
    [
        ({"next": at(0, 0)}, "tree"),  # a loop
        ({"next": at(0, 1)}, "tree"),  # both answers lead to one node
        ({"next": at(0, 10**6)}, "tree"),
        ({"next": at(0, -5)}, "tree"),
        ({"next": at(0, 2.0)}, "tree"),
        ({"next": lambda part: [*part[:-1], 10**6]}, "tree"),  # of a leaf: a list
        ({"term": lambda part: [*part[:-1], 0]}, "tree"),  # the last node is no leaf
        ({"term": at(0, -2)}, "tree"),
        ({"term": at(0, True)}, "tree"),
        ({"term": [], "threshold": [], "next": []}, "tree"),
        ({"threshold": at(0, 1 << 63)}, "tree"),
        ({"threshold": at(0, None)}, "tree"),
        ({"threshold": lambda part: part[1:]}, "tree"),
        ({"sm_count": 0}, "sm_count"),
        ({"sm_count": -132}, "sm_count"),
        ({"lists": at(0, [])}, "list of lists"),
        ({"lists": at(0, [-1])}, "list of lists"),
        ({"lists": at(0, [10**6])}, "list of lists"),
        ({"lists": at(0, "ab")}, "list of lists"),
        ({"terms": each(["__import__('os').abort()"])}, "list of terms"),
        ({"terms": each(["mn", 64, 64])}, "list of terms"),
        ({"terms": each(["tiles", 64])}, "list of terms"),
        ({"terms": each(["tiles", 0, 64])}, "list of terms"),
        ({"terms": each(["tiles", -64, 64])}, "list of terms"),
        ({"terms": each(["full", *LAYOUT, 0])}, "list of terms"),
        ({"terms": each(["full", *LAYOUT, 10**12])}, "list of terms"),
        ({"terms": each(["busy", *LAYOUT, 1, 1, 1, 1, 2])}, "list of terms"),  # half an element: divides by zero
        ({"templates": []}, "list of templates"),
        ({"templates": in_first(label='"};')}, "list of templates"),
        ({"templates": in_first(threadblock=[0, 0, 0])}, "list of templates"),
        ({"templates": in_first(dtype="s4")}, "list of templates"),
        ({"about": lambda about: about | {"product": "x\n#error"}}, "about"),
        ({"about": lambda about: about | {"product": "x\\"}}, "about"),
        ({"about": lambda about: about | {"space": "paper9"}}, "about"),
    ],
)
def test_damaged_part_is_named(damaged, part, says):
    assert refusal(damaged(**part)) == f"no picker's model (its {says} is wrong); install tilearena again"


@pytest.mark.parametrize(
    "part",
    [
        {"sm_count": float("inf")},
        {"terms": each([["mn"]])},
        {"templates": ["x"]},
        {"templates": in_first(dtype="f16")},
        {"about": {}},
        {"about": "x"},
        {"about": lambda about: about | {"trained_on": 5}},
        {"about": lambda about: about | {"product": 5}},
        {"schema_version": 2},
    ],
)
def test_part_that_cannot_be_looked_at_is_refused(damaged, part):
    refusal(damaged(**part))


def test_other_files_beside_the_models_are_none(damaged):
    damaged()
    for name in ("notes.json", ".a.json", "a.b.json"):
        (choose.MODELS / name).write_text("{}")
    assert list(choose.shipped()) == [NAMES]


def test_package_without_models_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(choose, "MODELS", tmp_path)
    with pytest.raises(SpecError, match="no picker is there; install tilearena again"):
        choose.load("s8")


def test_shipped_models_are_sound():
    for names in choose.shipped():
        assert isinstance(choose.load(names.dtype, names.device, names.space, names.protocol), model.Model)
