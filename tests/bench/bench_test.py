"""What `./run bench` makes of what the benchmarks write."""

import unittest

import bench
import ratios


def run(name, family, **keys):
    return {"name": name, "family_index": family,
            "per_family_instance_index": 0} | keys


def document(**runs):
    return {"benchmarks": [run(name, family, **counters)
                           for family, (name, counters)
                           in enumerate(runs.items())]}


class RatiosTest(unittest.TestCase):
    def test_are_the_counters_called_so(self):
        found = ratios.ratios_of(document(
            a={"ratio": 2.0}, b={"ratio_bare": 1.5, "ratio_memcpy": 3.0},
            c={"bytes": 4}))
        self.assertEqual(found,
                         {"a": 2.0, "b bare": 1.5, "b memcpy": 3.0})

    def test_are_medians_of_what_was_repeated(self):
        runs = [run("a/iterations:1/manual_time", 0, ratio=ratio)
                for ratio in (1.0, 9.0, 2.0)]
        runs.append(run("a_mean", 0, run_type="aggregate", ratio=4.0))
        self.assertEqual(ratios.ratios_of({"benchmarks": runs}), {"a": 2.0})

    def test_are_in_the_order_of_the_program(self):
        runs = [run("b", 1, ratio=1.0), run("a", 0, ratio=1.0)]
        self.assertEqual(list(ratios.ratios_of({"benchmarks": runs})),
                         ["a", "b"])

    def test_are_not_there_for_what_failed(self):
        failed = document(a={"ratio": 2.0, "error_occurred": True,
                             "error_message": "why"})
        self.assertEqual(ratios.ratios_of(failed), {})
        self.assertEqual(ratios.failures_of(failed), {"a": "why"})
        self.assertEqual(ratios.failures_of(document(a={"ratio": 2.0})), {})

    def test_are_worse_above_a_fifth_more(self):
        baseline = {"a": 1.0, "b": 2.0, "c": 4.0}
        found = {"a": 1.25, "b": 2.2, "c": 1.0, "new": 9.0}
        self.assertEqual(ratios.worse_than(baseline, found), ["a"])

    def test_may_be_missing(self):
        self.assertEqual(ratios.missing_from({"a": 1, "b": 1}, {"b": 5}), ["a"])

    def test_have_a_table(self):
        self.assertEqual(
            ratios.table({"some": 1.25, "new": 2.0}, {"some": 1.0}),
            "benchmark    ratio  baseline   change\n"
            "some          1.25      1.00    +25 %\n"
            "new           2.00\n")


class CheckTest(unittest.TestCase):
    def check(self, found, again):
        """Measures `again` every time that something is repeated."""
        repeated = []

        def measure_again(names):
            repeated.append(names)
            return again

        lines, _ = bench.check(found, {"a": 1.0, "b": 2.0}, measure_again)
        return lines, repeated

    def test_passes_a_tenth_more_without_repeating(self):
        self.assertEqual(self.check({"a": 1.1, "b": 2.2}, {}), ([], []))

    def test_fails_on_a_quarter_more_that_stays(self):
        lines, repeated = self.check({"a": 1.25, "b": 2.0}, {"a": 1.3})
        self.assertEqual(lines, ["worse: a: 1.25, baseline 1.00"])
        self.assertEqual(repeated, [["a"], ["a"]])

    def test_passes_what_was_noise(self):
        lines, repeated = self.check({"a": 5.0, "b": 2.0},
                                     {"a": 1.05, "b": 9.0})
        self.assertEqual(lines, [])
        self.assertEqual(repeated, [["a"]])

    def test_fails_on_what_is_missing(self):
        lines, _ = self.check({"a": 1.0}, {})
        self.assertEqual(lines, ["missing: b"])

    def test_fails_on_what_cannot_be_repeated(self):
        lines, _ = self.check({"a": 1.25, "b": 2.0}, {})
        self.assertEqual(lines, ["worse: a: 1.25, baseline 1.00"])


if __name__ == "__main__":
    unittest.main()
