"""Tests gpuward measure: what it measures, what it does not change, and what remains after a failure.

The load is simulated and runs in real time, so each command is short.
"""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile

import pytest

from support import (
    BUILD, CONSTANT, PROGRAM, TIMEOUT, TOP, USAGE, WATTS, Terminal, carry_baselines, check, environment, gpuward, on_terminal,
    started, until_caught,
)
from worker import Fault

PYTHON = sys.executable
SHIMS = BUILD / "tests" / "e2e"


@pytest.fixture
def measure(tmp_path):
    """Runs `gpuward measure OPTIONS -- COMMAND`; returns the run, and the document or None."""
    out = tmp_path / "result.json"

    def run(options, *command, **kw):
        done = gpuward("measure", "-o", out, *options, "--", *command, **kw)
        if not out.exists():
            return done, None
        doc = json.loads(out.read_text())
        check("measure", doc)
        return done, doc

    return run


def codes(run):
    return {c["code"]: c for c in run["codes"]}


def test_a_constant_load_has_its_joules(measure, load):
    done, doc = measure([load, "--label=fp16"], "sleep", "1.3")
    assert done.returncode == 0
    run = doc["runs"][0]
    energy = run["energy_joules"]
    assert energy["best"] == pytest.approx(WATTS * run["seconds"], rel=0.03)
    assert energy["low"] < energy["best"] < energy["high"]
    assert run["energy_relative_joules"]["low"] > energy["low"]
    assert run["power_mean_watts"] == pytest.approx(WATTS, rel=0.03)
    assert run["seconds"] >= 1.3
    assert doc["kind"] == "measurement" and doc["schema_version"] == 1
    assert doc["label"] == "fp16" and doc["simulated"] is True
    assert doc["validity"] == run["validity"] == "valid"
    assert list(codes(run)) == ["short"]
    device = run["devices"][0]
    assert device["rung"] == "counter+ring" and device["provenance"] == "simulated"
    assert device["samples"]["collected"] > 40
    assert f"{WATTS}.0 W mean" in done.stderr and "SIMULATED" in done.stderr


def test_a_run_shorter_than_a_sample_is_an_interval_and_never_nothing(measure, load, tmp_path):
    for _ in range(20):  # on a busy machine the command may run longer than a sample
        (tmp_path / "result.json").unlink(missing_ok=True)
        done, doc = measure([load], "true")
        if doc["runs"][0]["seconds"] < 0.01:
            break
    assert re.search(r"^Meter +samples; the window is shorter than the time between two", done.stderr, re.M), done.stderr
    run = doc["runs"][0]
    assert 0 < run["energy_joules"]["low"] < run["energy_joules"]["high"]
    assert run["energy_joules"]["low"] <= WATTS * run["seconds"] <= run["energy_joules"]["high"]
    assert "sub-period" in codes(run)


def test_the_series_has_the_load_and_stays_within_a_second_of_the_run(measure, load):
    _, doc = measure([load, "--interval=50ms"], "sleep", "0.6")
    run = doc["runs"][0]
    series = run["devices"][0]["series"]
    for part, figure in ((series["power"], "watts"), (series["ticks"], "temperature_celsius")):
        t = [part["begin_seconds"] + s for s in part["t_seconds"]]
        assert t == sorted(t) and len(t) == len(part[figure]) > 5
        assert t[0] >= -1 and t[-1] <= run["seconds"] + 1
    assert set(series["power"]["watts"]) == {WATTS}
    assert {len(v) for k, v in series["ticks"].items() if k != "begin_seconds"} == {
        len(series["ticks"]["t_seconds"])
    }


def test_values_given_as_options_are_in_the_result(measure, load):
    options = [load, "--trial=4", "--iterations=10", "--tokens=20", "--model-size=128MB"]
    done, doc = measure([*options, "--tag=batch=8", "--tag=gpu=x"], "sleep", "0.3")
    run = doc["runs"][0]
    assert run["trial"] == 4
    assert doc["tags"] == {"batch": "8", "gpu": "x"}
    assert doc["model_size_bytes"] == 128e6
    assert (doc["iterations"], doc["tokens"]) == (10, 20)
    assert run["latency_seconds"] == pytest.approx(run["seconds"] / 10)
    best = run["energy_joules"]["best"]
    assert run["energy_per_iteration_joules"]["best"] == pytest.approx(best / 10)
    assert run["energy_per_token_joules"]["best"] == pytest.approx(best / 20)
    assert doc["command_name"] == "sleep" and doc["command"] is None
    assert doc["environment"]["devices"][0]["name"] == "NVIDIA H200"
    assert "iteration" in done.stderr and "token" in done.stderr


def test_the_command_line_is_kept_only_when_asked_for(measure, load):
    _, doc = measure([load, "--keep-command"], "sh", "-c", "exit 0", "secret")
    assert doc["command"] == "sh -c exit 0 secret"
    assert doc["command_name"] == "sh"


def test_trials_are_runs_of_one_result(measure, load):
    done, doc = measure([load, "--trials=3", "--warmup=1"], "sh", "-c", "echo run; sleep 0.2")
    assert [r["trial"] for r in doc["runs"]] == [1, 2, 3]
    assert done.stdout == "run\n" * 4
    for run in doc["runs"]:
        assert run["energy_joules"]["best"] == pytest.approx(WATTS * run["seconds"], rel=0.03)
        assert run["devices"][0]["series"]["power"]["begin_seconds"] >= -1


def test_trials_are_shown_as_one_mean_with_an_interval(measure, load):
    options = [load, "--trials=3", "--iterations=10", "--tokens=20", "--no-cooldown"]
    done, doc = measure(options, "sleep", "0.2")
    mean = sum(r["energy_joules"]["best"] for r in doc["runs"]) / 3
    said = re.search(r"Mean of 3 +([\d.]+) (?:±|\+-) ([\d.]+) J", done.stderr)
    assert said, done.stderr
    assert float(said[1]) == pytest.approx(mean, abs=float(said[2]) / 5)
    # The mean keeps the error of the sensor: a standard uncertainty of 2.5 % and of 2.5 W.
    least = 1.96 * (0.025**2 + (2.5 / WATTS) ** 2) ** 0.5 * mean
    # The variation between runs on a busy machine is added: Student's t with two degrees of freedom.
    spread = 4.303 * statistics.stdev(r["energy_joules"]["best"] for r in doc["runs"]) / 3**0.5
    assert 0.9 * least < float(said[2]) < 2 * (least + spread)
    each = re.search(r"  iteration +([\d.]+) \S+ [\d.]+ J in [\d.]+ ms \(10 iterations per run\)", done.stderr)
    assert float(each[1]) == pytest.approx(mean / 10, rel=0.1)
    assert "(20 tokens per run)" in done.stderr and "short in 3 of 3 runs" in done.stderr
    verbose = gpuward("measure", "-v", *options, "--", "sleep", "0.1").stderr
    assert "Trial        2, 2 of 3" in verbose


