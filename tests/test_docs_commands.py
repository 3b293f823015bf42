"""docs/commands.md is what the command line says of itself; ``python tests/test_docs_commands.py`` writes it anew."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from tilearena.cli import app

PAGE = Path(__file__).parents[1] / "docs" / "commands.md"
HEAD = """# Commands

Every verb has `--help`. An error of yours is one sentence on standard error and exit code 2; exit code 1 means that
something was found to be wrong (a predictor failed, a template does not compile, a recording is damaged, a submission
does not follow from its picks). `--root` names the folder that holds `baselines/recordings` and
`leaderboard/submissions`; without it `TILEARENA_ROOT` does, else the checkout that the command is run in.
`TILEARENA_CACHE` names the folder of compiled kernels.
"""


def verbs(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """All verbs with their names, those of a group behind it."""
    for name, verb in group.commands.items():
        yield before + name, verb
        yield from verbs(verb, f"{before}{name} ") if hasattr(verb, "commands") else ()


def render() -> str:
    """The page."""
    lines = [HEAD]
    for name, verb in verbs(typer.main.get_command(app)):
        arguments = [p for p in verb.params if p.param_type_name == "argument"]
        options = [p for p in verb.params if p.param_type_name != "argument"]
        shown = [p.metavar or p.name.upper() + ("..." if p.nargs == -1 else "") for p in arguments]
        shown = [text if p.required else f"[{text}]" for text, p in zip(shown, arguments, strict=True)]
        lines += [" ".join(["## tilearena", name, *shown]), "", verb.help.strip(), ""]
        lines += ["| option | meaning |", "|---|---|"]
        for p in options:
            needed = " (required)" if p.required else ""
            lines.append(f"| `{', '.join([*p.opts, *p.secondary_opts])}` | {(p.help or '').strip()}{needed} |")
        lines.append("")
    return "\n".join(lines)


def test_page_is_current() -> None:
    assert PAGE.read_text() == render()


if __name__ == "__main__":
    PAGE.write_text(render())
