"""A CSV of another tool is read line by line, and what cannot be read is named with its line."""

import re

import pytest

from tilearena.errors import RecordingError
from tilearena.exchange.foreign_csv import (
    MAX_BYTES,
    MAX_LINE_BYTES,
    SHOWN,
    Faults,
    MalformedRowError,
    opened,
    whole_number,
)


def read(tmp_path, data):
    path = tmp_path / "a.csv"
    path.write_bytes(data)
    faults = Faults(path)
    with opened(path) as table:
        rows = list(table.rows(faults))
    return rows, [sentence.removeprefix(f"{path} ") for sentence in faults.sentences]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_rows_have_their_line_and_their_cells_by_column(tmp_path, end, mark):
    rows, faults = read(tmp_path, mark + end.join([b"a,b", b"1,2", b"", b'"3,x", 4 ']))
    assert rows == [(2, {"a": "1", "b": "2"}), (4, {"a": "3,x", "b": "4"})]
    assert faults == []


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"1,2,3", "has 3 cells, the header 2"),
        (b"1", "has 1 cells, the header 2"),
        (b"1,\0", "holds a NUL byte"),
        (b"1,\xff", "is not UTF-8"),
        (b'1,"2', "is not CSV (unexpected end of data)"),
        (b"1," + b"2" * MAX_LINE_BYTES, f"is longer than {MAX_LINE_BYTES} bytes"),
        (b"2" * (4 * MAX_LINE_BYTES), f"is longer than {MAX_LINE_BYTES} bytes"),
    ],
)
def test_line_that_is_no_row_is_left_out_with_its_reason(tmp_path, line, reason):
    rows, faults = read(tmp_path, b"a,b\n" + line + b"\n5,6\n")
    assert rows == [(3, {"a": "5", "b": "6"})]
    assert faults == [f"line 2: {reason}"]


def test_line_of_the_greatest_length_is_read(tmp_path):
    longest = b"1," + b"2" * (MAX_LINE_BYTES - 3) + b"\n"
    rows, faults = read(tmp_path, b"a,b\n" + longest)
    assert (len(rows[0][1]["b"]), faults) == (MAX_LINE_BYTES - 3, [])


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b"a,\xff\n", "line 1 is not UTF-8; it must be the header"),
        ("a,b\n".encode("utf-16"), "line 1 is not UTF-8; it must be the header"),
        (b"\0\n", "line 1 holds a NUL byte"),
        (b"x" * (MAX_LINE_BYTES + 1), "line 1 is longer than"),
    ],
)
def test_file_without_a_header_is_refused(tmp_path, data, words):
    with pytest.raises(RecordingError, match=re.escape(words)):
        read(tmp_path, data)


def test_what_is_no_file_and_what_is_too_large_are_refused(tmp_path):
    with pytest.raises(RecordingError, match="no such file"), opened(tmp_path):
        pass
    with (tmp_path / "large.csv").open("wb") as file:
        file.truncate(MAX_BYTES + 1)  # it takes no room on disk
    with pytest.raises(RecordingError, match="is larger than 256 MiB"), opened(tmp_path / "large.csv"):
        pass


def test_required_columns_are_there_once(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,b,b,c,c\n")
    with opened(path) as table:
        table.require(["a"])
        with pytest.raises(RecordingError, match=r"line 1 lacks the column d, e; correct the header"):
            table.require(["a", "d", "e"])
        with pytest.raises(RecordingError, match=r"line 1 has twice the column b; correct the header"):
            table.require(["a", "b"])


def test_first_faults_are_kept_and_all_are_counted(tmp_path):
    faults = Faults(tmp_path / "\x1b.csv")
    for line in (*range(90), *range(95, 100), 120):
        faults.add(line, "bad\n")
    assert (faults.count, len(faults.sentences)) == (96, SHOWN)
    assert faults.spans == [(20, 89), (95, 99), (120, 120)]
    assert faults.sentences[3] == f"{tmp_path}/\\x1b.csv line 3: bad "


@pytest.mark.parametrize(
    "cell", ["", "-1", "+1", "1.0", " 1", "1_0", "\N{ARABIC-INDIC DIGIT ONE}", "1234567890", "0x1"]
)
def test_whole_number_has_digits_alone(cell):
    with pytest.raises(MalformedRowError, match=r"m is .*, not a whole number of up to 9 digits"):
        whole_number({"m": cell}, "m")
    assert whole_number({"m": "0123456789"[:9]}, "m") == 12345678
