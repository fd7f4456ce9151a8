"""The service is killed by the very call that unloads a worker: it has unloaded, and nobody heard that it did.

What must be brought back, and who must be told, was in the journal before the call: after a restart the worker comes
back as it was, whatever its kind.
"""
import os
import re
import shlex
import signal
import subprocess
import sys

import pytest

import guarded
import support
from guarded import SHORT, Guarded
from worker import GIB, Contender, Process

SIZE = 8 * GIB
# Class of fake_workers.py, its arguments, what its table has beside; those that load by themselves are told nothing.
SERVERS = {
    "ollama": ("Ollama", {"models": ["a", "b"]}, ""),
    "llamacpp": ("LlamaCpp", {"models": ["a", "b"]}, ""),
    "llamaswap": ("LlamaSwap", {"models": ["a"]}, ""),
    "vllm": ("VLLM", {}, "level = 2"),
    "sglang": ("SGLang", {}, ""),
    "tabby": ("Tabby", {"models": ["a"]}, ""),
    "kobold": ("Kobold", {"models": ["big.kcpps"]}, ""),
    "comfy": ("Comfy", {"models": ["a"]}, ""),
    "a1111": ("A1111", {"models": ["checkpoint"]}, ""),
}
LAZY = {"llamaswap", "comfy"}
# What these must know is in the configuration, or, of a checkpoint, in the record (test_guard_recover.py).
ELSEWHERE = {"systemd", "container", "checkpoint", "callback"}

# Frees its memory when it is told to, ends the service, and only then goes on; takes it again when it is told to.
BY_SIGNAL = """
import os, signal, sys
held, victim = sys.argv[1:]
mine = os.path.join(held, str(os.getpid()))
def leave(*_):
    os.unlink(mine)
    if os.path.exists(victim):
        os.kill(int(open(victim).read()), 9)
        os.unlink(victim)
def come(*_):
    open(mine, "w").write(str(8 << 30) + " compute")
signal.signal(signal.SIGUSR1, leave)
signal.signal(signal.SIGUSR2, come)
come()
print("ready", flush=True)
while True:
    signal.pause()
"""


def text(table):
    return f'[guard]\nmode = "enforce"\nsimulated = true\npoll_ms = 100\n{SHORT}\n{table}'


def killed_and_back(s, world, holds):
    """Somebody comes, the service dies of it, is started again; he goes, and all is as before."""
    with Contender(world, 4 * GIB):
        assert s.child.wait(support.TIMEOUT) == -signal.SIGKILL
        assert holds() == 0
        s.restart()
        s.until("evicted", name="w")
    s.wait(lambda: s.now("w") == "active", seconds=30)


def test_each_kind_is_here_or_elsewhere():
    kinds = re.findall(r"^[KI]\(\w+, (\w+),", (support.TOP / "src/guard/kind.def").read_text(), re.M)
    assert set(kinds) == set(SERVERS) | {"signal", "exec"} | ELSEWHERE


@pytest.mark.parametrize("kind", SERVERS)
def test_a_server_whose_unloading_kills_the_service_comes_back(world, kind):
    name, args, more = SERVERS[kind]
    victims = []
    w = guarded.held(world, name, SIZE, **args)
    answer = w.respond

    def respond(*request):
        try:
            return answer(*request)
        finally:
            if victims and not w.resident():
                os.kill(victims.pop(), signal.SIGKILL)
    w.respond = respond
    with w, Guarded(world, text(w.table("w", kind, more))) as s:
        before = list(w.loaded)
        s.until("active", name="w")
        victims.append(s.child.pid)
        killed_and_back(s, world, w.resident)
        assert kind in LAZY or (w.loaded == before and w.resident() == SIZE)
        assert not getattr(w, "garbage", False), "its weights are not those that it had"


def test_a_process_whose_signal_kills_the_service_is_told_to_come_back(world, tmp_path):
    victim, pidfile = tmp_path / "victim", tmp_path / "pid"
    with Process(world, [sys.executable, "-c", BY_SIGNAL, str(world.held), str(victim)], stdout=subprocess.PIPE) as w:
        w.child.stdout.readline()
        pidfile.write_text(f"{w.pid}\n")
        table = (f'[[worker]]\nname = "w"\nkind = "signal"\nmatch.pidfile = "{pidfile}"\nevict_signal = "SIGUSR1"\n'
                 'resume_signal = "SIGUSR2"\n')
        with Guarded(world, text(table)) as s:
            s.until("active", name="w")
            victim.write_text(str(s.child.pid))
            killed_and_back(s, world, lambda: world.holds(w.pid))
            assert world.holds(w.pid) == SIZE
        w.child.stdout.close()


def test_a_command_that_kills_the_service_is_followed_by_the_one_that_brings_back(world, tmp_path):
    victim, pidfile = tmp_path / "victim", tmp_path / "pid"
    with Process(world, ["/bin/sleep", "1000"]) as w:
        world.hold(w.pid, SIZE)
        pidfile.write_text(f"{w.pid}\n")
        mine = shlex.quote(str(world.held / str(w.pid)))
        out = f"rm -f {mine}; test -e {victim} && kill -9 $(cat {victim}) && rm {victim}; true"
        table = (f'[[worker]]\nname = "w"\nkind = "exec"\nmatch.pidfile = "{pidfile}"\n'
                 f'evict_command = ["/bin/sh", "-c", "{out}"]\n'
                 f'resume_command = ["/bin/sh", "-c", "echo {SIZE} compute > {mine}"]\n')
        with Guarded(world, text(table)) as s:
            s.until("active", name="w")
            victim.write_text(str(s.child.pid))
            killed_and_back(s, world, lambda: world.holds(w.pid))
            assert world.holds(w.pid) == SIZE