def test_measure_compare_and_diff_have_the_same_interval_of_several_runs(tmp_path):
    idle, env = "--simulate=idle-h200", environment(XDG_CACHE_HOME=tmp_path / "cache")
    assert gpuward("baseline", idle, "--time=2s", env=env).returncode == 0
    done = gpuward("measure", idle, "--trials=2", "--iterations=10", "--tokens=20", "--no-cooldown",
                   "-o", tmp_path / "a.json", "--", "sleep", "0.3", env=env)
    said = {"energy_joules": r"Mean of 2 ", "energy_per_iteration_joules": "  iteration ",
            "energy_per_token_joules": "  token ", "energy_net_joules": "Above idle "}
    whole = json.loads((tmp_path / "a.json").read_text())
    for run in [whole, *whole["runs"]]:
        run["iterations"] = run["latency_seconds"] = run["energy_per_iteration_joules"] = None
    (tmp_path / "b.json").write_text(json.dumps(whole))
    shown = {}
    for name in ("a.json", "b.json"):
        shown |= json.loads(gpuward("compare", "--json", tmp_path / name).stdout)["rows"][0]
    diff = json.loads(gpuward("diff", "--json", tmp_path / "a.json", tmp_path / "b.json").stdout)
    for key, title in said.items():
        best, reach, unit = re.search(title + r" *(-?[\d.]+) (?:±|\+-) ([\d.]+) (m|µ|k|)J", done.stderr).groups()
        scale = {"": 1, "m": 1e-3, "µ": 1e-6, "k": 1e3}[unit]
        last = 10 ** -len(reach.partition(".")[2]) * scale
        value = shown[key]["value"]
        assert value["high"] - value["best"] == pytest.approx(float(reach) * scale, abs=0.6 * last), key
        assert value["best"] == pytest.approx(float(best) * scale, abs=0.6 * last), key
    net = next(r for r in diff["rows"] if r["key"] == "energy_net_joules")["a_interval"]
    assert net == pytest.approx(shown["energy_net_joules"]["value"])


def test_the_summary_has_what_a_paper_must_state(measure, load):
    done, _ = measure([load], "sleep", "1.2")
    assert re.search(r"Source +counter\+ring, sensor not characterised; typical delays used; power limit 700 W",
                     " ".join(done.stderr.split())), done.stderr
    assert re.search(r"(all|\d+ of) \d+ samples", done.stderr)


def test_what_a_command_counts_before_and_after_is_the_count(measure, load, tmp_path):
    counter = tmp_path / "counter"
    counter.write_text("100")
    for words, name in (((), "tokens"), (("--count", "iterations"), "iterations")):
        done, doc = measure([load, "--count-cmd", f"cat {counter}", *words], "sh", "-c",
                            f"sleep 0.3; echo $(($(cat {counter}) + 400)) > {counter}")
        [run] = doc["runs"]
        other = "iterations" if name == "tokens" else "tokens"
        assert done.returncode == 0 and run[name] == 400 and run[other] is None
        each = run[f"energy_per_{name[:-1]}_joules"]
        best, high = run["energy_joules"]["best"], run["energy_joules"]["high"]
        assert each["best"] == pytest.approx(best / 400)
        # `high` includes tokens that may have been generated before the run began or after it ended.
        assert high / 400 < each["high"] < high / 100


def test_each_run_has_its_own_count(measure, load, tmp_path):
    counter = tmp_path / "counter"
    counter.write_text("0")
    add = f"n=$(cat {counter}); echo $((n + n + 10)) > {counter}"
    _, doc = measure([load, "--trials=3", "--no-cooldown", "--warmup=1", "--count-cmd", f"cat {counter}"], "sh", "-c", add)
    assert [r["tokens"] for r in doc["runs"]] == [20, 40, 80]


def test_a_command_that_cannot_count_starts_nothing(measure, load, tmp_path):
    done, doc = measure([load, "--count-cmd", "echo many"], "touch", tmp_path / "started")
    assert done.returncode == 1 and doc is None and not (tmp_path / "started").exists()
    assert "--count-cmd: the command printed 'many' instead of one number; nothing was measured" in done.stderr


def test_a_count_that_stood_still_is_not_known(measure, load):
    done, doc = measure([load, "--count-cmd", "echo 7"], "sleep", "0.2")
    assert done.returncode == 1
    assert doc["runs"][0]["tokens"] is None and doc["runs"][0]["energy_joules"]["best"] > 0
    assert "--count-cmd: the counter did not grow: 7 before and 7 after the run; the count is unknown" in done.stderr


def test_a_gpu_lost_within_the_run_keeps_its_data_and_its_description(measure, scenario, tmp_path):
    lost = Fault(tmp_path, "code = 15", "*")
    world = scenario('[time]\nbegin = 10\n[[gpu]]\nprofile = "h200"\n' + lost.text)
    _, doc = measure([world], "sh", "-c", f"sleep 0.7; touch {lost.file}; sleep 0.5")
    [device] = doc["runs"][0]["devices"]
    assert "gpu-lost" in device["codes"] and device["validity"] == "invalid"
    assert device["energy_joules"]["best"] > 0 and device["power_limit_watts"] == 700
    assert doc["environment"]["devices"][0]["clock_sm_max_hertz"] == 1980e6


def test_a_kept_baseline_is_named_with_its_watts_and_age(measure, tmp_path):
    idle = "--simulate=idle-h200"
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert gpuward("baseline", idle, "--time=2s", env=environment(**cache)).returncode == 0
    done, doc = measure([idle], "sleep", "0.2", env=environment(**cache))
    watts = doc["runs"][0]["devices"][0]["baseline"]["power_watts"]
    text = " ".join(done.stderr.split())
    assert re.search(rf"\(no-context baseline of {watts:.1f} W, \d+ s old\)", text), done.stderr
    assert "counted as" not in text  # the interval contains 0, so the baseline is not wrong
    assert "baseline-stale" not in codes(doc["runs"][0])
    # Value and uncertainty have the unit of the larger one, and no insignificant digits.
    assert re.search(r"Above idle -?[\d.]{1,4} \S+ [\d.]{1,4} m?J", text), done.stderr
    # In a run that is shorter than a sample, the net energy is no more certain than the gross energy.
    _, doc = measure([idle], "true", env=environment(**cache))
    gross, net = (doc["runs"][0][f"energy_{k}joules"] for k in ("", "net_"))
    assert net["high"] - net["best"] >= 0.999 * (gross["high"] - gross["best"])
    assert net["best"] - net["low"] >= 0.999 * (gross["best"] - gross["low"])


