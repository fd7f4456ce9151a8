"""Tests compare: its figures follow from the results, and bad results are refused with a sentence."""
import csv
import io
import json
import math
import os
import random
import re
import statistics

import pytest

from support import FAILED, OK, TOP, USAGE, check, environment, gpuward
from synthetic import UUID, needs_reader, result, save

pytestmark = needs_reader

WIDE = environment(COLUMNS=300)


def compare(*args, code=OK, env=WIDE):
    done = gpuward("compare", *args, env=env)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def rows(*args):
    doc = json.loads(compare(*args, "--json").stdout)
    check("compare", doc)
    return {r["label"]: r for r in doc["rows"]}, doc


def student_factor(df, alpha=0.05):
    """Returns Student's factor by summing the density, a method that the program does not use."""
    if df == math.inf:
        return 1.959963984540054
    c = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(df * math.pi)
    inside, t, step = 0.0, 0.0, 1e-3
    density = lambda x: c * (1 + x * x / df) ** (-(df + 1) / 2)
    while inside < (1 - alpha) / 2:
        inside += step * density(t + step / 2)
        t += step
    return t - (inside - (1 - alpha) / 2) / density(t)


def log_moments(values):
    logs = [math.log(v) for v in values]
    mean = sum(logs) / len(logs)
    return mean, sum((v - mean) ** 2 for v in logs) / max(1, len(logs) - 1)


def expected_change(a, b, extra):
    """Returns the expected change: Welch's t on logarithms, and a part that more runs do not reduce.  A single run is assumed to
    vary like the others."""
    (ma, va), (mb, vb) = log_moments(a), log_moments(b)
    if len(b) == 1:
        u2, df = va * (1 + 1 / len(a)), len(a) - 1
    else:
        ua, ub = va / len(a), vb / len(b)
        u2 = ua + ub
        df = u2**2 / (ua**2 / (len(a) - 1) + ub**2 / (len(b) - 1))
    reach = math.hypot(student_factor(df) * math.sqrt(u2), student_factor(math.inf) * extra)
    return [math.expm1(mb - ma + k * reach) for k in (-1, 0, 1)]


def energies(doc):
    return [r["energy_per_iteration_joules"]["best"] for r in doc["runs"]]


def mean_power(doc):
    return sum(r["power_mean_watts"] for r in doc["runs"]) / len(doc["runs"])


def test_changes_of_trials_are_those_of_welch_on_logarithms(tmp_path):
    seed = random.randrange(10**6)
    print("seed", seed)
    r = random.Random(seed)
    for _ in range(5):
        a = result("a", power=r.uniform(100, 700), trials=r.randint(2, 6), spread=0.02,
                   seed=r.random(), series=False)
        b = result("b", power=r.uniform(100, 700), trials=r.randint(2, 6), spread=0.01,
                   seed=r.random(), series=False, seconds=r.uniform(5, 20))
        got, _ = rows(save(tmp_path, "a.json", a), save(tmp_path, "b.json", b))
        extra = 2.5 * abs(1 / mean_power(a) - 1 / mean_power(b))
        low, best, high = expected_change(energies(a), energies(b), extra)
        change = got["b"]["energy_per_iteration_joules"]["change_ratio"]
        assert change["best"] == pytest.approx(best, rel=1e-9)
        assert change["low"] == pytest.approx(low, abs=2e-5)
        assert change["high"] == pytest.approx(high, abs=2e-5)
        assert got["b"]["energy_per_iteration_joules"]["change_basis"] == "trials"


def test_one_run_each_has_the_meters_uncertainty_and_the_offset(tmp_path):
    a = result("a", power=400, u=0.003)
    b = result("b", power=200, u=0.004)
    got, _ = rows(save(tmp_path, "a.json", a), save(tmp_path, "b.json", b))
    u = math.sqrt(0.003**2 + 0.004**2 + (2.5 * abs(1 / 400 - 1 / 200)) ** 2)
    change = got["b"]["energy_per_iteration_joules"]["change_ratio"]
    assert change["best"] == pytest.approx(-0.5)
    assert change["low"] == pytest.approx(0.5 * math.exp(-1.96 * u) - 1, abs=1e-6)
    assert change["high"] == pytest.approx(0.5 * math.exp(1.96 * u) - 1, abs=1e-6)
    assert got["b"]["energy_per_iteration_joules"]["change_basis"] == "budget"
    # The length of a single run is known; how much runs vary is not known.
    assert got["b"]["latency_seconds"]["change_ratio"]["low"] is None


def test_one_run_each_gives_no_verdict_and_no_colour(tmp_path):
    a = save(tmp_path, "a.json", result("a", power=400, u=0.003))
    b = save(tmp_path, "b.json", result("b", power=200, u=0.004))
    got, doc = rows(a, b)
    assert got["b"]["energy_per_iteration_joules"]["change_verdict"] == "cannot-tell"
    assert got["a"]["energy_per_iteration_joules"]["change_verdict"] is None
    assert any(n.startswith("Each row has one run, so the variation between runs is unknown.") for n in doc["notes"])
    assert not any("geometric" in n for n in doc["notes"])
    painted = re.compile(r"\x1b\[[0-9;]+m *-\d\d\.\d % \[")
    assert not painted.search(compare(a, b, "--color=always").stdout)
    more = save(tmp_path, "c.json", result("a", power=400, trials=3, spread=0.001))
    assert painted.search(compare(more, b, "--color=always").stdout)


def test_one_run_is_taken_to_scatter_as_the_trials_do(tmp_path):
    a = result("a", power=400, trials=4, spread=0.1, series=False)
    b = result("b", power=320, u=0.004)
    trials, once = save(tmp_path, "a.json", a), save(tmp_path, "b.json", b)
    got, doc = rows(trials, once)
    extra = math.hypot(0.004, 2.5 * abs(1 / mean_power(a) - 1 / mean_power(b)))
    low, best, high = expected_change(energies(a), energies(b), extra)
    figure = got["b"]["energy_per_iteration_joules"]
    assert figure["change_basis"] == "one-side" and figure["change_verdict"] == "cannot-tell"
    assert figure["change_ratio"]["best"] == pytest.approx(best, rel=1e-9)
    assert figure["change_ratio"]["low"] == pytest.approx(low, abs=2e-5)
    assert figure["change_ratio"]["high"] == pytest.approx(high, abs=2e-5)
    assert got["b"]["latency_seconds"]["change_ratio"]["low"] is not None
    assert any("the single run is assumed to vary like the others" in n for n in doc["notes"])
    assert any("ratios of geometric means" in n for n in doc["notes"])
    # With the results exchanged, the interval is the inverse.
    turned = rows(once, trials)[0]["a"]["energy_per_iteration_joules"]["change_ratio"]
    assert (1 + turned["low"]) * (1 + figure["change_ratio"]["high"]) == pytest.approx(1)


