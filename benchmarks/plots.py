"""A plot for each question, from the newest results.

    python -m benchmarks.plots

Needs matplotlib, which nothing else here does: `pip install matplotlib` into the environment that runs it.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from benchmarks.measuring import RESULTS, newest

_OURS, _OTHERS = "#b04020", "#808890"


Rows = Mapping[str, list[float]]
"""What is shown in one panel: a bar for each name, from the figures of all rounds."""


def bars(plt: Any, title: str, file: str, panels: Mapping[str, Rows], unit: str) -> None:
    """A panel of horizontal bars for each kind: the median of all rounds, and their middle half."""
    panels = {kind: rows for kind, rows in panels.items() if rows}
    lengths = [len(rows) for rows in panels.values()]
    figure, axes = plt.subplots(
        len(panels),
        figsize=(9, 0.3 * sum(lengths) + 1.2 * len(panels)),
        layout="constrained",
        gridspec_kw={"height_ratios": lengths},
        squeeze=False,
    )
    for panel, (kind, rows) in zip(axes[:, 0], panels.items(), strict=True):
        middles = [statistics.median(values) for values in rows.values()]
        quarters = [statistics.quantiles(values, n=4) if len(values) > 1 else values * 3 for values in rows.values()]
        spread = [
            [max(0.0, middle - low) for middle, (low, _, _) in zip(middles, quarters, strict=True)],
            [max(0.0, high - middle) for middle, (_, _, high) in zip(middles, quarters, strict=True)],
        ]
        colours = [_OURS if ", ours" in name else _OTHERS for name in rows]
        panel.barh(list(rows), middles, xerr=spread, color=colours, capsize=2)
        panel.tick_params(labelsize=8)
        panel.invert_yaxis()
        panel.set_title(kind, fontsize=9, loc="left")
    axes[-1, 0].set_xlabel(unit)
    figure.suptitle(title, fontsize=11)
    figure.savefig(RESULTS / f"{file}.png", dpi=80)
    plt.close(figure)


def compared(plt: Any, name: str, unit: str) -> Iterator[str]:
    """Each question of a comparison: one request at a time and, on DynamoDB, the most at a time, too."""
    found = newest(name)
    if found is None:
        return
    date, results = found
    for question, by_width in results.items():
        panels: dict[str, Rows] = {}
        one, most = min(by_width, key=int), max(by_width, key=int)
        for where, width in (("memory", one), ("DynamoDB", one), ("DynamoDB", most)):
            panels[f"{where}, {width} in flight"] = {
                variant: cell["cpu_us"]
                for variant, cell in by_width[width].items()
                if variant.endswith(("bare", "memory")) is (where == "memory")
            }
        file = f"{date}-{name}-{question.replace(', ', '-').replace(' ', '')}"
        bars(plt, f"{question} ({name}, {date})", file, panels, unit)
        yield file


def overhead(plt: Any) -> Iterator[str]:
    """What each kind of request costs more than in the bare application, in each framework."""
    found = newest("overhead")
    if found is None:
        return
    date, results = found
    for question in next(iter(results.values())):
        rows = {f"{framework}, ours": questions[question]["added"] for framework, questions in results.items()}
        file = f"{date}-overhead-{question}"
        bars(plt, f"{question}: added to the bare application ({date})", file, {"": rows}, "CPU µs per request")
        yield file


def instructions(plt: Any) -> Iterator[str]:
    """How many instructions each kind of request takes."""
    found = newest("instructions")
    if found is not None:
        date, results = found
        for question in dict.fromkeys(name.rpartition(", ")[2] for name in results):
            rows = {name: [count] for name, count in results.items() if name.endswith(f", {question}")}
            file = f"{date}-instructions-{question.replace(' ', '-')}"
            bars(plt, f"Instructions: {question} ({date})", file, {"": rows}, "instructions per request")
            yield file


def clients(plt: Any, name: str) -> Iterator[str]:
    """What two writes cost over each client: the deciles of all rounds or calls."""
    found = newest(name)
    if found is not None:
        date, results = found
        bars(
            plt, f"Two writes, or the one of a replay ({name}, {date})", f"{date}-{name}", results, "CPU µs per request"
        )
        yield f"{date}-{name}"


def uploads(plt: Any) -> Iterator[str]:
    """How much memory a large upload takes."""
    found = newest("uploads")
    if found is not None:
        date, results = found
        bars(plt, f"The peak of a large upload ({date})", f"{date}-uploads", {"": results}, "MiB above what was held")
        yield f"{date}-uploads"


def growth(plt: Any) -> Iterator[str]:
    """Each cost over what it grows with, both logarithmic: a straight line at 45 degrees is linear."""
    found = newest("growth")
    if found is None:
        return
    date, raw = found
    for question, rows in raw.items():
        sizes = [int(size) for size in rows]
        figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
        for name in next(iter(rows.values())):
            axes.plot(sizes, [row[name] for row in rows.values()], marker="o", label=name)
        axes.set_xscale("symlog" if 0 in sizes else "log")
        axes.set_yscale("symlog")
        axes.set_xlabel(question)
        axes.set_title(f"Growth with {question} ({date})")
        axes.legend(fontsize=8)
        axes.grid(alpha=0.3)
        figure.savefig(RESULTS / f"{date}-growth-{question}.png", dpi=110)
        plt.close(figure)
        yield f"{date}-growth-{question}"


def main() -> None:
    """Draw them all."""
    try:
        matplotlib = import_module("matplotlib")
    except ImportError:
        raise SystemExit("matplotlib is not installed here: pip install matplotlib") from None
    matplotlib.use("Agg")
    plt = import_module("matplotlib.pyplot")
    drawn = [
        *compared(plt, "peers", "CPU of the whole process, µs per request"),
        *compared(plt, "serving", "CPU of the server, µs per request"),
        *overhead(plt),
        *instructions(plt),
        *clients(plt, "clients"),
        *clients(plt, "clients-4ms"),
        *uploads(plt),
        *growth(plt),
    ]
    print("\n".join(f"{RESULTS.name}/{name}.png" for name in drawn))


if __name__ == "__main__":
    main()