def test_a_baseline_that_does_not_fit_is_used_only_if_asked_and_reported(measure, scenario, tmp_path):
    idle = '[time]\nbegin = 600\n[[gpu]]\nprofile = "h200"\nambient_c = {}\n'
    cool, warm = (scenario(idle.format(c), f"{c}.toml") for c in (25, 45))
    env = environment(XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert gpuward("baseline", cool, "--time=2s", env=env).returncode == 0
    carry_baselines(env, *(option.partition("=")[2] for option in (cool, warm)))
    _, doc = measure([warm], "sleep", "0.2", env=env)
    assert doc["runs"][0]["devices"][0]["baseline"] is None
    assert "baseline-stale" not in codes(doc["runs"][0])
    done, doc = measure([warm, "--baseline=kept"], "sleep", "0.2", env=env)
    [run] = doc["runs"]
    [device] = run["devices"]
    assert device["baseline"]["power_watts"] > 0 and run["energy_net_joules"]["best"] is not None
    assert "baseline-stale" in device["codes"] and run["validity"] == "suspect"
    assert "degrees Celsius" in codes(run)["baseline-stale"]["evidence"]
    assert "GPU 0 has no suitable baseline: the stored baseline was taken at" in done.stderr
    # A baseline that was taken at this temperature causes no warning.
    _, doc = measure([cool, "--baseline=kept"], "sleep", "0.2", env=env)
    assert "baseline-stale" not in codes(doc["runs"][0])


def test_a_baseline_measured_before_the_run_causes_no_warning(measure, scenario, tmp_path):
    idle = scenario('[time]\nbegin = 600\n[[gpu]]\nprofile = "h200"\n', "idle.toml")
    done, doc = measure([idle, "--baseline=auto"], "sleep", "0.2", env=environment(XDG_CACHE_HOME=str(tmp_path / "cache")))
    assert doc["runs"][0]["baseline_kind"] == "no-context"
    assert "has no baseline" not in done.stderr


def test_another_number_of_iterations_than_marked_is_reported(measure, load):
    done, doc = measure([load, "--iterations=7"], PYTHON, "-c", MARKS)
    assert doc["iterations"] == 7
    assert "--iterations is 7, but the command marked 5; the result uses 7" in done.stderr


def test_a_sum_over_gpus_is_that_of_its_parts(measure):
    _, doc = measure(["--simulate=two-gpus"], "sleep", "0.3")
    run = doc["runs"][0]
    assert len(run["devices"]) == 2
    parts = [d["energy_joules"]["best"] for d in run["devices"]]
    assert run["energy_joules"]["best"] == pytest.approx(sum(parts))
    _, one = measure(["--simulate=two-gpus", "--gpu=1"], "sleep", "0.2")
    assert [d["index"] for d in one["runs"][0]["devices"]] == [1]


@pytest.mark.parametrize("trials", [1, 2])
def test_a_sum_over_gpus_names_the_gpus(trials):
    options = [f"--trials={trials}", "--no-cooldown", "--simulate=two-gpus"]
    said = " ".join(gpuward("measure", *options, "--", "true").stderr.split())
    assert "GPUs 0, 1 (NVIDIA H100 80GB HBM3); the energy is the sum over these GPUs" in said
    assert "the sum over" not in gpuward("measure", *options, "--gpu=1", "--", "true").stderr


def test_a_run_waits_until_the_gpu_is_cool(measure, scenario):
    hot = CONSTANT.replace("[[gpu.load]]", "thermal_s = 0.3\n[[gpu.load]]\nuntil = 31")
    done, doc = measure([scenario(hot), "--cooldown-to=42"], "sleep", "0.1")
    assert done.returncode == 0
    assert "waiting for 42 °C" in done.stderr
    assert doc["runs"][0]["devices"][0]["temperature_celsius"]["begin"] <= 42


def test_gpus_that_stay_warm_delay_a_measurement_by_one_minute_in_all(scenario):
    gpu = CONSTANT[CONSTANT.index("[[gpu]]"):]
    clock = {"LD_PRELOAD": str(BUILD / "tests" / "e2e" / "libscaled_time.so"), "TIME_RATE": "100"}
    done = gpuward("measure", scenario(CONSTANT + gpu), "--trials=3", "--cooldown-to=20", "--", "true", env=environment(**clock))
    assert done.returncode == 0 and done.stderr.count("after a minute of cooling") == 1, done.stderr


PRICED = ["--price-per-kwh=0.31", "--price-currency=EUR", "--gco2-per-kwh=380"]


def test_energy_has_a_cost_only_where_one_is_configured(measure, load, tmp_path):
    done, doc = measure([load], "sleep", "0.2")
    assert doc["runs"][0]["cost"] is None and "kWh" not in done.stderr and "CO2" not in done.stderr
    done, doc = measure([load, *PRICED], "sleep", "0.2")
    run, = doc["runs"]
    cost = run["cost"]
    for end in ("low", "best", "high"):
        kwh = run["energy_joules"][end] / 3.6e6
        assert cost["energy_kwh"][end] == pytest.approx(kwh)
        assert cost["price"][end] == pytest.approx(0.31 * kwh) and cost["co2_grams"][end] == pytest.approx(380 * kwh)
    assert cost["price_currency"] == "EUR"
    said = re.search(r"Cost +([\d.]+) kWh, ([\d.]+) EUR, ([\d.]+) g CO2", done.stderr)
    assert float(said[1]) == pytest.approx(cost["energy_kwh"]["best"], rel=0.01)
    assert float(said[2]) == pytest.approx(cost["price"]["best"], rel=0.01)
    done, doc = measure([load, "--gco2-per-kwh=380", "--trials=2", "--no-cooldown"], "sleep", "0.2")
    assert doc["runs"][1]["cost"]["price"] is None and re.search(r"Cost +[\d.]+ kWh, [\d.]+ g CO2\n", done.stderr)
    # The report computes the cost again from its own options.
    path = tmp_path / "priced.json"
    path.write_text(json.dumps(doc))
    assert "Cost" not in gpuward("report", path).stdout
    page = gpuward("report", path, "--price-per-kwh=0.31", "--price-currency=<b>").stdout
    assert re.search(r"<th scope=\"row\">Cost</th><td>[\d.]+ kWh, [\d.]+ &lt;b&gt;</td>", page)


@pytest.mark.parametrize("words, env, said", [
    (["--price-per-kwh=cheap"], {}, "--price-per-kwh takes a number such as 0.31, not 'cheap'"),
    (["--price-per-kwh=-1"], {}, "--price-per-kwh takes a number such as 0.31, not '-1'"),
    (["--price-per-kwh=0x10"], {}, "--price-per-kwh takes a number such as 0.31, not '0x10'"),
    (["--price-per-kwh= 5"], {}, "--price-per-kwh takes a number such as 0.31, not ' 5'"),
    (["--gco2-per-kwh=nan"], {}, "--gco2-per-kwh takes a number such as 380, not 'nan'"),
    (["--price-currency=EUR"], {}, "--price-currency needs --price-per-kwh"),
    (["--price-per-kwh=1", "--price-currency=" + 17 * "x"], {}, "--price-currency takes a word of at most 16 bytes"),
    (["--price-per-kwh=1", "--price-currency=a\x1b[m"], {}, "such as EUR, not 'a?[m'"),
    ([], {"GPUWARD_ENERGY_PRICE_PER_KWH": "0,31"}, "GPUWARD_ENERGY_PRICE_PER_KWH takes a number such as 0.31, not '0,31'"),
])
def test_a_cost_that_is_no_number_is_refused(words, env, said, load):
    for command in (["measure", load, *words, "--", "true"], ["log", load, *words, "-d", "1s"]):
        done = gpuward(*command, env=environment(**env))
        assert done.returncode == USAGE and said in done.stderr and done.stdout == ""


def test_a_wait_for_a_cool_gpu_counts_down_on_a_terminal(scenario):
    hot = CONSTANT.replace("[[gpu.load]]", "thermal_s = 0.6\n[[gpu.load]]\nuntil = 31")
    out, code = on_terminal(100, "measure", scenario(hot), "--cooldown-to=42", "--", "true")
    assert code == 0
    shown = re.findall(r"\rGPU 0 is at (\d+) °C, waiting for 42 °C; the run starts in at most (\d+) s", out)
    left = [int(seconds) for _, seconds in shown]
    assert len(left) >= 2 and left[0] == 60 and left == sorted(left, reverse=True)
    assert "gpuward: GPU 0 is at" not in out
    quiet, _ = on_terminal(100, "measure", scenario(hot), "-q", "--cooldown-to=42", "--", "true")
    assert "waiting for" not in quiet


# Measured programs. Their sleeps represent the work.
MARKS = """
import os, time
f = os.fdopen(int(os.environ["GPUWARD_MARK_FD"]), "w", buffering=1)
t = time.monotonic_ns()
print("begin prefill", t, file=f)
time.sleep(0.3)
print("end prefill", time.monotonic_ns(), file=f)
print("begin open", file=f)
for i in range(5):
    time.sleep(0.02)
    print("iteration", i, file=f)
print("tokens 30\\ntokens 12\\nnonsense\\nend nothing\\nbegin x", 5, file=f)
"""


def test_a_command_marks_parts_iterations_and_tokens(measure, load):
    done, doc = measure([load], PYTHON, "-c", MARKS)
    assert done.returncode == 0
    run = doc["runs"][0]
    prefill, rest = run["windows"]
    assert (prefill["label"], rest["label"]) == ("prefill", "open")
    assert 0 <= prefill["begin_seconds"] < run["seconds"]
    assert prefill["seconds"] >= 0.3
    energy = prefill["devices"][0]["energy_joules"]
    assert energy["best"] == pytest.approx(WATTS * prefill["seconds"], rel=0.03)
    assert rest["unfinished"] and not prefill["unfinished"]
    assert doc["iterations"] == 5 and doc["tokens"] == 42
    assert 0.01 <= run["latency_p50_seconds"] <= run["latency_p95_seconds"]  # about 0.02 s, depending on when the marks are read
    assert run["energy_per_token_joules"]["best"] == pytest.approx(
        run["energy_joules"]["best"] / 42
    )
    assert "3 lines on GPUWARD_MARK_FD were ignored; the first: 'nonsense'" in done.stderr
    assert "'iteration" not in done.stderr  # no remark, because the iterations are numbered one by one
    said = " ".join(done.stderr.split())
    assert re.search(r"Parts prefill: \S+ ± \S+ m?J in \S+ m?s open: \S+ ± \S+ m?J in \S+ m?s "
                     r"\(unfinished: the run ended before the part ended\)", said)


MARK = 'm() { echo "$@" >&$GPUWARD_MARK_FD; }; '


def test_a_part_on_several_gpus_has_the_sum_of_their_joules(measure):
    done, doc = measure(["--simulate=two-gpus"], "sh", "-c", MARK + "m begin x; sleep 0.5; m end x")
    (part,) = doc["runs"][0]["windows"]
    energies = [d["energy_joules"] for d in part["devices"]]
    assert len(energies) == 2
    shown = re.search(r"Parts +x: ([\d.]+) ± ([\d.]+) J in ", done.stderr)
    assert float(shown[1]) == pytest.approx(sum(e["best"] for e in energies), rel=0.01)
    width = sum(e["high"] - e["low"] for e in energies) / 2  # boards of one kind may have the same error
    assert float(shown[2]) == pytest.approx(width, rel=0.05)


@pytest.mark.parametrize("lang, unit", [("C.UTF-8", "µs"), ("C", "us")])
def test_a_part_of_microseconds_is_written_as_everywhere(measure, load, lang, unit):
    script = ("import os, time; t = time.monotonic_ns();"
              "os.write(int(os.environ['GPUWARD_MARK_FD']), b'begin a %d\\nend a %d\\n' % (t, t + 5000));"
              "time.sleep(0.2)")
    done, _ = measure([load], PYTHON, "-c", script, env=environment(LANG=lang))
    assert re.search(r"a: .* in 5\.000 " + unit + "$", done.stderr, re.M)


def test_a_part_without_joules_has_a_reason(measure):
    done, _ = measure(["--simulate=no-gpu"], "sh", "-c", MARK + "m begin x; sleep 0.1; m end x")
    assert re.search(r"Parts +x: [\d.]+ ms; energy unknown: there is no GPU\n", done.stderr)


@pytest.mark.parametrize("page", ["docs/man/gpuward-measure.1.scd", "docs/MEASURING.md"])
@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_the_documented_shell_function_marks_parts_and_works_without_gpuward(measure, load, page, shell):
    (function,) = [l for l in (TOP / page).read_text().splitlines() if l.startswith("mark() {")]
    script = f"set -eu; {function}; mark begin load; sleep 0.1; mark end load; mark tokens 3; echo done"
    alone = subprocess.run([shell, "-c", script], capture_output=True, text=True, env={"PATH": os.environ["PATH"]})
    assert (alone.returncode, alone.stdout, alone.stderr) == (0, "done\n", "")
    done, doc = measure([load], shell, "-c", script)
    assert done.stdout == "done\n" and doc["tokens"] == 3
    assert [w["label"] for w in doc["runs"][0]["windows"]] == ["load"]


def test_ambiguous_numbers_of_iterations_are_reported_once(measure, load):
    twice = MARK + "m iteration 100; m iteration 100; m iteration 100"
    done, doc = measure([load, "--trials=2", "--no-cooldown"], "sh", "-c", twice)
    assert [r["iterations"] for r in doc["runs"]] == [3, 3]
    said = "the command marked 'iteration 100' and then 'iteration 100': each line counts as one iteration"
    assert done.stderr.count(said) == 1
    done, doc = measure([load, "--iterations=300"], "sh", "-c", twice)
    assert doc["iterations"] == 300 and said not in done.stderr


PARTS = """
import os, time
f = os.fdopen(int(os.environ["GPUWARD_MARK_FD"]), "w", 1)
for i in range(3):
    time.sleep(0.3)
    print("iteration\\ntokens 100", file=f)
for name in ("work", "work", "open"):
    print("begin", name, file=f)
    for i in range(6):
        time.sleep(0.04)
        print("iteration\\ntokens 2", file=f)
    name == "open" or print("end", name, file=f)
"""


def test_a_part_has_its_own_counts_codes_and_zero(measure, load):
    whole = measure([load], PYTHON, "-c", PARTS)[1]["runs"][0]
    done, doc = measure([load, "--part=work", "--iterations=21"], PYTHON, "-c", PARTS)
    assert done.returncode == 0
    run = doc["runs"][0]
    assert "marked 2 parts named 'work'; the result is about the first" in done.stderr
    assert whole["iterations"] == 21 and whole["tokens"] == 336
    assert run["part"] == "work" and run["iterations"] == 6 and run["tokens"] == 12
    # The part begins when its mark is read, which may be a little later than it was written.
    assert 0.1 <= run["seconds"] < 0.8 and run["latency_seconds"] == pytest.approx(run["seconds"] / 6)
    assert 0.01 <= run["latency_p95_seconds"] < 0.25 <= whole["latency_p95_seconds"]
    assert run["energy_per_iteration_joules"]["best"] == pytest.approx(run["energy_joules"]["best"] / 6)
    assert run["energy_joules"]["best"] == pytest.approx(WATTS * run["seconds"], rel=0.05)
    assert codes(run)["short"]["evidence"] == f'the window is {run["seconds"]:.2f} s long'
    assert [w["begin_seconds"] >= 0 for w in run["windows"]] == [True] * 3
    assert run["windows"][0]["begin_seconds"] == 0
    power = run["devices"][0]["series"]["power"]
    times = [power["begin_seconds"] + t for t in power["t_seconds"]]
    assert -1.01 <= times[0] < 0 and run["seconds"] - 0.05 < times[-1] < run["seconds"] + 1.01
    shares = [p["joules"] for p in run["devices"][0]["processes"]]
    assert sum(filter(None, shares)) == pytest.approx(run["energy_joules"]["best"])
    assert run["host"]["joules"] is None and run["host"]["absence"] == "not_read"


@pytest.mark.parametrize("name", ["nothing", "open"])
def test_a_part_that_was_not_marked_to_its_end_is_a_failure(measure, load, name):
    done, doc = measure([load, f"--part={name}"], PYTHON, "-c", PARTS)
    assert done.returncode == 1 and doc["runs"][0]["part"] is None
    assert f"did not mark the beginning and end of a part '{name}'" in done.stderr and "Energy" in done.stderr


def test_a_part_is_found_by_the_longest_name(measure, load):
    name = 61 * "x" + "é"  # 63 bytes
    marks = f'echo "begin {name}" >&$GPUWARD_MARK_FD; sleep 0.1; echo "end {name}" >&$GPUWARD_MARK_FD'
    done, doc = measure([load, f"--part={name}"], "bash", "-c", marks)
    assert done.returncode == 0 and doc["runs"][0]["part"] == name


def test_a_flood_of_marks_is_bounded_and_reported(measure, load):
    flood = 'i=0; while [ $i -lt 1500 ]; do echo "begin a"; echo "end a"; i=$((i+1)); done'
    done, doc = measure([load], "sh", "-c", f"({flood}) >&$GPUWARD_MARK_FD")
    assert done.returncode == 0
    assert len(doc["runs"][0]["windows"]) == 1000
    assert "more than 1000 parts; 500 were not measured" in done.stderr


LOOK = """
import json, os, signal, sys
with open("/proc/self/status") as f:
    s = dict(l.split(":\\t", 1) for l in f.read().splitlines() if ":\\t" in l)
print(json.dumps({
    "fds": sorted(int(n) for n in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{n}")),
    "blocked": s["SigBlk"], "ignored": s["SigIgn"], "group": os.getpgrp(), "cwd": os.getcwd(),
    "env": {k: v for k, v in os.environ.items() if k != "GPUWARD_MARK_FD"},
    "mark": os.environ.get("GPUWARD_MARK_FD"), "in": sys.stdin.read(),
}))
"""


def test_the_command_inherits_exactly_what_gpuward_inherited(load):
    def look(*words, **kw):
        done = subprocess.run(
            [*map(str, words), PYTHON, "-S", "-c", LOOK], input="typed", capture_output=True,
            text=True, timeout=TIMEOUT, env=environment(), pass_fds=[spare], **kw,
        )
        return json.loads(done.stdout)

    spare, other = os.pipe()
    try:
        bare = look("env", restore_signals=True)
        measured = look(PROGRAM, "measure", load, "--", restore_signals=True)
        mark = int(measured.pop("mark"))
        assert 3 <= mark <= 9 and bare.pop("mark") is None
        measured["fds"].remove(mark)
        for seen in (bare, measured):
            # glibc's posix_spawn sets its own two, 32 and 33, to be ignored
            seen["ignored"] = int(seen["ignored"], 16) & 0x7FFFFFFF
        assert measured == bare
        # If the parent ignores SIGPIPE, so does the command.
        ignored = look(PROGRAM, "measure", load, "--", restore_signals=False)
        assert int(ignored["ignored"], 16) & 1 << signal.SIGPIPE - 1
    finally:
        os.close(spare)
        os.close(other)


def test_output_of_the_command_is_untouched(measure, load):
    done, _ = measure([load], "sh", "-c", "printf 'a\\0b'; echo oops >&2")
    assert done.stdout == "a\0b"
    assert done.stderr.startswith("oops\n")
    quiet, doc = measure([load, "-q"], "sh", "-c", "echo oops >&2")
    assert quiet.stderr == "oops\n" and doc


def test_json_follows_the_output_of_the_command(load):
    done = gpuward("measure", load, "--json", "--", "echo", "first")
    first, rest = done.stdout.split("\n", 1)
    assert first == "first" and json.loads(rest)["kind"] == "measurement"
    assert json.loads(gpuward("measure", load, "-o", "-", "--", "true").stdout)


@pytest.mark.parametrize("script, status, said", [
    ("exit 7", 7, "exit status 7"),
    ("kill -TERM $$", 128 + 15, "killed by signal 15"),
])
def test_the_status_is_passed_on_and_the_result_kept(measure, load, script, status, said):
    done, doc = measure([load], "sh", "-c", f"sleep 0.1; {script}")
    assert done.returncode == status
    run = doc["runs"][0]
    assert (run["exit_status"], run["exit_signal"]) == ((7, None) if status == 7 else (None, 15))
    assert doc["validity"] == "invalid"
    assert said in codes(run)["child-failed"]["evidence"]
    assert run["energy_joules"]["best"] > 0


@pytest.mark.parametrize("command, status, said", [
    ("no-such-command", 127, "no such command"),
    ("./no/such", 127, "No such file"),
    ("/etc/passwd", 126, "Permission denied"),
])
def test_a_command_that_cannot_be_started_has_no_result(measure, load, command, status, said):
    done, doc = measure([load], command)
    assert done.returncode == status
    assert said in done.stderr and "nothing was measured" in done.stderr
    assert doc is None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_gpuward_reaches_the_command_and_the_result_is_kept(load, tmp_path, number):
    out = tmp_path / "r.json"
    trap = f"trap 'echo got; exit 9' {number.name[3:]}; sleep 0.3; echo ready; while :; do sleep 0.05; done"
    p = started("measure", load, "--trials=3", "-o", out, "--", "sh", "-c", trap)
    assert p.stdout.readline() == "ready\n"
    p.send_signal(number)
    stdout, stderr = p.communicate(timeout=TIMEOUT)
    assert stdout == "got\n"
    assert p.returncode == 9
    doc = json.loads(out.read_text())
    assert len(doc["runs"]) == 1 and "1 of 3 runs were made" in stderr
    assert doc["runs"][0]["energy_joules"]["best"] > 0


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGCONT])
def test_a_signal_that_is_no_request_to_end_reaches_the_command_and_the_runs_continue(load, tmp_path, number):
    out = tmp_path / "r.json"
    trap = f"trap 'echo got; exit 0' {number.name[3:]}; echo ready; while :; do sleep 0.05; done"
    p = started("measure", load, "--trials=2", "-o", out, "--", "sh", "-c", trap)
    for _ in range(2):
        assert p.stdout.readline() == "ready\n"
        p.send_signal(number)
        assert p.stdout.readline() == "got\n"
    p.communicate(timeout=TIMEOUT)
    assert p.returncode == 0
    doc = json.loads(out.read_text())
    assert len(doc["runs"]) == 2 and all(r["energy_joules"]["best"] > 0 for r in doc["runs"])