def test_fewer_runs_never_give_a_narrower_interval(tmp_path):
    a = save(tmp_path, "a.json", result("a", power=400, trials=3, spread=0.1, series=False))
    width = []
    for trials in (3, 1):
        doc = result("b", power=300, trials=3, spread=0.1, seed=5, series=False)
        doc["runs"] = doc["runs"][:trials]
        got, _ = rows(a, save(tmp_path, "b.json", doc))
        change = got["b"]["energy_per_iteration_joules"]["change_ratio"]
        width.append(math.log1p(change["high"]) - math.log1p(change["low"]))
    assert width[1] > width[0]


def test_the_gain_is_in_the_energy_but_not_in_its_change(tmp_path):
    a = save(tmp_path, "a.json", result("a", power=300, u=0.001))
    b = save(tmp_path, "b.json", result("b", power=301, u=0.001))
    got, _ = rows(a, b)
    figure = got["b"]["energy_per_iteration_joules"]
    value, fair, change = figure["value"], figure["comparable"], figure["change_ratio"]
    assert (value["high"] - value["low"]) / value["best"] > 0.09
    assert (fair["high"] - fair["low"]) / fair["best"] < 0.005
    assert change["high"] - change["low"] < 0.007


def test_the_true_value_is_never_known_better_than_a_comparison(tmp_path):
    for spread in (0.0, 0.001, 0.02, 0.3):
        doc = result("a", trials=2, spread=spread, seed=4)
        figure = rows(save(tmp_path, "a.json", doc))[0]["a"]["energy_per_iteration_joules"]
        assert figure["value"]["high"] >= figure["comparable"]["high"] - 1e-12


@pytest.mark.parametrize("key, count", [("energy_per_iteration_joules", 1000),
                                        ("energy_per_token_joules", 500),
                                        ("energy_joules", 1), ("power_mean_watts", 12.5)])
def test_no_number_of_trials_lessens_gain_and_offset(tmp_path, key, count):
    """The interval of each run includes the gain error, so the interval of their mean must include it too."""
    given = dict(iterations=None) if key == "energy_joules" else dict(tokens=500)
    for trials in (1, 2, 5, 20):
        doc = result("a", trials=trials, spread=0.001, u=0.002, seed=trials, **given)
        got, _ = rows(save(tmp_path, f"{trials}.json", doc))
        value, fair = got["a"][key]["value"], got["a"][key]["comparable"]
        each = [r["energy_joules"]["best"] / count for r in doc["runs"]]
        mean = sum(each) / trials
        sd = math.sqrt(sum((v - mean) ** 2 for v in each) / (trials - 1)) if trials > 1 else 0
        half = student_factor(trials - 1) * sd / math.sqrt(trials) if trials > 1 \
            else 1.96 * 0.002 * mean
        whole = math.hypot(half, 1.96 * 0.025 * mean)
        assert value["best"] == pytest.approx(mean)
        assert fair["high"] - mean == pytest.approx(half, rel=1e-4)
        assert value["high"] - mean == pytest.approx(whole, rel=1e-4)
        assert mean - value["low"] == pytest.approx(whole, rel=1e-4)


def test_every_format_has_the_whole_interval(tmp_path):
    path = save(tmp_path, "a.json", result("a", power=16, seconds=1, iterations=1, trials=2))
    low, high = 16 * (1 - 1.96 * 0.025), 16 * (1 + 1.96 * 0.025)
    text = f"[{low:.2f}, {high:.2f}]"
    assert text in compare(path).stdout
    assert text in compare(path, "--format=markdown").stdout.replace("\\", "")
    read = list(csv.DictReader(io.StringIO(compare(path, "-f", "csv").stdout)))[0]
    assert float(read["energy_per_iteration_joules_low"]) == pytest.approx(low, abs=1e-3)
    assert f"{low:.2f} – {high:.2f}" in gpuward("report", path).stdout


def test_a_run_may_count_its_own_iterations(tmp_path):
    doc = result("a", iterations=None, trials=2)
    for run, n in zip(doc["runs"], (10, 20)):
        run["iterations"] = n
    got, _ = rows(save(tmp_path, "a.json", doc))
    assert got["a"]["latency_seconds"]["value"]["best"] == pytest.approx((1.25 + 0.625) / 2)


def test_a_code_of_level_valid_is_shown_as_a_note(tmp_path):
    doc = result("a", codes=("short",))
    doc["runs"][0]["codes"][0]["level"] = "valid"
    assert "a: note: short" in compare(save(tmp_path, "a.json", doc)).stdout


def test_rows_come_in_order_of_first_sight_and_files_of_a_label_are_trials(tmp_path):
    paths = [
        save(tmp_path, "1.json", result("zebra", trials=2, spread=0.01)),
        save(tmp_path, "2.json", result("apple")),
        save(tmp_path, "3.json", result("zebra", seed=7, power=310)),
    ]
    got, doc = rows(*paths)
    assert list(got) == ["zebra", "apple"]
    assert got["zebra"]["runs"] == 3 and got["zebra"]["files"] == [str(paths[0]), str(paths[2])]
    assert doc["reference"] == "zebra"
    assert got["zebra"]["energy_per_iteration_joules"]["change_ratio"] is None


def test_parts_of_a_command_are_rows_of_their_own(tmp_path):
    whole, one, other = result("B", trials=2), result("B", power=350), result("B", power=320)
    one["runs"][0]["part"] = "inference"
    other["runs"][0]["part"] = "load"
    paths = [save(tmp_path, f"{i}.json", d) for i, d in enumerate((whole, one, other))]
    got, _ = rows(*paths)
    assert list(got) == ["B", "B (inference)", "B (load)"]
    assert [r["part"] for r in got.values()] == [None, "inference", "load"]
    assert [r["runs"] for r in got.values()] == [2, 1, 1]
    for args in ((), ("--format=markdown",), ("--format=csv",)):
        assert "B (inference)" in compare(*paths, *args).stdout
    assert "B (inference)" in gpuward("report", *paths).stdout
    assert "B (inference)" in gpuward("plot", *paths).stdout


def test_different_iterations_under_one_label_are_reported(tmp_path):
    a = save(tmp_path, "a.json", result("B", iterations=10))
    b = save(tmp_path, "b.json", result("B", iterations=1000))
    assert "B: its runs have different numbers of iterations (10 to 1000)" in compare(a, b).stdout
    bad = save(tmp_path, "b.json", result("B", iterations=1000, codes=("child-failed",)))
    assert "different numbers of iterations" not in compare(a, bad).stdout
    same = save(tmp_path, "b.json", result("B", iterations=10, power=301))
    assert "different numbers of iterations" not in compare(a, same).stdout


def test_invalid_runs_are_left_out_and_reported(tmp_path):
    good = result("a", trials=2, spread=0.01)
    bad = result("b", trials=3, codes=[(), ("throttle-power",), ("child-failed",)])
    bad["runs"][2]["energy_per_iteration_joules"]["best"] = 1e6  # must not be used
    paths = save(tmp_path, "a.json", good), save(tmp_path, "b.json", bad)
    got, doc = rows(*paths)
    assert got["b"]["runs"] == 3 and got["b"]["runs_used"] == 2
    assert got["b"]["energy_per_iteration_joules"]["value"]["best"] == pytest.approx(3.75)
    notes = " / ".join(doc["notes"])
    assert "b: 1 of 3 runs is invalid and not used" in notes
    assert "invalid: child-failed in 1 of 3 runs: the program ended with an error" in notes
    assert "suspect: throttle-power" in notes and "24.8 %" in notes
    text = compare(*paths).stdout
    assert "2 of 3" in text and "! suspect" in text


