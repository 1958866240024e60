"""Draws what the benchmarks measured, as SVG."""

import sys

try:
    import matplotlib
except ImportError:
    print("bench: --plot needs matplotlib (Debian: python3-matplotlib)",
          file=sys.stderr)
    sys.exit(2)
matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402

import ratios  # noqa: E402


def draw(documents, out):
    """A figure of ratios for each program that has any; returns their paths."""
    paths = []
    for program, document in documents.items():
        found = ratios.ratios_of(document)
        if found:
            paths.append(out / f"{program}.svg")
            draw_ratios(program, found, paths[-1])
    return paths


def draw_ratios(title, found, path):
    """Bars, the first benchmark on top; a line where the reference is."""
    figure, axes = pyplot.subplots(figsize=(10, 1 + 0.22 * len(found)))
    axes.barh(list(found), list(found.values()), color="#4477aa")
    axes.axvline(1, color="black", linewidth=1)
    axes.invert_yaxis()
    axes.set_xlabel("time over that of the reference")
    axes.set_title(title)
    axes.tick_params(axis="y", labelsize=7)
    axes.margins(y=0.01)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
