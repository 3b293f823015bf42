"""What two_cards.py and two_cards_speed.py found, as tables for docs/measuring.md."""

from typing import Any

import numpy as np

from tilearena.datasheet.tables import table

HEAD = ("", "card 1 / card 0", "repeat / first: card 0", "card 1", "same best: across", "own repeat")
HEAD += ("tied: across", "own", "mean regret: across", "own", "largest: across", "own")
DISTURBED = ("", "times of card 0", "of card 1", "same best", "tied", "mean regret")
SHARED = ("", "one card", "--workers 2", "", "--scheduler", "", "lost between batches", "at the ends")


def _change(ratio: dict[str, float]) -> str:
    """Geometric mean, and between which bounds 90 % are."""
    mean, low, high = (100 * (ratio[key] - 1) for key in ("geomean", "p05", "p95"))
    return f"{mean:+.1f} % ({low:+.1f} to {high:+.1f})"


def _pair(values: list[float], form: str) -> str:
    return " / ".join(format(value, form) for value in values)


def across_row(name: str, kind: dict[str, Any]) -> list[str]:
    """How times and choices carry from card to card, and from a card to its own repeat."""
    across, own = (kind["card0_by_card1"], kind["card1_by_card0"]), kind["by_own_repeat"]
    return [
        name,
        _change(kind["times_card1_over_card0"]),
        *(_change(ratio) for ratio in kind["times_repeat_over_first"]),
        *(_pair([judged["same_best"] for judged in both], ".1%") for both in (across, own)),
        *(_pair([judged["tied"] for judged in both], ".1%") for both in (across, own)),
        *(_pair([judged["regret_mean"] for judged in both], ".3%") for both in (across, own)),
        *(_pair([judged["regret_max"] for judged in both], ".0%") for both in (across, own)),
    ]


def shared_row(name: str, kind: dict[str, Any]) -> list[str]:
    """Rows a second, and what the cards lose."""
    each = [speed for both in kind["rows_per_s_alone"] for speed in both]
    together = kind["together"].values()
    cells = [name, f"{min(each):,.0f} to {max(each):,.0f}"]
    for one in together:
        cells += [f"{one['rows_per_s']:,.0f}", f"{one['times_one_card']:.3f}x"]
    lost = [float(np.mean([one["between"] for one in kind["lost_alone"]]))]
    lost += [one["lost"]["between"] for one in together]
    return [*cells, _pair(lost, ".1%"), _pair([one["lost"]["ends"] for one in together], ".1%")]


def disturbed_row(name: str, how: str, kind: dict[str, Any]) -> list[str]:
    """Times beside the other card over those alone."""
    found = kind["together"][how]["disturbed"]
    chosen = kind["together"][how]["by_alone"]
    cells = [f"{name}, `{how}`", *(_change(found[card]) for card in ("card0", "card1"))]
    cells += [_pair([judged[key] for judged in chosen], form) for key, form in (("same_best", ".1%"), ("tied", ".1%"))]
    return [*cells, _pair([judged["regret_mean"] for judged in chosen], ".3%")]


def two_cards(result: dict[str, Any]) -> str:
    """Card against card, speed, disturbance."""
    device, kinds = result["device"], result["kinds"]
    cards = " and ".join(f"`{card[:6]}` (card {i})" for i, card in enumerate(result["cards"]))
    ways = {name: list(kind["together"]) for name, kind in kinds.items()}
    return "\n".join(
        [
            f"{device['product']}, driver {device['driver']}, {result['date']}; cards {cards}; 2,000 problems each.",
            "",
            "**Card against card**: geometric mean of the ratio of times, and between which bounds 90 % of the rows "
            "are; the choice of one judged by the other, and by its own repeat.",
            "",
            *table(HEAD, [across_row(*kind) for kind in kinds.items()]),
            "",
            "**Disturbance**: times of a card while the other one measured over those while it was alone; the choice "
            "by the shared recording, judged by card 0 and by card 1 alone.",
            "",
            *table(DISTURBED, [disturbed_row(n, how, kinds[n]) for n in kinds for how in ways[n]]),
            "",
            "**Rows a second**: of one card, smallest and largest of four runs; of both; and what both do over the "
            "mean of the four. Shares of the cards' seconds that are lost: one card alone / `--workers 2` / "
            "`--scheduler`, the last two at the ends.",
            "",
            *table(SHARED, [shared_row(*kind) for kind in kinds.items()]),
        ]
    )


def two_cards_speed(result: dict[str, Any]) -> str:
    """Both over one, in turns."""
    device = result["device"]
    rows = []
    for kind, ways in result["kinds"].items():
        for how, rounds in ways.items():
            speeds = np.array([one["rows_per_s"] for one in rounds])
            ratios = [one["times_one_card"] for one in rounds]
            untimed = [ms for one in rounds for ms in one["untimed_ms"]]
            each = speeds[:, :2]
            rows.append(
                [
                    f"{kind}, `{how}`",
                    str(len(rounds)),
                    f"{each.min():,.0f} to {each.max():,.0f}",
                    f"{speeds[:, 2].min():,.0f} to {speeds[:, 2].max():,.0f}",
                    f"{float(np.exp(np.mean(np.log(ratios)))):.2f}x",
                    f"{min(ratios):.2f} to {max(ratios):.2f}",
                    f"{min(untimed):.1f} to {max(untimed):.1f} ms",
                ]
            )
    head = ("", "rounds", "one card, rows/s", "both", "both / one, mean", "from, to", "a problem, outside intervals")
    return "\n".join([f"{device['product']}, driver {device['driver']}, {result['date']}.", "", *table(head, rows)])