def test_the_first_row_with_a_usable_run_is_the_reference(tmp_path):
    paths = [save(tmp_path, "a.json", result("A", codes=("child-failed",))),
             save(tmp_path, "b.json", result("B", power=300)),
             save(tmp_path, "c.json", result("C", power=150))]
    got, doc = rows(*paths)
    assert doc["reference"] == "B"
    assert got["C"]["energy_per_iteration_joules"]["change_ratio"]["best"] == pytest.approx(-0.5)
    assert got["B"]["energy_per_iteration_joules"]["change_ratio"] is None
    assert got["A"]["energy_per_iteration_joules"]["change_ratio"] is None
    said = "Changes are relative to 'B', the first row that can be compared: 'A' has no usable run"
    assert said in compare(*paths).stdout
    assert "changes relative to “B”" in gpuward("report", *paths).stdout
    plain = compare(*paths[1:]).stdout
    assert "Changes are relative to 'B'. " in plain and "no usable run" not in plain


def test_a_comparison_with_only_invalid_runs_is_shown_and_fails(tmp_path):
    path = save(tmp_path, "a.json", result("a", codes=("child-failed",)))
    done = compare(path, code=FAILED)
    assert "! invalid" in done.stdout and "0 of 1" in done.stdout
    assert "no usable run" in done.stderr


def test_different_gpus_are_refused_unless_asked_for(tmp_path):
    a = save(tmp_path, "a.json", result("a", power=300))
    b = save(tmp_path, "b.json", result("b", power=300, uuid="GPU-other", name="NVIDIA L4"))
    done = compare(a, b, code=USAGE)
    assert done.stdout == ""
    assert f"{a} was measured on NVIDIA H200 ({UUID}, driver 580.159.04)" in done.stderr
    assert f"{b} was measured on NVIDIA L4 (GPU-other" in done.stderr
    assert "--across-gpus" in done.stderr
    got, doc = rows(a, b, "--across-gpus")
    change = got["b"]["energy_per_iteration_joules"]["change_ratio"]
    assert change["high"] - change["low"] > 0.13  # two gains of 2.5 % that do not cancel
    assert got["b"]["other_gpu"] is True
    assert any("gain" in n for n in doc["notes"])


def test_a_sum_over_gpus_is_called_a_sum(tmp_path):
    one = save(tmp_path, "one.json", result("one"))
    two = save(tmp_path, "two.json", result("two", gpus=2))
    also = save(tmp_path, "also.json", result("also", gpus=2))
    assert "Power and energy are sums over 2 GPUs." in rows(two, also)[1]["notes"]
    assert "two: power and energy are sums over 2 GPUs" in rows(one, two, "--across-gpus")[1]["notes"]
    assert not any("sums" in n for n in rows(one)[1]["notes"])


def test_results_of_one_calibration_have_its_offset_and_others_the_gain(tmp_path):
    def calibrated(label, power, gain):
        doc = result(label, power=power, u=0.001)
        doc["runs"][0]["devices"][0]["sensor"].update(
            {"calibrated": True, "gain": gain, "offset_watts": 0, "gain_uncertainty": 0.001,
             "offset_uncertainty_watts": 0.3, "pivot_watts": 400, "reference_uncertainty": 0.005})
        return save(tmp_path, f"{label}.json", doc)

    got, _ = rows(calibrated("a", 400, 1.06), calibrated("b", 200, 1.06))
    u = math.sqrt(2 * 0.001**2 + (math.hypot(0.3, 0.4) * abs(1 / 400 - 1 / 200)) ** 2)
    change = got["b"]["energy_per_iteration_joules"]["change_ratio"]
    assert change["high"] == pytest.approx(0.5 * math.exp(1.96 * u) - 1, abs=1e-6)
    assert got["b"]["other_scale"] is False
    got, doc = rows(calibrated("a", 400, 1.06), calibrated("b", 200, 1.07))
    change = got["b"]["energy_per_iteration_joules"]["change_ratio"]
    assert change["high"] - change["low"] > 0.5 * 2 * 1.96 * 0.03
    assert got["b"]["other_scale"] is True
    assert any("different calibrations" in n for n in doc["notes"])
    assert "cancels in" not in "".join(doc["notes"])  # there is no change in which the gain error cancels
    _, doc = rows(calibrated("a", 400, 1.06), calibrated("b", 200, 1.07), calibrated("c", 300, 1.06))
    assert "of one GPU with one calibration it cancels" in doc["notes"][-1]


@pytest.mark.parametrize("key", ["uuid", "driver"])
def test_another_board_or_driver_is_another_gpu(tmp_path, key):
    a = save(tmp_path, "a.json", result("a"))
    b = save(tmp_path, "b.json", result("b", **{key: "590.1"}))
    compare(a, b, code=USAGE)


def test_simulated_results_are_marked_in_every_format(tmp_path):
    path = save(tmp_path, "a.json", result("a", simulated=True))
    assert "SIMULATED" in compare(path).stdout
    assert "valid, simulated" in compare(path, "--format=markdown").stdout
    assert compare(path, "--format=markdown").stdout.startswith("**SIMULATED**: these GPUs are not real\n\n| Label")
    latex = compare(path, "--format=latex").stdout
    columns = len(re.search(r"\\begin\{tabular\}\{(.*)\}", latex)[1])
    assert f"\\multicolumn{{{columns}}}{{l}}{{\\textbf{{SIMULATED}}: these GPUs are not real}} \\\\\n\\bottomrule" in latex
    assert ",true," in compare(path, "--format=csv").stdout
    assert rows(path)[0]["a"]["simulated"] is True


def test_simulated_results_are_marked(tmp_path):
    a = save(tmp_path, "a.json", result("a", simulated=True))
    b = save(tmp_path, "b.json", result("b", simulated=True))
    c = save(tmp_path, "c.json", result("c"))
    assert "these GPUs are not real" in compare(a, b).stdout
    assert "the GPUs of the marked rows are not real" in compare(a, c).stdout
    assert "real" not in compare(c).stdout


def test_without_iterations_whole_runs_are_compared(tmp_path):
    a = save(tmp_path, "a.json", result("a", iterations=None, size=None))
    b = save(tmp_path, "b.json", result("b"))
    got, doc = rows(a, b)
    assert got["b"]["seconds"]["value"]["best"] == 12.5
    assert got["b"]["energy_joules"]["value"]["best"] == 3750
    assert got["a"]["model_size_bytes"]["value"] is None
    assert any("whole runs" in n for n in doc["notes"])


def test_the_spread_of_the_load_is_not_shown_as_an_interval(tmp_path):
    path = save(tmp_path, "a.json", result("a"))
    text = compare(path).stdout
    assert "POWER (S.D.)" in text and " 300.0 W (12.0) " in text
    marked = compare(path, "--format=markdown").stdout
    assert "Power (s.d. over time)" in marked and " 300.0 W (12.0) " in marked
    page = gpuward("report", path).stdout
    assert "Power (s.d. over time)" in page and ">(12.0)<" in page
    for out in (text, marked, page):
        assert "±" not in out


