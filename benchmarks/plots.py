"""A plot for each question, from the newest results.

    python -m benchmarks.plots

Needs matplotlib, which nothing else here does: `pip install matplotlib` into the environment that runs it.
"""

from __future__ import annotations

import json
import statistics
from importlib import import_module
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def newest(name: str) -> tuple[str, Any]:
    """The date of the newest results of this name, and what was measured."""
    found = sorted(RESULTS.glob(f"????-??-??-{name}.json"))
    if not found:
        raise SystemExit(f"there are no results of {name}; run it with --save")
    return found[-1].name[:10], json.loads(found[-1].read_text(encoding="utf-8"))


def peers(plt: Any, name: str) -> None:
    """What a new request costs in each variant, the middle half of all rounds."""
    date, raw = newest(name)
    for kind, chosen in {"memory": ("bare", "memory", "local cache"), "dynamodb": ("boto3", "lean", "aiohttp")}.items():
        names = [variant for variant in raw if variant.endswith(chosen)]
        rounds = [[cost["cpu_us"] for cost in raw[variant]["new"]] for variant in names]
        middles = [statistics.median(costs) for costs in rounds]
        quarters = [statistics.quantiles(costs, n=4) for costs in rounds]
        spread = [
            [middle - low for middle, (low, _, _) in zip(middles, quarters, strict=True)],
            [high - middle for middle, (_, _, high) in zip(middles, quarters, strict=True)],
        ]
        figure, axes = plt.subplots(figsize=(9, 0.45 * len(names) + 1.2), layout="constrained")
        colours = ["#b04020" if ", ours" in variant else "#808890" for variant in names]
        axes.barh(names, middles, xerr=spread, color=colours, capsize=3)
        axes.invert_yaxis()
        axes.set_xlabel("CPU of the whole process, µs per new request")
        axes.set_title(f"A new request, {kind} ({date}, {name})")
        figure.savefig(RESULTS / f"{date}-{name}-{kind}.png", dpi=110)
        plt.close(figure)


def growth(plt: Any) -> None:
    """Each cost over what it grows with, both logarithmic: a straight line at 45 degrees is linear."""
    date, raw = newest("growth")
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


def main() -> None:
    """Draw them all."""
    try:
        matplotlib = import_module("matplotlib")
    except ImportError:
        raise SystemExit("matplotlib is not installed here: pip install matplotlib") from None
    matplotlib.use("Agg")
    plt = import_module("matplotlib.pyplot")
    for in_flight in sorted({path.stem.rpartition("-")[2] for path in RESULTS.glob("*-peers-*.json")}):
        peers(plt, f"peers-{in_flight}")
    growth(plt)


if __name__ == "__main__":
    main()
