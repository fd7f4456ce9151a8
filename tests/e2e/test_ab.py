"""Tests gpuward ab: the verdict for known differences, and every case without a verdict.

The load is constant, so a command that takes 50 % longer takes 50 % more energy.
"""
import json
import re
import signal
import subprocess

import pytest

from support import CONSTANT, FAILED, NO_GPU, OK, PROGRAM, TIMEOUT, USAGE, WATTS, check, environment, gpuward, on_terminal, started

GATE_FAILED, UNDECIDED, INVALID, SHARED = 10, 11, 12, 13
STRANGER = '[[gpu.process]]\nname = "stranger"\nmemory = "3 GiB"\n'
QUICK = ["--pairs-max=6", "--aa-pairs=2", "--no-cooldown", "--seed=7"]
A, LONGER, MUCH_LONGER = (["sleep", s] for s in ("0.05", "0.15", "0.3"))  # on a busy machine the measured difference is smaller


@pytest.fixture
def ab(tmp_path):
    """Runs `gpuward ab OPTIONS -- A -- B`; returns the finished program, and the document or None."""
    out = tmp_path / "ab.json"

    def run(options, a, b, **kw):
        done = gpuward("ab", "-o", out, *options, "--", *a, "--", *b, **kw)
        doc = json.loads(out.read_text()) if out.exists() else None
        if doc:
            check("ab", doc)
        return done, doc

    return run


def test_a_longer_command_is_worse_and_fails_the_gate(ab, load):
    done, doc = ab([load, *QUICK, "--fail-if=energy > +10%"], A, MUCH_LONGER)
    assert done.returncode == GATE_FAILED, done.stderr
    energy = doc["ab"]["energy"]
    assert 1.1 < energy["interval"]["low"] < energy["ratio"] < energy["interval"]["high"] and energy["ratio"] < 7
    assert energy["ratio"] == pytest.approx(doc["ab"]["time"]["ratio"], rel=0.05)
    assert energy["verdict"] == "worse" and energy["pairs"] == 6
    assert doc["ab"]["time"]["verdict"] == "worse"
    assert energy["a_mean"] == pytest.approx(WATTS * doc["ab"]["time"]["a_mean"], rel=0.05)
    assert doc["ab"]["power"]["a_mean"] == pytest.approx(WATTS, rel=0.03)
    assert doc["gate"]["outcome"] == "failed" and doc["ending"] == "decided"
    assert doc["exit_code"] == GATE_FAILED
    assert "gate failed" in done.stdout and "SIMULATED" in done.stdout


def test_a_shorter_command_passes_the_gate(ab, load):
    done, doc = ab([load, *QUICK, "--fail-if=energy > +10%"], MUCH_LONGER, A)
    assert done.returncode == OK
    assert doc["gate"]["outcome"] == "passed" and doc["ab"]["energy"]["ratio"] < 0.9
    assert "gate passed" in done.stdout


def test_without_a_gate_a_finished_comparison_is_no_failure(ab, load):
    done, doc = ab([load, *QUICK], A, MUCH_LONGER)
    assert done.returncode == OK and doc["gate"] is None
    assert doc["ab"]["energy"]["verdict"] == "worse" and "worse" in done.stdout


def test_a_threshold_inside_the_interval_is_undecided(ab, load, tmp_path):
    # The second run of every pair takes twice as long. Each command is second in half of the pairs, so no command takes longer.
    n = tmp_path / "n"
    second = ["sh", "-c", f"echo >>{n}; sleep 0.0$((4 - 2 * ($(wc -l <{n}) % 2)))"]
    done, doc = ab([load, *QUICK, "--fail-if=time > +3%"], second, second)
    assert done.returncode == UNDECIDED and doc["gate"]["outcome"] == "cannot-tell"
    low, high = doc["ab"]["time"]["interval"].values()
    assert low < 1 < 1.03 < high
    assert doc["ending"] == "budget" and doc["planned_pairs"] > 6
    said = " ".join(done.stdout.split())
    assert "undecided" in said and "pairs would be needed" in said


def test_a_command_compared_with_itself_shows_no_large_difference(ab, load):
    done, doc = ab([load, *QUICK, "--fail-if=energy > +100%"], LONGER, LONGER)
    assert done.returncode == OK, done.stdout
    assert 0.7 < doc["ab"]["energy"]["ratio"] < 1.4
    assert doc["ab"]["energy"]["ratio"] == pytest.approx(doc["ab"]["time"]["ratio"], rel=0.02)