def test_energy_per_token_is_there_where_it_is_known(tmp_path):
    a = save(tmp_path, "a.json", result("a", tokens=500))
    b = save(tmp_path, "b.json", result("b", tokens=1000))
    got, _ = rows(a, b)
    assert got["a"]["energy_per_token_joules"]["value"]["best"] == 7.5
    assert got["b"]["energy_per_token_joules"]["change_ratio"]["best"] == pytest.approx(-0.5)
    assert "ENERGY/TOKEN" in compare(a, b).stdout
    assert "ENERGY/TOKEN" not in compare(save(tmp_path, "c.json", result("c"))).stdout


@pytest.mark.parametrize("size, text", [
    (128e6, "128 MB"), (128 * 2**20, "128 MiB"), (1.5e9, "1.5 GB"), (1.5 * 2**30, "1.5 GiB"),
    (13.476e9, "13.476 GB"), (123456789, "117.7 MiB"), (7, "7 B"), (2**20, "1 MiB"),
    (1e6, "1 MB"), (1000 * 2**20, "1000 MiB"), (0, "0 B"), (999999, "999.999 kB")])
def test_a_size_reads_back_as_it_was_given(tmp_path, size, text):
    path = save(tmp_path, "a.json", result("a", size=size))
    assert f" {text}\n" in compare(path, "--metric=size").stdout
    assert f" {text} |" in compare(path, "--format=markdown").stdout
    assert f">{text}</td>" in gpuward("report", path).stdout


@pytest.mark.parametrize("label, shown", [("=1+1", "'=1+1"), ("+1", "'+1"), ("-1", "'-1"), ("@SUM(A1)", "'@SUM(A1)"),
                                          ("a=b", "a=b"), ("a\nb\u202ec", "a?b?c"), ("\t=1", "?=1")])
def test_a_spreadsheet_does_not_evaluate_a_label(tmp_path, label, shown):
    a, b = save(tmp_path, "a.json", result(label)), save(tmp_path, "b.json", result("plain", power=250.0))
    got = list(csv.DictReader(io.StringIO(compare(a, b, "-f", "csv").stdout, newline="")))
    assert [r["label"] for r in got] == [shown, "plain"]
    assert float(got[1]["power_mean_watts_change_ratio"]) < 0  # a negative number stays a number


def test_csv_reads_back(tmp_path):
    label = 'a,"b" c'
    a = save(tmp_path, "a.json", result(label, trials=2, spread=0.01))
    b = save(tmp_path, "b.json", result("plain"))
    got = list(csv.DictReader(io.StringIO(compare(a, b, "-f", "csv").stdout, newline="")))
    assert [r["label"] for r in got] == [label, "plain"]
    assert float(got[1]["power_mean_watts"]) == pytest.approx(300)
    assert got[0]["energy_per_iteration_joules_change_ratio"] == ""
    assert float(got[1]["energy_per_iteration_joules_change_ratio"]) != 0
    assert [r["energy_per_iteration_joules_change_verdict"] for r in got] == ["", "cannot-tell"]
    assert None not in got[0] and None not in got[0].values()


def test_markdown_keeps_its_columns_whatever_the_label(tmp_path):
    a = save(tmp_path, "a.json", result("a|b `c` <d>\n| e"))
    lines = compare(a, "--format=markdown").stdout.splitlines()
    table = [l for l in lines if l.startswith("|")]
    assert len(table) == 3
    bars = [l.replace("\\|", "").count("|") for l in table]
    assert len(set(bars)) == 1


def test_metric_chooses_columns(tmp_path):
    a = save(tmp_path, "a.json", result("a"))
    text = compare(a, "--metric=power").stdout
    assert "POWER" in text and "LATENCY" not in text
    assert "not 'joules'" in compare(a, "--metric=joules", code=USAGE).stderr


def test_text_fits_the_terminal_and_has_no_colour_for_pipes(tmp_path):
    paths = [save(tmp_path, f"{n}.json", result(n, trials=2, spread=0.01)) for n in ("a", "b")]
    for columns in (40, 60, 80, 120):
        out = compare(*paths, env=environment(COLUMNS=columns)).stdout
        assert "\x1b" not in out
        assert "ENERGY/ITER" in out and re.search(r"[-+]\d+\.\d %", out)
        assert max(len(l) for l in out.splitlines()) <= columns
        assert not re.search(r" $", out, re.M)
    coloured = compare(*paths, "--color=always", env=WIDE).stdout
    assert "\x1b[" in coloured
    assert "\x1b" not in compare(*paths, env=environment(COLUMNS=200, NO_COLOR=1)).stdout


def three(tmp_path, **more):
    """Results of one model with FP32, FP16 and INT8, five trials each, whose latencies differ a little."""
    def trials(*args, **kw):
        doc = result(*args, **kw)
        for i, run in enumerate(doc["runs"]):
            if run["latency_seconds"]:
                run["latency_seconds"] *= 1 + 1e-3 * (i - 2)
        return doc
    return [save(tmp_path, f"{n}.json", trials(n, power=p, seconds=s, size=b, trials=5, spread=0.01, **more))
            for n, p, s, b in (("fp32", 412, 16.2, 512e6), ("fp16", 298, 9.1, 256e6), ("int8", 241, 7.7, 128e6))]


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
def test_table_at_common_widths_is_as_it_was(tmp_path, columns):
    out = compare(*three(tmp_path), env=environment(COLUMNS=columns)).stdout
    golden = TOP / "tests" / "golden" / f"compare-{columns}.txt"
    if os.environ.get("GPUWARD_GOLDEN") == "write":
        golden.write_text(out)
    assert out == golden.read_text()


@pytest.mark.parametrize("more", [{}, {"tokens": 500}, {"label": "a-label-that-is-much-longer-than-a-column"}])
def test_eighty_columns_show_every_figure(tmp_path, more):
    label = more.pop("label", "fp32")
    paths = three(tmp_path, **more)
    paths[0] = save(tmp_path, "first.json", result(label, power=412, seconds=16.2, size=512e6, trials=5, spread=0.01,
                                                   **more))
    out = compare(*paths, env=environment(COLUMNS=80)).stdout
    head = out.splitlines()[0].split()
    assert head[:2] == ["LABEL", "LATENCY"] and {"POWER", "ENERGY/ITER", "SIZE"} <= set(head)
    assert ("ENERGY/TOKEN" in head) == ("tokens" in more)
    for figure in ("fp16", "9.100 ms", "298.6 W", "2.717 J", "256 MB", "-59.4 %", "[2.578, 2.856]", "[-60.1, -58.7]"):
        assert figure in out, figure


