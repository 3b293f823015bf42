"""A file appears whole or not at all, and the error says which one."""

import errno

import pytest

from tilearena.atomic import replacing


def test_replacing_makes_folders_and_leaves_the_file_alone(tmp_path):
    path = tmp_path / "new" / "folder" / "file.txt"
    with replacing(path) as scratch:
        scratch.write_text("whole")
        assert not path.exists()
    assert path.read_text() == "whole"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_what_was_there_stays_when_writing_fails(tmp_path, error):
    path = tmp_path / "file.txt"
    path.write_text("old")

    def write_half():
        with replacing(path) as scratch:
            scratch.write_text("half")
            raise error

    with pytest.raises(error):
        write_half()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_error_without_a_name_gets_the_name_of_the_file(tmp_path):
    path = tmp_path / "file.txt"
    with pytest.raises(OSError, match="No space left") as caught, replacing(path):
        raise OSError(errno.ENOSPC, "Error writing bytes to file. Detail: [errno 28]")
    assert (caught.value.filename, caught.value.strerror) == (str(path), "No space left on device")


def test_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="Not a directory") as caught, replacing(tmp_path / "file" / "deep" / "x"):
        pass
    assert caught.value.filename.startswith(str(tmp_path / "file"))


def test_scratch_file_is_no_name_to_report(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="Is a directory") as caught, replacing(tmp_path / "folder") as scratch:
        scratch.touch()
    assert caught.value.filename == str(tmp_path / "folder")
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="File exists") as caught, replacing(tmp_path / "file" / "x"):
        pass
    assert caught.value.filename == str(tmp_path / "file")