def test_ctrl_c_reaches_the_command_once(load, tmp_path):
    out = tmp_path / "r.json"
    trap = "trap 'echo got; n=$((n+1))' INT; n=0; i=0; echo ready; "
    trap += "while [ $n -eq 0 ] && [ $i -lt 600 ]; do sleep 0.1; i=$((i+1)); done; sleep 0.3; exit $((40+n))"
    terminal = Terminal(80, "measure", load, "-o", out, "--", "sh", "-c", trap)
    terminal.read(b"ready")
    terminal.write(b"\x03")
    shown, code = terminal.end()
    assert code == 41, shown
    assert shown.count("got") == 1
    assert json.loads(out.read_text())["runs"][0]["exit_status"] == 41


def test_a_terminal_shows_the_progress(load):
    shown, code = on_terminal(80, "measure", load, "--", "sleep", "1.2")
    assert code == 0
    assert " samples  400 W" in shown and "\r\x1b[K" in shown
    assert max(len(l) for part in shown.split("\x1b[K") for l in part.splitlines()) <= 100


def test_without_a_terminal_there_is_a_line_for_a_hundred_samples(measure, load):
    silent, _ = measure([load], "sleep", "0.1")
    assert "samples  " not in silent.stderr
    done, _ = measure([load, "--progress"], "sleep", "4.5")  # some 225 samples, read once per second
    lines = [l for l in done.stderr.splitlines() if l.startswith("gpuward: ") and " samples" in l]
    assert 1 <= len(lines) <= 2


