"""Runs the benchmarks of a build: see `./run help`.

Exit status: 0, 1 where --check finds ratios that are worse than the baseline's
or benchmarks that did not run, 2 for what cannot be used.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys

import ratios

BENCHMARKS = ["kernels_bench", "region_bench", "plan_bench", "dbuffer_bench",
              "comm_bench", "execute_bench", "redistribute_bench",
              "coalesce_bench"]
# Beside MPI's own collectives, on four processes; it is not there without MPI.
MPI_BENCHMARK = "mpi_bench"
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "4"]
BASELINE = pathlib.Path(__file__).parent / "baseline.json"


def run_benchmark(folder, name, out, pattern=".*"):
    """Runs those cases of a benchmark that match; returns what it wrote."""
    path = out / f"{name}.json"
    subprocess.run(
        [*(MPIRUN if name == MPI_BENCHMARK else []), folder / name,
         "--benchmark_min_time=0.05",
         "--benchmark_repetitions=3",
         "--benchmark_enable_random_interleaving=true",
         f"--benchmark_filter={pattern}", f"--benchmark_out={path}",
         "--benchmark_out_format=json"],
        check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return json.loads(path.read_text())


def run_all(folder, out):
    """Program -> what it wrote."""
    documents = {}
    names = BENCHMARKS + [MPI_BENCHMARK]
    if not (folder / MPI_BENCHMARK).exists():
        names.remove(MPI_BENCHMARK)
    for name in names:
        print(f"bench: running {name}", file=sys.stderr)
        documents[name] = run_benchmark(folder, name, out)
    return documents


def repeat(folder, out, documents, names):
    """The ratios of these names, measured again."""
    again = {}
    for program, document in documents.items():
        # Each once, though it ran several times.
        runs = dict.fromkeys(
            run["name"] for run in document["benchmarks"]
            if any(name in names
                   for name in ratios.ratios_of({"benchmarks": [run]})))
        if not runs:
            continue
        print(f"bench: repeating {len(runs)} of {program}", file=sys.stderr)
        pattern = "|".join(f"^{re.escape(run)}$" for run in runs)
        again |= ratios.ratios_of(
            run_benchmark(folder, program, out / "repeated", pattern))
    return again


def check(found, baseline, measure_again, times=2):
    """Repeats what is worse, and returns what remains so: (lines, ratios)."""
    for _ in range(times):
        suspicious = ratios.worse_than(baseline, found)
        if not suspicious:
            break
        again = measure_again(suspicious)
        found = ratios.better_of(
            found, {name: again[name] for name in suspicious if name in again})
    lines = [f"worse: {name}: {found[name]:.2f}, baseline {baseline[name]:.2f}"
             for name in ratios.worse_than(baseline, found)]
    lines += [f"missing: {name}"
              for name in ratios.missing_from(baseline, found)]
    return lines, found


def main():
    parser = argparse.ArgumentParser(prog="./run bench", description=__doc__)
    parser.add_argument("--programs", type=pathlib.Path, required=True,
                        help=argparse.SUPPRESS)
    parser.add_argument("--out", type=pathlib.Path, required=True,
                        help=argparse.SUPPRESS)
    parser.add_argument("--check", action="store_true",
                        help="fail where ratios are 20 %% above the baseline's")
    parser.add_argument("--plot", action="store_true",
                        help="draw figures, with matplotlib")
    parser.add_argument("--update", action="store_true",
                        help="make what is measured the baseline")
    arguments = parser.parse_args()
    if arguments.plot:
        import plot  # says what is missing before anything runs
    baseline = {} if arguments.update else json.loads(BASELINE.read_text())

    out = arguments.out
    os.makedirs(out / "repeated", exist_ok=True)
    documents = run_all(arguments.programs, out)
    found = {}
    failures = {}
    for document in documents.values():
        found |= ratios.ratios_of(document)
        failures |= ratios.failures_of(document)
    lines = [f"failed: {name}: {why}" for name, why in failures.items()]
    if arguments.check:
        worse, found = check(
            found, baseline,
            lambda names: repeat(arguments.programs, out, documents, names))
        lines += worse
    print(ratios.table(found, baseline), end="")
    print(f"\nThe benchmarks' JSON is in {out}")
    if arguments.plot:
        for path in plot.draw(documents, out):
            print(f"drew {path}")
    if arguments.update:
        BASELINE.write_text(json.dumps(
            {name: round(value, 3) for name, value in found.items()},
            indent=2) + "\n")
    print("\n".join(lines), end="\n" if lines else "")
    return 1 if lines else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"bench: {error}", file=sys.stderr)
        sys.exit(2)
