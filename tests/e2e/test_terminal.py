"""Tests the output for people: nothing is wider than the terminal, and colours appear only when requested."""
import os
import re
import subprocess
import unicodedata

import pytest

from support import COMMANDS, FAILED, OK, PROGRAM, TIMEOUT, USAGE, Terminal, environment, gpuward, on_terminal

ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def width(line):
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in line)
    return wide + sum(not unicodedata.combining(c) for c in line)


def widest(text):
    return max(map(width, ESCAPE.sub("", text).splitlines()))


SHOWN = ("demo", "mig", "odd-names", "eight-gpus", "lost-gpu", "version-mismatch", "crowd")


@pytest.mark.parametrize("columns", [60, 200])
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", SHOWN)
def test_no_line_is_wider_than_the_terminal(name, command, columns):
    out, _ = on_terminal(columns, command, f"--simulate={name}")
    too_wide = [l for l in ESCAPE.sub("", out).splitlines() if width(l) > columns]
    assert too_wide == []
    assert "SIMULATED" in out


@pytest.mark.parametrize("columns", [60, 200])
@pytest.mark.parametrize("words", [["--help"], ["list", "--simulate=help"]] + [[c, "--help"] for c in COMMANDS])
def test_no_line_of_the_help_is_wider_than_the_terminal(words, columns):
    out, code = on_terminal(columns, *words)
    assert code == OK
    assert [l for l in out.splitlines() if width(l) > columns] == []


@pytest.mark.parametrize("columns", [60, 100])
@pytest.mark.parametrize("command", COMMANDS)
def test_no_line_is_wider_when_a_gpu_is_stuck(command, columns, scenario):
    hang = scenario(
        '[[gpu]]\nprofile = "h100"\n'
        '[[fault]]\ncall = "nvmlDeviceGetUtilizationRates"\nhang = true\n'
    )
    out, _ = on_terminal(columns, command, hang, "--timeout=50ms", "--color=never")
    # a path may be longer than any line
    assert [l for l in out.splitlines() if width(l) > columns and "libnvidia-ml" not in l] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_verbose_output_fits_the_terminal(command):
    out, _ = on_terminal(80, command, "--simulate=sentinels", "--verbose")
    assert widest(out) <= 80


def test_a_wider_terminal_shows_more():
    narrow, _ = on_terminal(60, "snapshot", "--simulate")
    wide, _ = on_terminal(200, "snapshot", "--simulate")
    assert "PCI" in wide and "PCI" not in narrow


def test_watching_uses_the_whole_width():
    wide = Terminal(200, "snapshot", "--simulate", "--watch=50ms")
    assert "PCI" in wide.read(until=b"Ctrl-C")
    wide.write(b"\x03")
    wide.end()


def test_columns_counts_where_there_is_no_terminal():
    out = gpuward("list", "--simulate", env=environment(COLUMNS=60)).stdout
    assert widest(out) <= 60
    assert widest(gpuward("list", "--simulate", env=environment(COLUMNS=150)).stdout) > 80


def test_a_terminal_gets_colour():
    assert ESCAPE.search(on_terminal(80, "list", "--simulate")[0])


@pytest.mark.parametrize(
    "args,env",
    [
        (["--color=never"], {}),
        ([], {"NO_COLOR": "1"}),
        ([], {"TERM": "dumb"}),
        ([], {"TERM": None}),
        (["--color=never"], {"FORCE_COLOR": "1"}),
        ([], {"NO_COLOR": "1", "FORCE_COLOR": "1"}),
    ],
)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_terminal_gets_none_where_it_is_unwanted(command, args, env):
    assert "\x1b" not in on_terminal(80, command, "--simulate=lost-gpu", *args, **env)[0]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_pipe_gets_no_colour(command):
    assert "\x1b" not in gpuward(command, "--simulate").stdout


@pytest.mark.parametrize(
    "args,env",
    [(["--color=always"], {}), ([], {"FORCE_COLOR": "1"}), (["--color=always"], {"NO_COLOR": "1"})],
)
def test_a_pipe_gets_colour_where_it_is_asked_for(args, env):
    done = gpuward("list", "--simulate", *args, env=environment(**env))
    assert ESCAPE.search(done.stdout)