RELOAD = '[[timeline]]\nat = 33\ndo = "reload"\nlength = 1\n'  # one second, so that even a busy machine reads the GPU during the reload


@pytest.mark.parametrize("reload, code, seconds", [
    (False, "gpu-lost", 1.4),
    (True, "driver-reloaded", 5),  # `reload`: whether the GPU can be read again before the end
])
def test_a_gpu_that_goes_away_invalidates_what_is_kept(measure, scenario, tmp_path, reload, code, seconds):
    lost = Fault(tmp_path, "code = 15", "*")
    command = "sleep 5" if reload else f"sleep 1.9; touch {lost.file}; sleep 1.1"
    done, doc = measure([scenario(CONSTANT + (RELOAD if reload else lost.text))], "sh", "-c", command)
    assert done.returncode == 0
    run = doc["runs"][0]
    assert doc["validity"] == run["validity"] == "invalid"
    assert code in codes(run) and code in done.stderr
    device = run["devices"][0]
    assert device["samples"]["missed"] > 0
    # The driver still had samples up to a second before the end; gpuward does not invent the missing ones.
    assert run["energy_joules"]["low"] < WATTS * seconds < run["energy_joules"]["high"]
    assert run["energy_joules"]["best"] > WATTS * 0.5
    assert device["series"]["power"]["watts"][0] == WATTS