@pytest.mark.parametrize("columns", range(40, 260, 20))
def test_what_a_narrow_terminal_hides_is_reported_and_energy_is_never_hidden(tmp_path, columns):
    paths = [save(tmp_path, f"{n}.json", result(n, trials=2, spread=0.01, tokens=500))
             for n in ("a", "b")]
    out = compare(*paths, env=environment(COLUMNS=columns)).stdout
    head = out.splitlines()[0]
    assert "ENERGY/ITER" in head
    words = " ".join(out.split())
    left = re.search(r"Hidden because the terminal is narrow: (.*?)\. To see all: use (\d+) columns", words)
    hidden = left[1].split(", ") if left else []
    for name, word in {"LATENCY": "latency", "POWER": "power", "ENERGY/TOKEN": "token", "SIZE": "size"}.items():
        assert (name in head) != (word in hidden), (name, out)
    if "POWER" in head:
        assert ("(S.D.)" in head) != ("intervals of power" in hidden)
    if left:
        assert "Hidden because" not in compare(*paths, env=environment(COLUMNS=left[2])).stdout
        assert "Hidden because" in compare(*paths, env=environment(COLUMNS=int(left[2]) - 1)).stdout
    assert "Hidden because" not in compare(*paths, "-q", env=environment(COLUMNS=columns)).stdout


def test_net_energy_is_shown_if_every_run_has_a_baseline(tmp_path):
    paths = three(tmp_path)
    for path in paths:
        doc = json.loads(path.read_text())
        for run in doc["runs"]:
            best = run["energy_net_joules"]["best"]
            run["energy_net_joules"].update(low=best * 0.9, high=best * 1.1)
        path.write_text(json.dumps(doc))
    got, _ = rows(*paths)
    for label in ("fp32", "fp16"):
        net = got[label]["energy_net_per_iteration_joules"]
        runs = [r["energy_net_joules"]["best"] / 1000 for r in json.loads((tmp_path / f"{label}.json").read_text())["runs"]]
        assert net["value"]["best"] == pytest.approx(statistics.mean(runs)) and net["comparable"]["low"] is None
        assert net["value"]["low"] < min(runs) and net["value"]["high"] > max(runs)
    gross, net = (got["fp16"][k]["change_ratio"] for k in ("energy_per_iteration_joules", "energy_net_per_iteration_joules"))
    assert net["high"] - net["low"] > 5 * (gross["high"] - gross["low"])  # the gain error does not cancel
    assert "NET/ITER" in compare(*paths, env=environment(COLUMNS=200)).stdout.splitlines()[0]
    narrow = " ".join(compare(*paths, env=environment(COLUMNS=80)).stdout.split())
    assert "NET/ITER" not in narrow and "Hidden because the terminal is narrow: net energy. To see all" in narrow
    assert "Net energy per iteration (J) & Change" in compare(*paths, "--format=latex").stdout
    said = compare(*paths, "--format=sentence").stdout
    assert re.search(r"16\.200 ms \[[^]]*\], of which [0-9.]+ J \[[^]]*\] above the baseline \(no-context\) \(95 %", said), said
    bare = result("bare")
    bare["runs"][0]["energy_net_joules"] = None
    mixed = [*paths, save(tmp_path, "bare.json", bare)]
    assert "energy_net_per_iteration_joules" not in rows(*mixed)[0]["fp32"]
    assert "above the baseline" not in compare(*mixed, "--format=sentence").stdout
    asked, _ = rows(*mixed, "--metric=net")
    assert asked["bare"]["energy_net_per_iteration_joules"]["value"] is None
    # A wrong baseline can make net energy negative; the interval then contains the value.
    below = result("below")
    below["runs"][0]["energy_net_joules"] = {"low": -30.0, "best": -20.0, "high": -10.0}
    value = rows(save(tmp_path, "below.json", below))[0]["below"]["energy_net_per_iteration_joules"]["value"]
    assert value["low"] < value["best"] < value["high"] and value["best"] == pytest.approx(-0.02)


def test_net_energy_close_to_zero_keeps_its_whole_interval(tmp_path):
    """A relative uncertainty of a value near 0 has no meaning: 13 J of 0.05 J is 26,000 %."""
    doc = result("near", trials=2)
    for run, best in zip(doc["runs"], (-0.05, 0.0501)):
        run["energy_net_joules"] = {"low": best - 13, "best": best, "high": best + 13}
    value = rows(save(tmp_path, "near.json", doc))[0]["near"]["energy_net_per_iteration_joules"]["value"]
    assert value["high"] - value["best"] == pytest.approx(13 / 1000, rel=0.1)
    assert value["best"] - value["low"] == pytest.approx(13 / 1000, rel=0.1)


def test_heading_names_what_a_value_is_divided_by(tmp_path):
    runs = save(tmp_path, "a.json", result("a", iterations=None))
    assert {"TIME/RUN", "ENERGY/RUN"} <= set(compare(runs).stdout.splitlines()[0].split())


def test_changes_are_relative_to_the_reference_that_is_given(tmp_path):
    paths = three(tmp_path)
    got, doc = rows(*paths, "--reference", "fp16")
    assert doc["reference"] == "fp16"
    first = rows(*paths)[0]["fp16"]["energy_per_iteration_joules"]["change_ratio"]
    turned = got["fp32"]["energy_per_iteration_joules"]["change_ratio"]
    assert (1 + turned["low"]) * (1 + first["high"]) == pytest.approx(1)
    assert got["fp16"]["energy_per_iteration_joules"]["change_ratio"] is None
    note, = [n for n in doc["notes"] if n.startswith("Changes are relative")]
    assert note.startswith("Changes are relative to 'fp16'. They")
    assert "did you mean 'fp16'?" in compare(*paths, "--reference=fp17", code=USAGE).stderr
    said = compare(*paths, "--reference=bfloat", code=USAGE).stderr
    assert "the labels are: 'fp32', 'fp16', 'int8'" in said
    bad = save(tmp_path, "bad.json", result("bad", codes=("child-failed",)))
    assert "'bad' has no usable run" in compare(*paths, bad, "--reference=bad", code=FAILED).stderr
    page = gpuward("report", *paths, "--reference=int8").stdout
    assert "changes relative to “int8”" in page


def test_latex_is_a_table_with_one_cell_per_column(tmp_path):
    paths = three(tmp_path)
    odd = save(tmp_path, "odd.json", result("50% of_a & b\\#~^{x}$|<\n\\end{tabular}", power=300, trials=2, spread=0.01))
    out = compare(*paths, odd, "--format=latex", "--reference=fp32").stdout
    body = [l for l in out.splitlines() if not l.startswith("%")]
    assert body[0].startswith(r"\begin{tabular}{lr") and body[1] == r"\toprule" and body[-2] == r"\bottomrule"
    assert out.count(r"\end{tabular}") == 1 and body[-1] == r"\end{tabular}"
    columns = len(re.fullmatch(r"\\begin\{tabular\}\{([lr]+)\}", body[0])[1])
    lines = [l for l in body if l.endswith(r" \\")]
    assert len(lines) == 5
    for l in lines:
        bare = re.sub(r"\\[\\&%#_${}]", "", l[:-3])
        assert bare.count("&") == columns - 1, l
        assert bare.count("$") % 2 == 0 and "%" not in bare and "#" not in bare
        assert bare.count("{") == bare.count("}")
    assert "Latency (ms)" in lines[0] and "(J)" in lines[0]
    assert "$-59.4$ {[}$-60.1$, $-58.7$]" in out
    assert r"50\% of\_a \& b\textbackslash{}\#\textasciitilde{}\textasciicircum{}\{x\}\$" in out
    assert "Validity" not in out  # all rows are valid
    suspect = save(tmp_path, "s.json", result("s", codes=("throttle-power",), simulated=True))
    assert "suspect, simulated" in compare(*paths, suspect, "--format=latex").stdout
    micro = save(tmp_path, "m.json", result("m", seconds=0.01, power=1))
    assert r"($\mu$s)" in compare(micro, "--format=latex").stdout


