"""The datasheet of all recordings: one Markdown page and its pictures, every figure computed from the recordings."""

import os
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from tilearena.atomic import replacing
from tilearena.datasheet.collection import Collection, collect
from tilearena.datasheet.findings import (
    agreement,
    card_and_card,
    first_and_repeat,
    hot_and_cold,
    reached,
    whole_and_part,
    worth,
)
from tilearena.datasheet.limits import limits
from tilearena.datasheet.pictures import Picture, draw, save
from tilearena.datasheet.roofline import PEAKS
from tilearena.datasheet.tables import (
    cards_of,
    ceilings,
    date_of,
    devices,
    failures,
    n_samples,
    sizes,
    spaces,
    trust,
)
from tilearena.errors import RecordingError, one_line
from tilearena.root import RECORDINGS

TITLE = "tilearena recordings: times of CUTLASS GEMM templates for low-bit matrix products on NVIDIA GPUs"
#: Who is cited.
AUTHORS = "The tilearena contributors"
LICENCE_URL = "https://creativecommons.org/licenses/by/4.0/"


def write_datasheet(root: Path, out: Path) -> list[Path]:
    """Write the datasheet of the recordings below ``root`` to ``out`` and its pictures beside; returns all paths.

    The pictures lie in a folder of the page's name: ``docs/datasets.md`` and ``docs/datasets/*.png``.

    Raises:
        RecordingError: ``out`` does not end in .md, or a recording is damaged.
        PictureError: matplotlib is missing.
    """
    if out.suffix != ".md":
        raise RecordingError(f"{out}: a datasheet is Markdown; give it a name that ends in .md")
    collection = collect(root)
    pictures = draw(collection)
    folder = out.with_suffix("")
    save(pictures, folder)
    with replacing(out) as scratch:
        scratch.write_text(render(collection, pictures, folder.name), encoding="utf-8")
    return [out, *(folder / f"{picture.name}.png" for picture in pictures)]


def render(collection: Collection, pictures: Sequence[Picture], folder: str, *, linked: bool = True) -> str:
    """The page. ``folder``: of the pictures, as seen from the page; ``linked``: other pages of docs/ lie beside it."""
    lines = [
        f"# {TITLE}",
        "",
        *_summary(collection),
        "",
        *_contents(collection),
        *_trust(collection),
        *limits(collection),
        *_shown(pictures, folder),
        *_findings(collection),
        *_each(collection),
        *_use(collection),
    ]
    text = "\n".join(map(_wrapped, map(one_line, lines))) + "\n"
    # where the other pages are not at hand they are named instead
    return text if linked else re.sub(r"\[[^]]+\]\(([a-z-]+\.md)(?:#[^)]*)?\)", r"`docs/\1` of tilearena", text)