def test_the_counter_of_a_new_driver_has_nothing_to_do_with_the_old_one(measure, scenario):
    # The scenario begins with the run; after the reload the counter grows above its earlier value.
    text = CONSTANT.replace("begin = 30", "begin = 0.5") + RELOAD.replace("33", "1.9")
    done, doc = measure([scenario(text)], "sleep", "4.5")
    run = doc["runs"][0]
    assert "driver-reloaded" in codes(run) and run["validity"] == "invalid"
    assert run["devices"][0]["counter_joules"] is None
    assert run["energy_joules"]["low"] < WATTS * run["seconds"] < run["energy_joules"]["high"]


def test_a_full_disk_is_reported_and_the_summary_is_shown(load):
    done = gpuward("measure", load, "-o", "/dev/full", "--", "sleep", "0.1")
    assert done.returncode == 1
    assert "/dev/full cannot be written: No space left on device" in done.stderr
    assert "Energy" in done.stderr
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [PROGRAM, "measure", load, "--json", "--", "sleep", "0.1"], env=environment(),
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=TIMEOUT,
        )
    assert done.returncode == 1
    assert "cannot write the output: No space left on device" in done.stderr


def test_a_result_that_cannot_be_written_is_reported_before_the_command_runs(load, tmp_path):
    done = gpuward("measure", load, "-o", tmp_path / "no" / "r.json", "--", "echo", "ran")
    assert done.returncode == 1 and done.stdout == ""
    assert "No such file or directory" in done.stderr
    done = gpuward("measure", load, "-o", tmp_path, "--", "echo", "ran")
    assert done.returncode == 1 and done.stdout == ""


def test_an_output_that_is_the_bundle_is_refused_before_the_command_runs(load, tmp_path):
    for bundle in "x", f"{tmp_path}/x", "./x/":
        done = gpuward("measure", load, "-o", "x", "--bundle", bundle, "--", "touch", "ran", cwd=tmp_path)
        assert done.returncode == USAGE and f"--bundle: {bundle} is also the file of --output" in done.stderr
        assert not (tmp_path / "ran").exists() and not (tmp_path / "x").exists()
    (tmp_path / "x").mkdir()
    done = gpuward("measure", load, "-o", "x/manifest.toml", "--bundle", "x", "--", "touch", "ran", cwd=tmp_path)
    assert done.returncode == USAGE and "x/manifest.toml is inside the bundle x" in done.stderr
    assert not (tmp_path / "ran").exists()
    done = gpuward("measure", load, "-o", "y", "--bundle", "x", "--", "touch", "ran", cwd=tmp_path)
    assert done.returncode == 0 and (tmp_path / "ran").exists()