def test_the_document_holds_every_run_and_agrees_with_itself(ab, load):
    _, doc = ab([load, *QUICK, "--iterations=10", "--keep-command"], A, LONGER)
    assert doc["kind"] == "comparison" and doc["simulated"] is True
    assert (doc["a"]["command"], doc["b"]["command_name"]) == ("sleep 0.05", "sleep")
    assert (doc["config"]["seed"], doc["config"]["iterations"]) == (7, 10)
    pairs = [p for p in doc["pairs"] if p["phase"] == "ab"]
    assert [p["number"] for p in pairs] == [1, 2, 3, 4, 5, 6]
    assert {p["phase"] for p in doc["pairs"]} == {"aa", "ab"}
    # Each two successive pairs use both orders.
    firsts = [p["first"] for p in pairs]
    assert all({firsts[i], firsts[i + 1]} == {"a", "b"} for i in (0, 2, 4))
    runs = [r for r in doc["runs"] if r["used"]]
    assert len(runs) == 2 * len(doc["pairs"]) == 16
    assert {r["command"] for r in runs if r["phase"] == "aa"} == {"a"}
    by = {(r["phase"], r["pair"], r["arm"]): r for r in runs}
    product = 1
    for p in pairs:
        a, b = by["ab", p["number"], "a"], by["ab", p["number"], "b"]
        ratio = b["energy_relative_joules"]["best"] / a["energy_relative_joules"]["best"]
        assert p["energy"] == pytest.approx(ratio)
        product *= ratio
    assert doc["ab"]["energy"]["ratio"] == pytest.approx(product ** (1 / 6))
    assert [l["pairs"] for l in doc["looks"]] == [6]
    assert doc["looks"][0]["interval"] == doc["ab"]["energy"]["interval"]
    for r in runs:
        assert r["power_mean_watts"] == pytest.approx(WATTS, rel=0.05)


def test_the_seed_gives_the_order(ab, load):
    orders = []
    for seed in (3, 3, 4, 5, 6):
        _, doc = ab([load, "--pairs-max=4", "--aa-pairs=0", "--warmup=0", "--no-cooldown", f"--seed={seed}"],
                    ["true"], ["true"])
        orders.append([p["first"] for p in doc["pairs"]])
    assert orders[0] == orders[1]
    assert len({tuple(o) for o in orders}) > 1


def test_the_command_lines_are_kept_only_when_asked_for(ab, load):
    done, doc = ab([load, *QUICK, "--pairs-max=2"], ["true", "secret"], ["true"])
    assert doc["a"] == {"command_name": "true", "command": None}


def test_a_is_compared_with_itself_first(load):
    done = gpuward("ab", load, *QUICK, "--progress", "--", *A, "--", *A)
    lines = done.stderr.splitlines()
    noise = next(i for i, l in enumerate(lines) if "A compared with itself" in l)
    assert lines[0].startswith("gpuward: A/A pair 1 of 2")
    assert noise == 2 and lines[3].startswith("gpuward: pair 1 of at most 6; energy of B so far")
    assert lines[noise].startswith("gpuward: expected resolution, from A compared with itself: the smallest effect that 6 pairs can show")
    said = " ".join((done.stderr + done.stdout).split())
    assert said.count("of A compared with itself varies by") == 1  # the result of A compared with itself is printed once
    assert said.count("the smallest effect that 6 pairs can show") == 1
    assert said.count("the smallest effect that these") == 1
    assert re.search(r"is \S+ % \(before the first pair, the comparison of A with itself predicted \S+ % for 6 pairs\)", said)
    quiet = gpuward("ab", load, *QUICK, "--pairs-max=2", "-q", "--", "true", "--", "true")
    assert quiet.stderr == "" and "energy" in quiet.stdout


def test_json_is_all_that_is_printed(load):
    done = gpuward("ab", load, *QUICK, "--pairs-max=2", "--json", "-q", "--", "true", "--", "true")
    assert done.stderr == ""
    check("ab", json.loads(done.stdout))


