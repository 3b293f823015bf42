"""Is this machine fit to measure? `tilearena doctor` says so in plain words, and changes nothing."""

from collections.abc import Sequence
from typing import Literal

from rich.console import Console
from rich.table import Table

from tilearena.doctor_readings import Readings
from tilearena.doctor_rules import RULES, Level
from tilearena.records import Record

Verdict = Literal["fit", "fit, with remarks", "not fit"]


class Finding(Record):
    """One reading, judged: its value in words, what that means for a measurement, and what the user can do."""

    key: str
    value: str
    level: Level
    meaning: str
    advice: str


def diagnose(readings: Readings) -> tuple[Finding, ...]:
    """One finding for each rule, in the order of ``RULES``."""
    findings = []
    for key, rule in RULES.items():
        level, value, meaning, advice = rule(readings)
        findings.append(Finding(key=key, value=value, level=level, meaning=meaning, advice=advice))
    return tuple(findings)


def verdict(findings: Sequence[Finding]) -> Verdict:
    """The worst level decides."""
    levels = {finding.level for finding in findings}
    return "not fit" if "unfit" in levels else "fit, with remarks" if "remark" in levels else "fit"


def show(readings: Readings, findings: Sequence[Finding], console: Console) -> None:
    """Print every reading, then the verdict, then what each remark means and what can be done."""
    table = Table("reading", "level", "found")
    for finding in findings:
        table.add_row(finding.key, finding.level, finding.value)
    console.print(table)
    console.print(f"{readings.product} (GPU {readings.ordinal}) and this machine: {verdict(findings)}")
    for finding in findings:
        if finding.level != "good":
            console.print(f"- {finding.level}: {finding.key}: {finding.value}. {finding.meaning} {finding.advice}")