def test_an_older_result_is_replaced_whole(measure, load, tmp_path):
    out = tmp_path / "result.json"
    out.write_text("x" * 10**6)
    done, doc = measure([load], "true")
    assert doc["kind"] == "measurement"
    assert sorted(f.name for f in tmp_path.iterdir()) == ["result.json", "result.json.old", "scenario.toml"]
    assert f"replaced {out}; its previous content is in {out}.old" in done.stderr
    assert (tmp_path / "result.json.old").read_text() == "x" * 10**6
    measure([load, "-q"], "true")  # -q omits the note, not the copy
    assert json.loads((tmp_path / "result.json.old").read_text()) == doc


def test_an_older_result_is_kept_whatever_its_name_is(measure, load, tmp_path):
    out, old = tmp_path / "result.json", tmp_path / "result.json.old"
    far = pathlib.Path(tempfile.mkdtemp(dir="/dev/shm"))  # another file system, where a hard link is not possible
    try:
        (far / "real.json").write_text("previous")
        (far / "real.json.old").write_text("older")
        out.symlink_to(far / "real.json")
        done, doc = measure([load], "true")
        assert f"its previous content is in {far}/real.json.old" in done.stderr
        assert (far / "real.json.old").read_text() == "previous" and out.is_symlink() and doc
        assert sorted(f.name for f in far.iterdir()) == ["real.json", "real.json.old"]
    finally:
        shutil.rmtree(far)
    out.unlink()
    out.write_text("previous")
    old.mkdir()  # the name is taken
    done, doc = measure([load], "true")
    kept, = tmp_path.glob("result.json.old-*")
    assert kept.read_text() == "previous" and f"its previous content is in {kept}" in done.stderr and doc


@pytest.mark.parametrize("before", [None, "previous"])
def test_of_two_results_that_are_written_together_none_is_lost(load, tmp_path, before):
    out, old = tmp_path / "r.json", tmp_path / "r.json.old"
    if before:
        out.write_text(before)
    measure = lambda label: ("measure", load, "--label", label, "-o", out, "--", "true")
    # The first measurement stops at its first fsync(), when its result is written to a temporary file.
    first = started(*measure("first"), env=environment(
        LD_PRELOAD=SHIMS / "libkill_at_call.so", KILL_AT=1, KILL_SIGNAL="STOP"))
    try:
        assert os.waitid(os.P_PID, first.pid, os.WSTOPPED | os.WNOWAIT)
        assert len(list(tmp_path.glob("r.json.*.tmp"))) == 1
        assert gpuward(*measure("second")).returncode == 0
        assert json.loads(out.read_text())["label"] == "second"
    finally:
        first.send_signal(signal.SIGCONT)
    error = first.communicate(timeout=TIMEOUT)[1]
    assert first.returncode == 0 and f"its previous content is in {out}.old" in error
    assert [json.loads(f.read_text())["label"] for f in (out, old)] == ["first", "second"]
    assert sorted(f.name for f in tmp_path.glob("r.json*")) == ["r.json", "r.json.old"]


def test_an_older_result_is_kept_where_names_cannot_be_exchanged(load, tmp_path):
    out, old = tmp_path / "r.json", tmp_path / "r.json.old"
    env = environment(LD_PRELOAD=SHIMS / "libno_swap.so")
    for kept in None, "previous":
        if kept:
            out.write_text(kept)
        done = gpuward("measure", load, "-o", out, "--", "true", env=env)
        assert done.returncode == 0 and json.loads(out.read_text())["kind"] == "measurement"
        assert old.exists() == bool(kept) and ("replaced" in done.stderr) == bool(kept)
    assert old.read_text() == "previous"
    assert sorted(f.name for f in tmp_path.glob("r.json*")) == ["r.json", "r.json.old"]
    old.unlink()
    old.mkdir()
    assert gpuward("measure", load, "-o", out, "--", "true", env=env).returncode == 0
    assert len(list(tmp_path.glob("r.json.old-*"))) == 1


def test_an_empty_file_or_a_broken_link_is_replaced_without_a_copy(load, tmp_path):
    out = tmp_path / "r.json"
    for make in out.touch, lambda: out.symlink_to(tmp_path / "none"):
        make()
        done = gpuward("measure", load, "-o", out, "--", "true")
        assert done.returncode == 0 and "replaced" not in done.stderr
        assert [f.name for f in tmp_path.glob("r.json*")] == ["r.json"]
        out.unlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small file system")
