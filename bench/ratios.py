"""What the benchmarks measured, as ratios: their table, and what got worse.

A benchmark's ratios are its counters whose names begin with "ratio": the time
it takes over that of a reference, measured by turns, so that they are much the
same on a busy machine and on an idle one. Smaller is better.
"""

import statistics

TOLERANCE = 0.2


def ratios_of(document):
    """The ratios in what Google Benchmark writes as JSON: name -> value.

    In the order of the program, though repetitions may be shuffled. The median
    where a benchmark was repeated; what did not run has none. A
    benchmark "name" with the counter "ratio" is called "name", one with
    "ratio_bare" "name bare". How it was run is no part of a name.
    """
    def place(run):
        return run["family_index"], run["per_family_instance_index"]

    values = {}
    for run in sorted(document["benchmarks"], key=place):
        if run.get("error_occurred") or run.get("run_type") == "aggregate":
            continue
        name = run["name"].split("/iterations:")[0]
        for counter, value in run.items():
            if counter.startswith("ratio"):
                suffix = counter[len("ratio"):].lstrip("_")
                values.setdefault(f"{name} {suffix}".strip(), []).append(value)
    return {name: statistics.median(found) for name, found in values.items()}


def failures_of(document):
    """Why benchmarks did not run: name -> reason."""
    return {run["name"]: run["error_message"]
            for run in document["benchmarks"] if run.get("error_occurred")}


def worse_than(baseline, ratios, tolerance=TOLERANCE):
    """The names of ratios that are more than `tolerance` above the baseline's.

    A ratio that the baseline does not have is not worse.
    """
    return [name for name, value in ratios.items()
            if name in baseline and value > baseline[name] * (1 + tolerance)]


def missing_from(baseline, ratios):
    """The names that the baseline has and `ratios` have not."""
    return [name for name in baseline if name not in ratios]


def better_of(first, second):
    """Per name the smaller of two ratios: noise only adds."""
    merged = dict(first)
    for name, value in second.items():
        merged[name] = min(value, merged.get(name, value))
    return merged


def table(ratios, baseline):
    """One line per ratio, beside the baseline's where there is one."""
    rows = [("benchmark", "ratio", "baseline", "change")]
    for name, value in ratios.items():
        known = baseline.get(name)
        change = "" if known is None else f"{100 * (value / known - 1):+.0f} %"
        rows.append((name, f"{value:.2f}",
                     "" if known is None else f"{known:.2f}", change))
    width = max(len(row[0]) for row in rows)
    return "".join(f"{name:<{width}}  {ratio:>7}  {known:>8}  {change:>7}"
                   .rstrip() + "\n" for name, ratio, known, change in rows)