def test_several_gpus_are_added_up(ab):
    done, doc = ab(["--simulate=two-gpus", "--pairs-max=2", "--aa-pairs=0", "--no-cooldown"],
                   ["sleep", "0.05"], ["sleep", "0.05"])
    sums = "energy and power are sums over these GPUs"
    assert f"GPUs 0, 1 (NVIDIA H100 80GB HBM3); {sums}" in " ".join(done.stdout.split())
    alone, one = ab(["--simulate=two-gpus", "--gpu=1", "--pairs-max=2", "--aa-pairs=0", "--no-cooldown"],
                ["sleep", "0.05"], ["sleep", "0.05"])
    assert "sums over" not in alone.stdout
    assert doc["ab"]["power"]["a_mean"] > one["ab"]["power"]["a_mean"]
    assert doc["config"]["offset_watts"] == 2 * one["config"]["offset_watts"]
    assert doc["aa"]["energy"]["ratio"] is None and "noise" not in doc


PART = 'sleep 0.05; echo begin work >&$GPUWARD_MARK_FD; sleep {}; echo end work >&$GPUWARD_MARK_FD'


def test_a_part_is_compared_without_what_is_around_it(ab, load):
    late = "sleep 0.1; " + PART
    done, doc = ab([load, *QUICK, "--part=work"], ["sh", "-c", late.format(0.04)], ["sh", "-c", late.format(0.2)])
    assert done.returncode == OK, done.stderr
    assert 2 < doc["ab"]["energy"]["ratio"] < 6  # about 5; with the time before the part it would be 1.8
    assert doc["ab"]["energy"]["ratio"] == pytest.approx(doc["ab"]["time"]["ratio"], rel=0.05)
    assert doc["ab"]["time"]["a_mean"] >= 0.04 and doc["config"]["part"] == "work"
    done, doc = ab([load, *QUICK, "--part=other"], ["sh", "-c", PART.format(0.01)], A)
    assert done.returncode == INVALID and "command A ('sh') did not mark the beginning and end of a part 'other'" in done.stderr
    assert doc["ending"] == "failed" and "did not mark the beginning and end" in doc["failure"]["reason"]


def test_of_several_parts_with_one_name_the_first_is_compared(ab, load):
    twice = PART.format(0.04) + "; " + PART.format(0.2)
    done, doc = ab([load, *QUICK, "--part=work"], ["sh", "-c", twice], ["sh", "-c", PART.format(0.04)])
    assert 0.04 <= doc["ab"]["time"]["a_mean"] < 0.2
    assert done.stderr.count("command A marked 2 parts named 'work'; the first is used") == 1


def test_the_commands_read_nothing_and_their_output_is_shown_only_when_asked_for(load):
    words = ["--pairs-max=2", "--aa-pairs=0", "--no-cooldown", "--", "sh", "-c", "cat; echo loud; echo err >&2",
             "--", "echo", "other"]
    done = gpuward("ab", load, *words, stdin=None, input="typed")
    assert "loud" not in done.stdout.replace("echo loud", "") and "err" not in done.stderr
    done = gpuward("ab", load, "--show-output", *words, stdin=None, input="typed")
    assert done.stdout.count("loud\n") >= 3 and done.stderr.count("err\n") >= 3
    assert "typed" not in done.stdout


def test_a_command_with_much_output_is_not_blocked(ab, load):
    many = ["sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x >&2"]
    done, _ = ab([load, "--pairs-max=2", "--aa-pairs=0", "--no-cooldown"], many, ["true"])
    assert done.returncode == OK


@pytest.mark.parametrize("script, said", [
    ("for i in 1 2 3 4 5 6 7; do echo line $i >&2; done; exit 3", "ended with status 3"),
    ("kill -KILL $$", "was ended by signal 9"),
])
def test_a_command_that_fails_ends_it(ab, load, script, said):
    done, doc = ab([load, *QUICK], A, ["sh", "-c", script])
    assert done.returncode == INVALID and done.stdout == ""
    assert f"command B ('sh') {said}" in done.stderr
    assert doc["ending"] == "failed" and doc["failure"]["command"] == "b"
    if "line" in script:
        assert done.stderr.endswith("\n  line 3\n  line 4\n  line 5\n  line 6\n  line 7\n")
        assert doc["failure"]["status"] == 3


