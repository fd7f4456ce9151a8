"""Tests streams that end without a message, and many programs at the same time."""
import json
import os
import signal
import subprocess

import pytest

from support import OK, PROGRAM, TIMEOUT, check, environment, gpuward


def start(*args, **kw):
    return subprocess.Popen(
        [str(PROGRAM), "snapshot", *args],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=environment(), text=True,
        # A job in the background of a script ignores SIGINT, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), **kw,
    )


def test_watching_as_json_is_one_document_per_line():
    p = start("--simulate", "--json", "--watch=50ms")
    docs = [json.loads(p.stdout.readline()) for _ in range(5)]
    p.kill()
    p.communicate(timeout=TIMEOUT)
    for doc in docs:
        check("snapshot", doc)
    times = [d["monotonic_seconds"] for d in docs]
    assert times == sorted(set(times))


@pytest.mark.parametrize("how", [["--json"], []])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_watching_ends_quietly_on_a_signal(number, how):
    p = start("--simulate", "--watch=50ms", *how)
    assert p.stdout.readline()
    p.send_signal(number)
    out, err = p.communicate(timeout=TIMEOUT)
    assert err == ""
    assert p.returncode == -number  # the signal itself ends it, so that a loop in a shell ends, too
    if how:
        assert out == "" or out.endswith("}\n")


@pytest.mark.parametrize("how", [["--json"], []])
def test_watching_ends_quietly_when_its_reader_leaves(how):
    p = start("--simulate", "--watch=20ms", *how)
    assert p.stdout.readline()
    p.stdout.close()
    assert p.wait(TIMEOUT) == OK
    assert p.stderr.read() == ""
    p.stderr.close()


def test_watching_reports_a_full_disk():
    with open("/dev/full", "w") as full:
        done = gpuward("snapshot", "--simulate", "--json", "--watch=20ms",
                       capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr


def test_watching_shows_that_a_gpu_is_lost(scenario):
    goes = scenario(
        '[time]\nmode = "scaled"\nrate = 5\n'
        '[[gpu]]\nprofile = "h100"\ncount = 2\n'
        '[[timeline]]\nat = 5\ndo = "lose"\ngpu = 1\n'
    )
    p = start(goes, "--json", "--watch=20ms", "--no-processes")
    states = []
    for line in p.stdout:
        states.append(json.loads(line)["devices"][1]["state"])
        if states[-1] == "lost":
            break
    p.kill()
    p.communicate(timeout=TIMEOUT)
    if states[0] != "ok":
        pytest.skip("this machine took a second to begin")
    assert states[-1] == "lost"


def test_twenty_snapshots_at_once_all_succeed():
    running = [start("--simulate", "--json") for _ in range(20)]
    for p in running:
        out, err = p.communicate(timeout=TIMEOUT)
        assert (p.returncode, err) == (OK, "")
        assert json.loads(out)["gpu_count"] == 2


def test_no_descriptor_of_the_caller_is_inherited_by_nvidia_smi(tmp_path):
    fake = tmp_path / "nvidia-smi"
    # The numbers of descriptors prove nothing: a shell has its script open as 10, and redirected files as 11.
    fake.write_text(f"#!/bin/sh\nls -l /proc/$$/fd >{tmp_path}/fds\nexit 9\n")
    fake.chmod(0o755)
    read, write = os.pipe()
    pipe = os.readlink(f"/proc/self/fd/{read}")
    gpuward("list", "--backend=nvidia-smi", pass_fds=(read, write),
            env=environment(PATH=f"{tmp_path}:/usr/bin:/bin"))
    os.close(read)
    os.close(write)
    listed = (tmp_path / "fds").read_text()
    assert " 0 -> " in listed, listed
    assert pipe not in listed
