"""The verb that lists what ships."""

from typing import Any

from rich.table import Table as RichTable

from tilearena.cli_options import Json, console, print_json
from tilearena.spec import load_space, load_workload, space_names, workload_names


def specs(as_json: Json = False) -> None:
    """List the workloads and template spaces that ship with tilearena."""
    rows: list[dict[str, Any]] = []
    for name in workload_names():
        workload = load_workload(name)
        counts = {dtype: len(workload.problems_for(dtype)) for dtype in workload.dtypes}
        rows.append(
            {"kind": "workload", "name": name, "problems": counts, "space": workload.space}
            | {"fingerprint": workload.fingerprint, "description": workload.description}
        )
    for name in space_names():
        space = load_space(name)
        counts = {dtype: len(space.templates(dtype, "and" if dtype == "b1" else None)) for dtype in space.dtypes}
        rows.append(
            {"kind": "space", "name": name, "templates": counts}
            | {"fingerprint": space.fingerprint, "description": space.description}
        )
    if as_json:
        print_json(rows)
        return
    table = RichTable("kind", "name", "size", "fingerprint", "what")
    for row in rows:
        size = ", ".join(f"{n} {dtype}" for dtype, n in (row.get("problems") or row["templates"]).items())
        table.add_row(row["kind"], row["name"], size, row["fingerprint"], row["description"])
    console().print(table)
