"""What docs/GUARD.md tells people to type is typed here, against a service on simulated GPUs."""
import os
import re
import shlex

import support
from guarded import Guarded, configure

TEXT = (support.TOP / "docs" / "GUARD.md").read_text()
LOCAL = {"config", "doctor"}  # these ask no service


def shown():
    """Commands in blocks (words after two blanks say what they do), in sentences and in gamemode.ini."""
    found = [re.split(r"  +", line.strip())[0] for line in re.findall(r"^ {4}(gpuward .*)$", TEXT, re.M)]
    found += [" ".join(c.split()) for c in re.findall(r"`(gpuward [^`]*)`", TEXT)]
    return found + re.findall(r"^(?:start|end)=(gpuward .*)$", TEXT, re.M)


def test_every_command_of_the_guide_does_what_it_says(world, worker, tmp_path):
    trace, other, good = (tmp_path / n for n in ("guard.trace", "new.toml", "good.toml"))
    config = configure(("ollama", worker), guard=f'record = "{trace}"', defaults="")
    good.write_text(config)
    other.write_text(config)
    means = {"vllm": "ollama", "TRACE": str(trace), "new.toml": str(other), "$PPID": str(os.getpid()),
             "4711": str(os.getpid()), "./render": "/bin/true", "gamemoderun": "/bin/true", "%command%": "/bin/true",
             "8G": "1G", "10G": "1G"}
    done = set()
    with Guarded(world, config) as s:
        s.until("active")
        for text in shown():
            name, *words = [means.get(w, w) for w in shlex.split(text)[1:]]
            if words == ["learn"]:
                words += ["--for", "1s"]
            if words[:1] == ["check"]:
                words.append(str(good))
            if name == "guard":
                s.guard("release")  # they are alternatives, not a story
            got = support.gpuward(name, *words) if name in LOCAL else s.cli(name, *words)
            assert got.returncode == support.OK or (name == "doctor" and got.returncode == support.FAILED), (text, got)
            done.add((name, *words[:1]))
    assert {("guard", w) for w in ("status", "explain", "learn", "evict", "resume", "hold", "release", "snooze", "pause",
                                   "game", "recover", "replay")} <= done
    assert {("config", "check"), ("doctor",)} <= done and any(d[0] == "run" for d in done)