def test_a_full_disk_loses_neither_the_result_nor_the_one_before(load, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("this machine does not allow mounts")
    try:
        out = disk / "r.json"
        out.write_text("previous")
        (disk / "r.json.old").write_text("older")
        (disk / "fill").write_bytes(b"x" * 48 * 1024)
        with contextlib.suppress(OSError):
            with open(disk / "fill", "ab") as f:
                f.write(b"x" * 64 * 1024)
        done = gpuward("measure", load, "-o", out, "--", "true")
        assert done.returncode != 0 and "No space left on device" in done.stderr
        assert (out.read_text(), (disk / "r.json.old").read_text()) == ("previous", "older")
        assert sorted(f.name for f in disk.iterdir()) == ["fill", "r.json", "r.json.old"]
    finally:
        subprocess.run(["umount", disk], check=True)


def test_no_gpu_is_a_result_without_joules_and_the_command_runs(measure, bare):
    done, doc = measure([*bare], "sh", "-c", "echo ran; exit 5")
    assert done.stdout == "ran\n" and done.returncode == 5
    run = doc["runs"][0]
    assert run["energy_joules"] is None and run["power_mean_watts"] is None
    assert run["devices"] == [] and run["seconds"] > 0
    assert run["host"]["joules"] is None and run["host"]["absence"]
    assert run["validity"] == "no-result"
    assert "no GPU was found" in codes(run)["no-source"]["evidence"]
    assert "unknown" in done.stderr and "0 J" not in done.stderr and "this GPU" not in done.stderr


def test_a_missing_gpu_is_known_before_the_command_runs(bare):
    done = gpuward("measure", *bare, "--", "sh", "-c", "echo ran >&2")
    before, ran, after = done.stderr.partition("ran\n")
    assert ran and before.startswith("gpuward: no GPU was found: ")
    assert "; the command runs, but its energy is unknown" in before
    assert "add --simulate" in before and done.returncode == 0
    assert gpuward("measure", *bare, "-q", "-o", "/dev/null", "--", "true").stderr == ""


def test_a_gpu_without_a_meter_has_no_joules(measure, scenario):
    dumb = scenario(
        CONSTANT + "[gpu.sensor]\nno_ring = true\nno_counter = true\nno_instant = true\n"
        'no_average = true\n[[fault]]\ncall = "nvmlDeviceGetPowerUsage"\ncode = 3\n'
    )
    done, doc = measure([dumb], "sleep", "0.3")
    assert done.returncode == 0
    run = doc["runs"][0]
    assert run["energy_joules"] is None and run["validity"] == "no-result"
    assert run["devices"][0]["energy_joules"] is None
    assert run["devices"][0]["meter"] == "none"
    assert run["codes"]


def test_memory_that_the_driver_does_not_know_is_not_0(measure):
    done, doc = measure(["--simulate=sentinels"], "sleep", "0.3")
    assert "no memory (pid 4000000), memory unknown" == codes(doc["runs"][0])["foreign-process"]["evidence"]
    words = " ".join(done.stderr.split())
    assert "no memory (pid 4000000), memory unknown" in words and "0 MiB" not in words


STRANGER = '[[gpu.process]]\nname = "stranger"\nmemory = "3 GiB"\n'


def test_a_foreign_process_makes_a_run_suspect_or_on_request_invalid(measure, scenario):
    shared = scenario(CONSTANT + STRANGER)
    done, doc = measure([shared], "sleep", "0.4")
    run = doc["runs"][0]
    assert done.returncode == 0 and run["validity"] == "suspect"
    assert "stranger (pid 4000000), 3072 MiB" in codes(run)["foreign-process"]["evidence"]
    shares = {p["name"]: p["joules"] for p in run["devices"][0]["processes"]}
    assert sum(v or 0 for v in shares.values()) == pytest.approx(run["energy_joules"]["best"])
    done, doc = measure([shared, "--require-exclusive"], "sh", "-c", "sleep 0.6; echo ran")
    assert done.stdout == "ran\n" and done.returncode == 13
    assert doc["validity"] == "invalid"
    assert codes(doc["runs"][0])["foreign-process"]["level"] == "invalid"
    assert "another process (stranger, pid 4000000) is using GPU 0; its energy is included" in done.stderr


def test_a_process_of_the_command_is_not_foreign(measure, scenario):
    own = scenario(CONSTANT + '[[gpu.process]]\npid = "self"\nmemory = "3 GiB"\n')
    done, doc = measure([own, "--require-exclusive"], "sleep", "0.3")
    assert done.returncode == 0 and doc["validity"] == "valid"


@pytest.mark.parametrize("words, said", [
    (["--trials=0", "--", "true"], "--trials takes a whole number from 1 to 1000, not '0'"),
    (["--iterations=1.5", "--", "true"], "--iterations takes a whole number"),
    (["--model-size=big", "--", "true"], "--model-size takes a size"),
    (["--tag=batch", "--", "true"], "--tag takes KEY=VALUE"),
    (["--cooldown-to=hot", "--", "true"], "--cooldown-to takes degrees"),
    (["--cooldown-to=40", "--no-cooldown", "--", "true"], "exclude each other"),
    (["--count=tokens", "--", "true"], "--count needs --count-cmd or --count-url"),
    (["--count-cmd=echo 1", "--tokens=5", "--", "true"], "exclude each other"),
    (["--count-cmd=echo 1", "--part=x", "--", "true"], "--count-cmd counts over the whole run"),
    (["--part=", "--", "true"], "--part: the name is empty"),
    (["--part=" + 64 * "x", "--", "true"], "--part: the name has 64 bytes, but the name of a part has at most 63"),
    (["--baseline=maybe", "--", "true"], "--baseline takes auto, new, kept or none"),
    (["--label=x"], "a command is missing"),
    (["--lable=x", "--", "true"], "did you mean '--label'"),
    (["--simulate", "idle-h200", "--", "true"], "if it is the value of --simulate, write --simulate=idle-h200"),
    (["--simulate", "idle-h200", "true"], "if it is the value of --simulate, write --simulate="),
    (["--simulate", "h200", "--", "true"], "if it is the value of --simulate, write --simulate="),
    (["--simulate", "--baseline", "new", "--", "true"], "if it is the value of --baseline, write --baseline=new"),
    (["--simulate", "--gpu", "GPU-51", "--", "true"], "--gpu 'GPU-51' is too short"),
])
def test_wrong_usage_runs_nothing(words, said):
    done = gpuward("measure", "--simulate=idle-h200", *words)
    assert done.returncode == USAGE and said in done.stderr


@pytest.mark.parametrize("words", [
    ["measure", "LOAD", "-q"], ["measure", "-q", "LOAD", "--"], ["-q", "measure", "LOAD", "--label=y"],
])
def test_the_first_word_begins_the_command_and_keeps_its_options(load, tmp_path, words):
    out = tmp_path / "r.json"
    words = [load if w == "LOAD" else w for w in words]
    at = words.index("measure") + 1
    done = gpuward(*words[:at], "-o", out, *words[at:], "echo", "--label", "foo", "-c", "--json", "--", "x")
    assert done.returncode == 0 and done.stdout == "--label foo -c --json -- x\n", done.stderr
    assert json.loads(out.read_text())["label"] != "foo"


def test_a_gpu_that_is_not_there_is_an_error_before_the_command_runs(load):
    done = gpuward("measure", load, "--gpu=7", "--", "echo", "ran")
    assert done.returncode == 3 and done.stdout == ""


def test_ctrl_c_while_the_baseline_is_taken_starts_nothing(tmp_path):
    started = tmp_path / "started"
    p = subprocess.Popen([str(PROGRAM), "measure", "--simulate=idle-h200", "--baseline=new", "--", "touch",
                          str(started)], env=environment(), stderr=subprocess.PIPE, text=True)
    assert "measuring the idle power" in p.stderr.readline()
    until_caught(p, signal.SIGINT)
    p.send_signal(signal.SIGINT)
    p.communicate(timeout=TIMEOUT)
    assert p.returncode == 130 and not started.exists()


def test_quiet_prints_the_result_when_it_cannot_be_written(load):
    done = gpuward("measure", load, "-q", "-o", "/dev/full", "--", "sleep", "0.1")
    assert done.returncode == 1
    assert "cannot" in done.stderr and "Energy" in done.stderr


def test_a_file_size_limit_is_reported(load, tmp_path):
    done = subprocess.run(["sh", "-c", 'ulimit -f 1; exec "$@"', "sh", str(PROGRAM), "measure", load, "-o",
                           str(tmp_path / "x.json"), "--", "sleep", "0.1"],
                          env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "x.json" in done.stderr
    assert os.listdir(tmp_path) == ["scenario.toml"]


def test_an_empty_name_of_a_file_is_refused_before_the_run(load, tmp_path):
    started = tmp_path / "started"
    for option in "-o", "--bundle":
        done = gpuward("measure", load, option, "", "--", "touch", str(started))
        assert done.returncode == 2 and not started.exists()


def test_marks_that_come_all_at_once_give_no_latency(measure, load):
    script = ("import os; f = os.fdopen(int(os.environ['GPUWARD_MARK_FD']), 'w');"
              "f.write('iteration\\n' * 50); f.flush()")
    _, doc = measure([load], "/usr/bin/python3", "-c", script)
    run = doc["runs"][0]
    assert run["iterations"] == 50
    assert run["latency_p50_seconds"] is None