def test_sentence_says_what_a_paper_must_say(tmp_path):
    out = compare(*three(tmp_path), "--format=sentence").stdout
    assert out.count("\n") == 1
    assert out.startswith("On one NVIDIA H200 (driver 580.159.04, power limit 700 W), fp32 took 6.687 J [6.346, 7.029] "
                          "per iteration in 16.200 ms")
    for words in ("5 runs of 1000 iterations", "gross GPU energy by the energy counter, energy counter and power samples agree",
                  "gpuward 0.1.0",
                  "Relative to fp32, its energy per iteration is 59.4 % lower [58.7, 60.1]",
                  "the gain error of the sensor cancels"):
        assert words in out, words
    once = [save(tmp_path, f"{n}.json", result(n, power=p, codes=c)) for n, p, c in
            (("a", 300, ()), ("b", 299, ("throttle-power",)))]
    out = compare(*once, "--format=sentence").stdout
    assert "with one run each, the variation between runs is unknown" in out
    assert "Runs of b are suspect: throttle-power." in out
    many = [save(tmp_path, f"many-{i}.json", result(f"label-{i}", power=300 + i)) for i in range(120)]
    out = compare(*many, "--format=sentence").stdout
    assert len(out) > 16384 and "label-119" in out and out.count("\n") == 1
    mixed = result("mixed", trials=2)
    mixed["runs"][1]["devices"][0]["meter"] = "samples"
    short = result("short")
    short["runs"][0]["devices"][0]["meter"] = "samples"
    out = compare(save(tmp_path, "mixed.json", mixed), save(tmp_path, "short.json", short), "--format=sentence").stdout
    assert "gross GPU energy partly by the energy counter, partly from power samples, energy counter and power samples agree" in out
    assert "(1 run of 1000 iterations; from power samples)" in out
    made_up = save(tmp_path, "sim.json", result("sim", simulated=True))
    assert compare(made_up, "--format=sentence").stdout.startswith("SIMULATED, do not publish: ")


def test_a_change_that_rounds_to_zero_has_no_minus(tmp_path):
    paths = [save(tmp_path, f"{n}.json", result(n, power=p, trials=5, spread=0.001)) for n, p in (("a", 300), ("b", 299.97))]
    for out in (compare(*paths).stdout, compare(*paths, "--format=sentence").stdout,
                gpuward("diff", *paths).stdout):
        assert "+0.0 %" in out and "-0.0" not in out, out


def test_a_small_change_has_enough_digits_to_show_its_interval(tmp_path):
    def change(power, spread):
        paths = [save(tmp_path, f"{n}.json", result(n, power=p, trials=5, spread=spread)) for n, p in (("a", 300), ("b", power))]
        return compare(*paths, "--metric=energy", "--format=markdown").stdout + compare(*paths, "--format=sentence").stdout
    small = change(300.03, 1e-6)
    assert "+0.010 % |" in small and "is 0.010 % higher (95 %" in small  # the interval is narrower than the last digit
    assert re.search(r"\+0\.00 % \[-0\.0[1-9], \+0\.0[1-9]\]", change(300, 1e-4))
    none = change(300, 1e-7)
    assert "| no difference [within 0.001 %]" in none or "no difference [within 0.001 %] |" in none
    assert "its energy per iteration shows no difference [within 0.001 %] (95 %" in none
    assert re.search(r"\+1\.0 % \[\+\d\.\d, \+\d\.\d\]", change(303, 0.001))


def test_the_change_of_net_energy_is_stated_with_its_own_errors(tmp_path):
    paths = three(tmp_path)
    said = compare(*paths, "--format=sentence").stdout
    assert re.search(r"Its energy above the baseline is 63\.0 % lower \[[\d.]+, [\d.]+\] "
                     r"\(95 %; the errors of sensor and baseline are included\)", said), said
    assert "it cancels, except in net energy." in rows(*paths)[1]["notes"][-1]
    assert "Net per run" in gpuward("diff", *paths[:2]).stdout
    for path in paths:
        doc = json.loads(path.read_text())
        doc["runs"][0]["energy_net_joules"] = None
        path.write_text(json.dumps(doc))
    assert rows(*paths)[1]["notes"][-1].endswith("it cancels.")
    assert "above the baseline" not in compare(*paths, "--format=sentence").stdout


def test_an_interval_that_is_cut_at_zero_is_reported(tmp_path):
    doc = result("wide", trials=2)
    for run, factor in zip(doc["runs"], (0.5, 1.5)):
        for key in ("energy_joules", "energy_relative_joules", "energy_per_iteration_joules"):
            run[key] = {k: v * factor for k, v in run[key].items()}
    got, doc = rows(save(tmp_path, "wide.json", doc))
    assert got["wide"]["energy_per_iteration_joules"]["value"]["low"] == 0
    assert any("wide: the interval of energy reaches below 0 and is cut at 0" in n for n in doc["notes"])
    assert not any("cut at 0" in n for n in rows(save(tmp_path, "a.json", result("a", trials=2)))[1]["notes"])


def test_quiet_leaves_out_the_notes_of_every_table(tmp_path):
    path = save(tmp_path, "a.json", result("a", codes=("short",)))
    assert "%" not in re.sub(r"\\%", "", compare(path, "-q", "--format=latex").stdout)
    assert "- a: " not in compare(path, "-q", "--format=markdown").stdout
    assert "- a: " in compare(path, "--format=markdown").stdout


def test_a_size_is_exact_and_has_a_verdict(tmp_path):
    paths = [save(tmp_path, f"{n}.json", result(n, size=size)) for n, size in (("a", 512e6), ("b", 256e6), ("c", 512e6))]
    got = rows(*paths)[0]
    assert [got[n]["model_size_bytes"]["change_verdict"] for n in "bc"] == ["less", "cannot-tell"]


def test_a_failed_run_with_iterations_is_not_reported_as_without_them(tmp_path):
    path = save(tmp_path, "fail.json", result("fail", iterations=10, codes=("child-failed",)))
    out = compare(path, code=FAILED).stdout
    assert "iterations is unknown" not in out and "fail: its only run is invalid and not used" in out


def test_runs_with_and_without_a_characterised_sensor_have_a_note(tmp_path):
    paths = []
    for name, origin in (("a", "active"), ("b", "assumed")):
        doc = result(name)
        doc["runs"][0]["devices"][0]["sensor"]["origin"] = origin
        paths.append(save(tmp_path, f"{name}.json", doc))
    said = "different knowledge about the sensor (a: sensor characterised; b: sensor not characterised)"
    assert any(said in n for n in rows(*paths)[1]["notes"])
    assert not any("different knowledge" in n for n in rows(paths[0])[1]["notes"])