@pytest.mark.parametrize("command", COMMANDS)
def test_json_never_has_colour(command):
    out, _ = on_terminal(80, command, "--simulate", "--json", "--color=always")
    assert "\x1b" not in out


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", ["demo", "mig", "lost-gpu", "eight-gpus"])
def test_ascii_is_enough_for_a_locale_that_has_no_more(name, command):
    for columns in ("50", "120"):
        env = environment(LANG="C", LC_ALL="C", COLUMNS=columns)
        assert gpuward(command, f"--simulate={name}", env=env).stdout.isascii()


def test_a_degree_sign_where_the_locale_has_one():
    assert "°C" in gpuward("snapshot", "--simulate").stdout


def test_control_characters_of_a_driver_do_not_reach_the_terminal(scenario):
    evil = scenario('[[gpu]]\nprofile = "h100"\nname = "red \\u001b[31m and \\r over"\n')
    for command in COMMANDS:
        done = gpuward(command, evil)
        assert done.returncode == OK and ("red ?[31m" in done.stdout) == (command != "doctor")
        assert "\x1b" not in done.stdout and "\r" not in done.stdout


@pytest.mark.parametrize("args", [["snapshot"], ["snapshot", "--json"], ["env"], ["--help"]])
def test_a_reader_that_leaves_early_is_no_trouble(args):
    done = subprocess.run(
        f'"{PROGRAM}" {" ".join(args)} --simulate=sixty-four | head -1; echo "${{PIPESTATUS[0]}}"',
        shell=True, executable="/bin/bash", capture_output=True, text=True,
        env=environment(), timeout=TIMEOUT,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "0"


@pytest.mark.parametrize("args", [[c] for c in COMMANDS] + [["list", "--json"], ["--help"], ["--version"]])
def test_a_full_disk_is_reported(args):
    with open("/dev/full", "w") as full:
        done = gpuward(
            *args, "--simulate", capture_output=False, stdout=full, stderr=subprocess.PIPE
        )
    assert done.returncode == FAILED
    assert done.stderr == "gpuward: cannot write the output: No space left on device\n"


def test_closed_standard_output_is_reported():
    done = gpuward("list", "--simulate", preexec_fn=lambda: os.close(1), capture_output=False,
                   stderr=subprocess.PIPE)
    assert done.returncode == FAILED
    assert done.stderr.startswith("gpuward: cannot write the output: ")


def test_many_reasons_that_limit_the_clocks_are_all_shown(tmp_path):
    scenario = tmp_path / "limited.toml"
    scenario.write_text('[[gpu]]\n[[fault]]\ncall = "nvmlDeviceGetCurrentClocksEventReasons"\nvalue = 252\n')
    env = environment(COLUMNS="400")
    said = gpuward("snapshot", f"--simulate={scenario}", env=env).stdout
    assert re.search(r"CLOCKS LIMITED BY.*sw_power_cap.*power_brake", said, re.S), said
    assert "sw_power_cap" in gpuward("snapshot", "-v", f"--simulate={scenario}", env=env).stdout


def test_a_long_message_is_wrapped_on_a_terminal():
    out, code = on_terminal(60, "list", "--simulate", "--nvml-library=x")
    first, *more = out.splitlines()
    assert code == USAGE and widest(out) <= 60
    assert more and all(line.startswith(" " * len("gpuward: ")) for line in more)
    assert " ".join([first, *map(str.strip, more)]) == gpuward("list", "--simulate", "--nvml-library=x").stderr.strip()


def test_a_long_message_is_one_line_where_scripts_read_it():
    done = gpuward("list", "--simulate", "--nvml-library=x", env=environment(COLUMNS="60"))
    assert len(done.stderr.splitlines()) == 1 and widest(done.stderr) > 60


@pytest.mark.parametrize("command, says", [("snapshot", "which values are missing"), ("measure", "of each trial"),
                                           ("run", "how much memory is reserved"), ("compare", None), ("plot", None)])
def test_help_shows_verbose_only_where_it_has_an_effect(command, says):
    text = " ".join(gpuward(command, "--help").stdout.split())
    assert (says in text) if says else ("--verbose" not in text)


def test_a_note_of_a_baseline_is_wrapped_and_not_cut():
    out, _ = on_terminal(80, "baseline", "--show", "--simulate", "--color=never")
    assert "…" not in out and widest(out) <= 80
    assert "no baseline of this GPU" in out