def test_a_command_that_fails_later_keeps_the_pairs_before_it(ab, load, tmp_path):
    n = tmp_path / "n"
    script = f"echo >>{n}; sleep 0.05; [ $(wc -l <{n}) -lt 4 ] || {{ printf 'bad \\033[31mred' >&2; exit 1; }}"
    done, doc = ab([load, *QUICK, "--aa-pairs=0"], A, ["sh", "-c", script])
    assert done.returncode == INVALID
    assert done.stderr.endswith("its last lines:\n  bad [31mred\n")
    assert doc["ab"]["energy"]["pairs"] == 2 and doc["ab"]["energy"]["verdict"] == "cannot-tell"
    assert "after 2 of at most 6 pairs: a run failed" in done.stdout


@pytest.mark.parametrize("b, status, said", [
    ("no-such-command", 127, "command B ('no-such-command') cannot be started: No such file"),
    ("/etc/passwd", 126, "command B ('/etc/passwd') cannot be started: Permission denied"),
])
def test_a_command_that_is_not_there_is_found_before_the_pairs(ab, load, b, status, said):
    done, doc = ab([load, *QUICK], A, [b])
    assert done.returncode == status and said in done.stderr
    assert doc["runs"] == []


def test_a_foreign_process_is_reported_or_ends_it_if_asked(ab, scenario):
    shared = scenario(CONSTANT + STRANGER)
    done, doc = ab([shared, *QUICK], A, MUCH_LONGER)
    assert done.returncode == OK and doc["ab"]["energy"]["verdict"] == "worse"
    assert "foreign-process" in {c["code"] for c in doc["codes"]}
    done, doc = ab([shared, *QUICK, "--require-exclusive", "--fail-if=energy > +10%"], A, A)
    assert done.returncode == SHARED and doc["ending"] == "shared"
    assert "stranger (pid 4000000)" in done.stderr
    assert doc["gate"]["outcome"] == "cannot-tell" and len(doc["runs"]) == 1


LOST = CONSTANT + '[[timeline]]\nat = 30.6\ndo = "lose"\ngpu = 0\n'


def test_a_gpu_that_goes_away_leaves_nothing_to_conclude(ab, scenario):
    done, doc = ab([scenario(LOST), *QUICK, "--fail-if=energy > +10%"], ["sleep", "0.1"], A)
    assert done.returncode == INVALID, done.stderr
    assert doc["ending"] == "invalid" and doc["pairs_dropped"] == 4
    assert "no conclusion" in done.stderr and "the GPU went away" in done.stderr


def test_no_gpu_is_an_error_with_its_reason(bare, scenario):
    done = gpuward("ab", *bare, "--", "echo", "ran", "--", "true")
    assert done.returncode == NO_GPU and done.stdout == ""
    assert "no GPU was found" in done.stderr
    dumb = scenario(
        CONSTANT + "[gpu.sensor]\nno_ring = true\nno_counter = true\nno_instant = true\n"
        'no_average = true\n[[fault]]\ncall = "nvmlDeviceGetPowerUsage"\ncode = 3\n'
    )
    done = gpuward("ab", dumb, "--", "true", "--", "true")
    assert done.returncode == NO_GPU and "its energy cannot be read" in done.stderr


@pytest.mark.parametrize("words, said", [
    ([], "two commands are missing"),
    (["--", "sleep", "1"], "the second command is missing: write -- and the second command after '1'"),
    (["--", "true", "--"], "command B is empty"),
    (["--", "--", "true"], "command A is empty"),
    (["--", "", "--", "true"], "command A is empty"),
    (["--", "true", "--", "x", "--", "y"], "there is a third -- after 'x'"),
    (["--fail-if=enery > 2%", "--", "a", "--", "b"], "column 1: no metric is called 'enery'; did you mean 'energy'?"),
    (["--fail-if=energy > 2", "--", "a", "--", "b"], "the % after the number is missing"),
    (["--pairs-max=1", "--", "a", "--", "b"], "--pairs-max takes a whole number from 2 to 400"),
    (["--aa-pairs=-1", "--", "a", "--", "b"], "--aa-pairs takes a whole number from 0 to 400"),
    (["--target=1", "--", "a", "--", "b"], "--target takes a percentage above 0 such as 1%"),
    (["--target=0%", "--", "a", "--", "b"], "--target takes a percentage above 0"),
    (["--seed=x", "--", "a", "--", "b"], "--seed takes a whole number"),
    (["--warmup=-1", "--", "a", "--", "b"], "--warmup takes a whole number"),
    (["--cooldown-to=hot", "--", "a", "--", "b"], "--cooldown-to takes degrees"),
    (["--cooldown-to=40", "--no-cooldown", "--", "a", "--", "b"], "exclude each other"),
    (["--part=", "--", "a", "--", "b"], "--part: the name is empty"),
    (["--part=" + 32 * "é", "--", "a", "--", "b"], "--part: the name has 64 bytes"),
])
def test_wrong_usage_runs_nothing(words, said):
    done = gpuward("ab", "--simulate=idle-h200", *words)
    assert done.returncode == USAGE and said in done.stderr
    assert done.stdout == ""