def test_an_interval_is_printed_with_a_width_or_not_at_all(tmp_path):
    for scatter, shown in ((1e-4, r"12\.500\d ms \[12\.49\d\d, 12\.50\d\d\]"), (1e-6, r"12\.50000 ms \[12\.4999\d, 12\.5000\d\]"),
                           (0, "12.50 ms")):
        doc = result("a", trials=3)
        for i, run in enumerate(doc["runs"]):
            run["latency_seconds"] *= 1 + scatter * (i - 1)
        path = save(tmp_path, "a.json", doc)
        for out in (compare(path).stdout, compare(path, "--format=markdown").stdout, compare(path, "--format=sentence").stdout):
            assert re.search(shown, re.sub(r" \(.*?\)|\s+", " ", out)), (scatter, out)
            for low, high in re.findall(r"\[([-+.\d]+), ([-+.\d]+)\]", out):
                assert low != high, out


def test_the_widest_number_of_an_interval_decides_the_unit(tmp_path):
    doc = result("near", trials=1)
    doc["runs"][0]["energy_net_joules"] = {"low": -38.92, "best": 0.00026033, "high": 39.4411}
    path = save(tmp_path, "near.json", doc)
    assert "| 0.00 mJ [-39.44, 39.44] |" in compare(path, "--format=markdown").stdout
    doc["runs"][0]["energy_net_joules"] = {"low": -1035.0, "best": -0.0001, "high": 1034.0}
    path = save(tmp_path, "near.json", doc)
    for out in (compare(path, "--format=markdown").stdout, compare(path, "--format=latex").stdout,
                gpuward("diff", path, save(tmp_path, "b.json", result("b", seconds=13))).stdout):
        assert not re.search(r"-0\.0+\b(?!\d)", out), out


def test_latex_has_the_digits_of_the_other_formats(tmp_path):
    paths = [save(tmp_path, f"{n}.json", result(n, power=p, trials=5, spread=1e-4)) for n, p in (("a", 300), ("b", 300))]
    text = re.search(r"([-+.\d]+) % \[([-+.\d]+), ([-+.\d]+)\]", compare(*paths, "--metric=energy", "--format=markdown").stdout)
    latex = re.search(r"\$([-+.\d]+)\$ \{\[\}\$([-+.\d]+)\$, \$([-+.\d]+)\$\] \\\\\n\\bottomrule",
                      compare(*paths, "--metric=energy", "--format=latex").stdout)
    assert latex.groups() == text.groups()
    narrow = gpuward("diff", *paths, env=environment(COLUMNS=60)).stdout
    assert re.search(rf"Per iteration .* {re.escape(text[1])} %", narrow), narrow


def test_control_characters_of_a_label_do_not_reach_the_terminal(tmp_path):
    path = save(tmp_path, "a.json", result("\x1b[31mred\x07", codes=("short",)))
    assert "\x1b" not in compare(path).stdout and "\x07" not in compare(path).stdout
    other = save(tmp_path, "b.json", result("b", name="\x1b[31mred"))
    assert "\x1b" not in compare(path, other, code=USAGE).stderr
    raw = nothing(tmp_path, "raw.json", "\x1b[31m")
    assert "\x1b" not in compare(raw, code=FAILED).stderr


def test_a_newline_in_the_name_of_a_gpu_does_not_break_a_message(tmp_path):
    path = save(tmp_path, "a.json", result("a", name="NVIDIA\nH200", driver="580\n1"))
    refused = compare(path, save(tmp_path, "b.json", result("b")), code=USAGE).stderr
    assert "NVIDIA?H200 (" in refused and "driver 580?1)" in refused
    assert len(refused.splitlines()) == 1, refused


def test_the_same_file_twice_is_refused_as_a_second_trial(tmp_path):
    path = save(tmp_path, "a.json", result("a"))
    assert "is given twice" in compare(path, path, code=USAGE).stderr


def test_a_copy_of_a_result_is_refused_as_a_second_trial(tmp_path):
    path, copy = (save(tmp_path, name, result("a")) for name in ("a.json", "b.json"))
    assert f"{path} and {copy} are the same measurement" in compare(path, copy, code=USAGE).stderr
    save(tmp_path, "b.json", result("a", power=301))
    assert rows(path, copy)[0]["a"]["runs"] == 2


def test_a_bundle_is_read_by_the_name_of_its_folder(tmp_path):
    (tmp_path / "run1").mkdir()
    doc = result(None, power=400)
    inside = save(tmp_path / "run1", "result.json", doc)
    a = save(tmp_path, "a.json", result("a"))
    got, _ = rows(a, tmp_path / "run1")
    assert list(got) == ["a", "run1"] and got["run1"]["files"] == [str(tmp_path / "run1")]
    assert "are the same measurement" in compare(tmp_path / "run1", inside, code=USAGE).stderr
    before = inside.read_bytes()
    assert "would be overwritten" in compare(tmp_path / "run1", "-o", inside, code=USAGE).stderr
    assert inside.read_bytes() == before


def test_output_goes_to_a_file_and_never_over_an_input(tmp_path):
    path = save(tmp_path, "a.json", result("a"))
    before = path.read_bytes()
    out = tmp_path / "table.txt"
    done = compare(path, "-o", out, "--color=always")
    assert done.stdout == "" and "ENERGY" in out.read_text() and "\x1b" not in out.read_text()
    assert "would be overwritten" in compare(path, "-o", path, code=USAGE).stderr
    assert path.read_bytes() == before


def test_a_full_disk_or_a_missing_folder_is_reported(tmp_path):
    path = save(tmp_path, "a.json", result("a"))
    for out, why in (("/dev/full", "No space left"), (tmp_path / "no" / "x", "No such file"),
                     (tmp_path, "Is a directory")):
        done = compare(path, "-o", out, "--format=csv", code=FAILED)
        assert f"{out} cannot be written: {why}" in done.stderr
    with open("/dev/full", "w") as full:
        done = gpuward("compare", path, stdout=full, capture_output=False, stderr=-1)
    assert done.returncode == FAILED and "No space left" in done.stderr


def test_a_pipe_that_closes_is_no_error(tmp_path):
    import subprocess
    from support import PROGRAM

    path = save(tmp_path, "a.json", result("a"))
    done = subprocess.run(f"{PROGRAM} compare {path} --json | head -1", shell=True,
                          capture_output=True, text=True)
    assert done.stdout.strip() == "{" and done.stderr == ""