def _wrapped(line: str) -> str:
    """Prose and points in lines of 120 characters; tables, titles, pictures and code stay as they are."""
    if line.startswith(("|", "#", "!", "<", "    ")):
        return line
    mark = line[:2] if line[:2] in ("- ", "> ") else ""
    indent = "  " if mark == "- " else mark
    return textwrap.fill(line, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def days(collection: Collection) -> tuple[str, str]:
    """First and last day of recording, ISO 8601."""
    found = sorted(map(date_of, collection.held))
    return found[0], found[-1]


def _summary(collection: Collection) -> list[str]:
    held = collection.held
    first, last = days(collection)
    cards = {card for one in held for card in cards_of(one)}
    products = ", ".join(sorted({device.product for device in collection.devices}))
    problems = {(one.header.dtype, *shape) for one in held for shape in one.recording.table.problems.tolist()}
    seconds = sum(one.header.wall_time_s for one in held)
    return [
        "<!-- written by `tilearena recordings datasheet`; change the recordings or that command, not this page -->",
        f"**In short.** {len(held)} recordings of {products} ({len(cards)} cards), {_span(first, last, ' to ')}: "
        f"{sum(len(one.recording.rows) for one in held):,} rows (a kernel on a problem), {len(problems):,} different "
        f"problems (dtype, M, N, K), {sum(map(n_samples, held)):,} samples, "
        f"{sum(one.n_bytes for one in held) / 1e6:.1f} MB, {seconds:,.0f} s of device time. Fingerprint of all: "
        f"`{collection.fingerprint}`. Licence: CC BY 4.0.",
    ]


def _span(first: str, last: str, joint: str) -> str:
    return first if first == last else f"{first}{joint}{last}"


def _contents(collection: Collection) -> list[str]:
    return [
        "## What is recorded",
        "",
        "How long CUTLASS templates (tile, stages; in larger spaces also split-K, clusters, schedules) take on matrix "
        "products D = A x B with 8-, 4- or 1-bit operands and s32 output, so that choosing one can be learned and "
        "judged. A row is one candidate on one problem, whether it ran or not; a sample is one timed interval, and all "
        "are kept. Beside the templates of a space, a recording has the default template a second time (the control), "
        "and for s8 cuBLASLt and torch._int_mm where they were installed. "
        "[file-formats.md](file-formats.md) has every column and key, [measuring.md](measuring.md) the method, and "
        "`tilearena specs` lists the workloads and spaces.",
        "",
        *devices(collection),
        "",
        *spaces(collection),
        "",
        _versions(collection),
        "",
        "What a row's `candidate` means, and all that holds for a file as a whole, is in the Parquet metadata. Readers "
        "that keep columns alone (`datasets.load_dataset`) lose it, so take it from the file. A time is the median of "
        "the samples after the screen's, where there are such, for one launch:",
        "",
        "    import json, statistics, pyarrow.parquet as pq",
        f"    file = pq.ParquetFile({(RECORDINGS / collection.held[0].path).as_posix()!r})",
        "    table, header = file.read(), json.loads(file.metadata.metadata[b'tilearena'])",
        "    candidates = header['candidates']",
        "    names = [c['template']['label'] if c['template'] else c['id'] for c in candidates]",
        "    screened = [header['protocol']['screen_rounds'] * (c['origin'] == 'template') for c in candidates]",
        "    row = table.slice(0, 1).to_pylist()[0]",
        "    samples_ns = row['elapsed_ns'][screened[row['candidate']]:] or row['elapsed_ns']",
        "    time_ns = statistics.median(samples_ns) / row['launches'] if samples_ns else None  # it failed",
        "",
    ]


def _versions(collection: Collection) -> str:
    found: dict[str, set[str]] = {}
    for one in collection.held:
        for tool, version in one.header.versions.items():
            found.setdefault(tool, set()).add(version)
    return "Made with " + ", ".join(f"{tool} {' and '.join(sorted(found[tool]))}" for tool in sorted(found)) + "."


def _trust(collection: Collection) -> list[str]:
    return [
        "## How, and how far to trust it",
        "",
        "A time is the distance of two CUDA events around launches on a stream that is held until all are enqueued. "
        "*cold*: one launch, on operands that were last touched three L2s of traffic ago; *hot*: back-to-back launches "
        "on the same operands, at least 50 us. A kernel is timed only after its whole output was proved exact, and is "
        "checked again after. All templates are screened, those that may win take fresh samples in turns; clocks are "
        "recorded, not locked. [measuring.md](measuring.md) has all of it, and the clock against CUPTI and DRAM "
        "counters. Noise floor, drift, clocks and power of each recording are at the end of this page.",
        "",
        "### Ceilings",
        "",
        "The ranking by the repeat, judged by the recording: what is left to a predictor where only noise differs. "
        "Templates that tie exactly are best together. *cards* are the heads of the hashes of their UUIDs; where the "
        "two differ, so does the card.",
        "",
        *ceilings(collection),
        "",
        "### Failures by reason",
        "",
        "Of the rows of each candidate, and of all templates of a space together, those without a time. A template "
        "that cannot run a problem is `infeasible` and was not launched.",
        "",
        *failures(collection),
        "",
    ]


def _each(collection: Collection) -> list[str]:
    lines = [
        "## Every recording",
        "",
        "*device time*: from the start of the first batch to the end of the last, proofs included, building and "
        "warming up not. *noise floor*: 95th percentile over problems of the difference of the control and the "
        "default. *drift*: of 64 fixed problems, from the start to the middle and to the end. Clocks, power and "
        "temperature are smallest and largest readings. *at the power limit*: batches during which the software power "
        "cap was on. *repeated*: batches measured again because heat or the supply had slowed the card down.",
    ]
    for device in collection.devices:
        mine = collection.of(device.slug)
        lines += ["", f"### {device.slug}", "", *sizes(mine), "", *trust(mine)]
    return [*lines, ""]


def _findings(collection: Collection) -> list[str]:
    tables = (
        ("Hot and cold", "The same problems under the two protocols.", hot_and_cold),
        ("Whole card and partitions", "The same problems on all SMs and on a part of them.", whole_and_part),
        ("First and repeat run", "Where the cards differ, that is in it, too.", first_and_repeat),
        ("Card and card", "Whole cards of one product, recorded apart.", card_and_card),
    )
    lines = [
        "## What the choice is worth",
        "",
        "*best over default*: geometric mean, 95th percentile and largest value of t(default) / t(best); *default is "
        "best*: share of the problems.",
        "",
        *worth(collection),
        "",
        "## How far a choice carries",
        "",
        "The best template by one recording, judged by the times of another on the problems that both have. *same "
        "best*: share of equal choices; *tied*: share within the noise floor of the judge (at most 2 %); regret: what "
        "the choice costs. Two figures: the one chooses and the other judges / the other way.",
    ]
    for title, text, pairs in tables:
        lines += ["", f"### {title}", "", text, "", *agreement(pairs(collection))]
    return [
        *lines,
        "",
        "## Speed reached",
        "",
        "Largest rates of the best template; bytes are those of A, B and D, each once. Hot rates are no rates of the "
        f"DRAM. {_peaks(collection)}",
        "",
        *reached(collection),
        "",
    ]


def _peaks(collection: Collection) -> str:
    known = [product for product in sorted({d.product for d in collection.devices}) if product in PEAKS]
    texts = []
    for product in known:
        peak = PEAKS[product]
        tops = ", ".join(f"{dtype} {value:,.0f} TOPS dense" for dtype, value in peak.tops.items())
        texts.append(
            f"Published peaks of {product}: {tops}; {peak.dram_gb_s:,.0f} GB/s; none for b1 and s4; of a partition, "
            f"its share of the SMs and all of the memory. Source: {peak.source}."
        )
    return " ".join(texts)


def _shown(pictures: Sequence[Picture], folder: str) -> list[str]:
    lines, where = ["## Pictures", ""], quote(os.fsencode(folder))
    for picture in pictures:
        lines += [f"![{picture.name}]({where}/{picture.name}.png)", "", f"*{picture.caption}*", ""]
    return lines if pictures else []


def _use(collection: Collection) -> list[str]:
    first, last = days(collection)
    return [
        "## Licence, citation, growth",
        "",
        f"The recordings and this page: [CC BY 4.0]({LICENCE_URL}); the program: Apache-2.0. Cite as",
        "",
        f"> {AUTHORS}: *{TITLE}*, {_span(first[:4], last[:4], '-')}, version of {last}, fingerprint "
        f"{collection.fingerprint}, CC BY 4.0.",
        "",
        "`tilearena recordings --verify` checks every file; `tilearena recordings publish DIR` writes all of it as a "
        "folder for Hugging Face or Zenodo, with CITATION.cff. Recordings of other cards are welcome: "
        "[measure-your-gpu.md](measure-your-gpu.md).",
    ]