def test_the_first_word_begins_the_first_command(load):
    done = gpuward("ab", load, "--json", "--pairs-max=2", "--aa-pairs=0", "--no-cooldown", "--keep-command",
                   "sh", "-c", "sleep 0.02", "--", "sleep", "0.01")
    doc = json.loads(done.stdout)
    assert [doc[k]["command"] for k in "ab"] == ["sh -c sleep 0.02", "sleep 0.01"]


def test_a_result_that_cannot_be_written_is_reported_before_anything_runs(load, tmp_path):
    ran = tmp_path / "ran"
    done = gpuward("ab", load, "-o", tmp_path / "no" / "r.json", "--", "touch", ran, "--", "true")
    assert done.returncode == FAILED and not ran.exists()
    done = gpuward("ab", load, *QUICK, "--pairs-max=2", "-o", "/dev/full", "--", "true", "--", "true")
    assert done.returncode == FAILED and "No space left on device" in done.stderr


@pytest.mark.parametrize("command", [
    ["ab", "--simulate=idle-h200", "--pairs-max=2", "--aa-pairs=0", "--warmup=0", "--no-cooldown", "--json", "--", "true", "--", "true"],
    ["list", "--simulate"],
])
def test_a_closed_standard_output_is_an_error(command):
    done = subprocess.run(["sh", "-c", '"$@" <&- >&-', "sh", str(PROGRAM), *command], env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == FAILED and "cannot write the output" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_what_is_known(load, tmp_path, number):
    out = tmp_path / "r.json"
    p = started("ab", load, "--progress", "--aa-pairs=0", "--target=0.0001%", "--no-cooldown", "-o", out,
              "--", *A, "--", *A)
    seen = ""
    while "pair 3 of at most 40" not in seen:
        seen += p.stderr.readline()
    p.send_signal(number)
    stdout, stderr = p.communicate(timeout=TIMEOUT)
    assert p.returncode == 128 + number
    doc = json.loads(out.read_text())
    check("ab", doc)
    assert doc["ending"] == "interrupted" and doc["interrupted_by"] == number
    assert doc["ab"]["energy"]["pairs"] >= 3 and doc["ab"]["energy"]["verdict"] == "cannot-tell"
    assert "interrupted" in stdout and f"signal {int(number)}" in stderr


# The load ends a second after the start, and the GPU cools from 76 C with a time constant of 1.5 s.
COOLING = """
[time]
begin = 30
[[gpu]]
profile = "h200"
thermal_s = 1.5
[[gpu.load]]
kind = "steps"
unit = "watts"
points = [[0, 650], [31, 80]]
"""


def test_a_run_waits_until_the_gpus_are_cool(ab, scenario):
    _, doc = ab([scenario(COOLING), "--pairs-max=2", "--aa-pairs=0", "--warmup=0", "--cooldown-to=45"],
                ["sleep", "0.02"], ["sleep", "0.02"])
    assert 0.5 < doc["cooldown_seconds"] < 30 and doc["cooldown_timeouts"] == 0
    assert all(r["temperature_begin_celsius"] <= 45 for r in doc["runs"])
    assert doc["config"]["cooldown_to_celsius"] == 45


def test_a_gpu_with_a_steady_temperature_is_not_waited_for(ab, load):
    _, doc = ab([load, "--pairs-max=2", "--aa-pairs=0"], ["true"], ["true"])
    assert doc["cooldown_seconds"] == 0 and doc["config"]["cooldown"] is True


def test_a_terminal_shows_what_is_known_so_far(load):
    shown, code = on_terminal(100, "ab", load, *QUICK, "--", *A, "--", *LONGER)
    assert code == OK
    assert "A/A pair 2 of 2: run of A" in shown
    assert "pair 4 of at most 6: run of " in shown and "energy of B so far +" in shown
    assert "\r\x1b[K" in shown
