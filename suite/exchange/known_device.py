"""What a device is that is not in this machine: from a recording of it, or from a file that describes it."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tilearena import dataset
from tilearena.errors import RecordingError
from tilearena.records import Device
from tilearena.root import recorded

MAX_BYTES = 1 << 20


def known_device(root: Path, slug: str, file: Path | None, *others: Path) -> Device:
    """The device of this slug, as ``file`` describes it, or else as a recording below ``root`` or ``others`` does.

    Of a recording's device only that is taken which all its like share: no card, driver or power limit.

    Raises:
        RecordingError: there is no such recording, or the file does not describe the device.
    """
    if file is not None:
        return _described(file, slug)
    for path in (path for folder in (root, *others) for path in recorded(folder)):
        if path.parts[-3] == slug:
            with suppress(RecordingError):  # another one may be sound
                device = dataset.read_header(path)[0].device
                if device.slug == slug:  # or it lies elsewhere than it belongs
                    return device.model_copy(update={"uuid_sha256": None, "driver": None, "power_limit_w": None})
    raise RecordingError(
        f"no recording of {ascii(slug)[:80]} below {root} says what that device is; give --device-file, a JSON that "
        "`tilearena devices --json` printed on its machine"
    )


def _described(file: Path, slug: str) -> Device:
    if not file.is_file() or file.stat().st_size > MAX_BYTES:
        raise RecordingError(
            f"{file}: no file of at most {MAX_BYTES} bytes; give what `tilearena devices --json` prints"
        )
    try:
        raw: Any = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        raise RecordingError(f"{file}: not JSON; give what `tilearena devices --json` prints") from None
    listed = raw.get("here") if isinstance(raw, dict) and "here" in raw else [raw]
    for one in listed if isinstance(listed, list) else ():
        if isinstance(one, dict) and one.get("slug") == slug:
            try:
                return Device.model_validate_json(json.dumps(one))  # unlike Python's it takes no half of a character
            except ValidationError as error:
                first = error.errors()[0]
                key = ascii(".".join(map(str, first["loc"])))[:120]
                raise RecordingError(f"{file}: key {key}: {first['msg']}") from None
    raise RecordingError(f"{file}: describes no device {ascii(slug)[:80]}; give its own slug to --device")