def nothing(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_what_is_no_result_is_refused_in_a_sentence(tmp_path):
    whole = json.dumps(result("a"), indent=1)
    cut = nothing(tmp_path, "cut.json", whole[:1000])
    line = whole[:1000].count("\n") + 1
    rows = [
        (tmp_path / "none.json", ": No such file or directory"),
        (tmp_path, ": Is a directory"),
        (cut, f":{line}:"),
        (nothing(tmp_path, "empty.json", ""), ":1:1: not a valid JSON document"),
        (nothing(tmp_path, "text.json", "watts\n"), ": not a result"),
        (nothing(tmp_path, "two.json", "{} {}"), ":1:"),
        (nothing(tmp_path, "list.json", "[1]"), ": not a result"),
        (nothing(tmp_path, "object.json", "{}"), ": this is JSON, but not a result"),
        (nothing(tmp_path, "other.json", '{"schema_version":1,"kind":"comparison"}'),
         ": this is a comparison, not a result"),
        (nothing(tmp_path, "new.json", '{"schema_version":2,"kind":"measurement"}'),
         ": its schema_version is 2, and this gpuward reads up to 1"),
        (nothing(tmp_path, "type.json",
                 '{"schema_version":1,"kind":"measurement","runs":[{"seconds":"5"}]}'),
         ": runs[0].seconds is a text, not a number"),
        (nothing(tmp_path, "deep.json", '{"a":' * 100000), ":1:"),
    ]
    for path, sentence in rows:
        for command in ("compare", "report", "plot"):
            done = gpuward(command, path)
            assert done.returncode == FAILED, (command, path)
            assert done.stdout == ""
            assert done.stderr.startswith(f"gpuward: {path}{sentence}"), done.stderr
            assert len(done.stderr.splitlines()) == 1


def test_bytes_that_are_no_text_are_refused_with_their_place(tmp_path):
    path = tmp_path / "latin1.json"
    path.write_bytes(json.dumps(result("LABEL")).encode().replace(b"LABEL", b"\xe9t\xe9"))
    assert f"{path}:1:" in compare(path, code=FAILED).stderr


def test_every_bad_file_is_named(tmp_path):
    a, b = tmp_path / "a.json", tmp_path / "b.json"
    done = compare(a, b, code=FAILED)
    assert str(a) in done.stderr and str(b) in done.stderr


@pytest.mark.parametrize("command", ["compare", "report", "plot"])
def test_no_file_is_a_usage_error(command):
    done = gpuward(command)
    assert done.returncode == USAGE and "at least one result file" in done.stderr


def every_leaf(value, path=()):
    if isinstance(value, dict):
        for k, v in value.items():
            yield from every_leaf(v, (*path, k))
    elif isinstance(value, list):
        for i, v in enumerate(value):
            yield from every_leaf(v, (*path, i))
    if path:
        yield path


def test_every_figure_may_be_null_and_every_list_empty(tmp_path):
    doc = result("a", series=False, codes=("short",), tokens=5)
    for path in every_leaf(doc):
        if path[0] in ("schema_version", "kind"):
            continue
        bad = json.loads(json.dumps(doc))
        part = bad
        for step in path[:-1]:
            part = part[step]
        if isinstance(path[-1], int):
            continue
        part[path[-1]] = [] if isinstance(part[path[-1]], list) else None
        file = save(tmp_path, "x.json", bad)
        for command in ("compare", "report"):
            done = gpuward(command, file)
            assert done.returncode in (OK, FAILED), (command, path, done.stderr)
            assert "nan" not in done.stdout.lower().replace("nanosecond", ""), (command, path)
            if done.returncode == FAILED:
                assert path == ("runs",), (path, done.stderr)


def test_unknown_keys_of_a_newer_result_are_accepted(tmp_path):
    doc = result("a")
    doc["later"] = {"x": 1}
    doc["runs"][0]["later"] = [1]
    doc["runs"][0]["devices"][0]["later"] = "x"
    compare(save(tmp_path, "a.json", doc))


def test_a_result_without_label_goes_by_the_name_of_its_file(tmp_path):
    got, _ = rows(save(tmp_path, "resnet.json", result(None)))
    assert list(got) == ["resnet"]


def in_room(doc, broken=None, workers=("ollama",)):
    doc["clean_room"] = {
        "kept": broken is None, "waited_seconds": 1.2,
        "workers": [{"name": w, "state_before": "active", "hold_before": "none",
                     "hold_before_seconds": None, "held_by": "measurement", "broken": broken}
                    for w in workers]}
    return doc


def test_the_clean_room_column_is_shown_only_if_a_run_had_one(tmp_path):
    a = save(tmp_path, "a.json", result("a"))
    b = save(tmp_path, "b.json", result("b"))
    for form in ("text", "markdown"):
        assert "room" not in compare(a, b, "--format", form).stdout.lower()
    got, _ = rows(a, b)
    assert [r["clean_room"] for r in got.values()] == ["none", "none"]


def test_runs_that_all_had_a_clean_room_are_compared_without_a_warning(tmp_path):
    a = save(tmp_path, "a.json", in_room(result("a")))
    b = save(tmp_path, "b.json", in_room(result("b"), workers=()))
    text = compare(a, b).stdout
    assert re.search(r"^LABEL .* ROOM ", text, re.M) and re.search(r"^a .* kept ", text, re.M)
    assert "clean room" not in text
    assert "| Clean room |" in compare(a, b, "--format=markdown").stdout
    got, doc = rows(a, b)
    assert [r["clean_room"] for r in got.values()] == ["kept", "kept"]
    assert not [n for n in doc["notes"] if "room" in n]


def test_runs_with_and_without_a_clean_room_are_compared_with_a_warning(tmp_path):
    a = save(tmp_path, "a.json", in_room(result("a", trials=3)))
    b = save(tmp_path, "b.json", result("b", trials=2))
    c = save(tmp_path, "c.json", result("a"))
    got, doc = rows(a, b, c)
    assert got["a"]["clean_room"] == "mixed" and got["b"]["clean_room"] == "none"
    warnings = [n for n in doc["notes"] if "clean room" in n]
    assert len(warnings) == 1 and "(a: 3 of 4, b: 0 of 2)" in warnings[0]
    table = list(csv.DictReader(io.StringIO(compare(a, b, "--format=csv").stdout)))
    assert [r["clean_room"] for r in table] == ["kept", "none"]


def test_a_clean_room_that_was_lost_is_reported_once_with_the_reason(tmp_path):
    lost = in_room(result("b", trials=2), broken="someone released it after 3 s")
    lost["runs"][1]["part"] = "decode"  # makes its own row, from the same file
    b = save(tmp_path, "b.json", lost)
    got, doc = rows(b)
    assert [r["clean_room"] for r in got.values()] == ["lost", "lost"]
    said = [n for n in doc["notes"] if "clean room" in n]
    assert len(said) == 1
    assert said[0].endswith(
        "b.json: the clean room was not kept: worker ollama: someone released it after 3 s")
    a = save(tmp_path, "a.json", in_room(result("a")))
    assert "(a: 1 of 1, b: 0 of 1, b (decode): 0 of 1)" in compare(a, b).stdout


def test_a_row_without_usable_runs_shows_no_clean_room(tmp_path):
    a = save(tmp_path, "a.json", in_room(result("a")))
    b = save(tmp_path, "b.json", result("b", codes=("child-failed",)))
    got, doc = rows(a, b)
    assert got["b"]["clean_room"] is None
    assert not [n for n in doc["notes"] if "clean room" in n]
    assert re.search(r"^  kept room", compare(a, b, env=environment(COLUMNS=80)).stdout, re.M)
