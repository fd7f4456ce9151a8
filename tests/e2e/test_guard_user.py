"""A user of the desktop, who is neither root nor the service: what they may, and that their game starts in any case."""
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

import guarded
import service
import support
from worker import GIB, World

NOBODY = 65534
WORKER = """
[[worker]]
name = "model"
kind = "exec"
match.pidfile = "{pidfile}"
evict_command = ["/bin/sh", "-c", "rm -f {held}"]
resume_command = ["/bin/true"]
"""
pytestmark = pytest.mark.skipif(os.getuid() != 0 or not shutil.which("setpriv"), reason="needs root to become another user")


@pytest.fixture(scope="module")
def home():
    with tempfile.TemporaryDirectory() as d:
        os.chown(d, NOBODY, NOBODY)
        yield pathlib.Path(d)


@pytest.fixture(scope="module")
def served():
    """A service with a token that only root may read, and a model of 10 GiB."""
    with tempfile.TemporaryDirectory() as d, subprocess.Popen(["/bin/sleep", "1000"]) as model:
        world = World(d)
        world.hold(model.pid, 10 * GIB)
        pidfile = pathlib.Path(d) / "pid"
        pidfile.write_text(f"{model.pid}\n")
        worker = WORKER.format(pidfile=pidfile, held=world.held / str(model.pid))
        try:
            with service.Service(world.scenario, token=True, config=guarded.config(worker=worker)) as s:
                yield guarded.looked(s)
        finally:
            model.kill()


def as_user(home, *args, code=0, address=None):
    env = support.environment(HOME=home, GPUWARD_CONFIG_ROOT="/nowhere", GPUWARD_ADDRESS=address or "127.0.0.1:1")
    done = subprocess.run(["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--", support.PROGRAM,
                           *map(str, args)], env=env, cwd="/", capture_output=True, text=True, timeout=support.TIMEOUT)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_without_the_token_the_program_is_not_started_and_the_remedy_is_told(served, home):
    done = as_user(home, "run", "--vram", "1G", "--", "echo", "played", code=1, address=served.url)
    assert done.stdout == "" and "~/.config/gpuward/token" in done.stderr


@pytest.mark.parametrize("size,there,why", [
    ("1G", True, "This request needs the token"),
    ("1G", False, "no service listens on"),
])
def test_a_game_starts_all_the_same_where_it_is_said_so(served, home, size, there, why):
    done = as_user(home, "run", "--vram", size, "--anyway", "--", "sh", "-c", "echo played ${GPUWARD_GPU-nowhere}; exit 7",
                   code=7, address=served.url if there else None)
    assert done.stdout == "played nowhere\n"
    assert why in done.stderr and "sh is started all the same (--anyway)" in done.stderr


def test_with_the_token_in_a_file_of_their_own_a_user_has_the_right(served, home):
    """The commands of GUARD.md, "A user of the desktop"."""
    folder = home / ".config" / "gpuward"
    subprocess.run(["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "install", "-d", "-m", "700",
                    folder], check=True)
    subprocess.run(["install", "-o", str(NOBODY), "-m", "600", served.token_file, folder / "token"], check=True)
    never = as_user(home, "run", "--vram", "100G", "--anyway", "--", "echo", "played", address=served.url)
    assert never.stdout == "played\n" and "insufficient_vram" in never.stderr
    done = as_user(home, "run", "--vram", "16G", "--", "sh", "-c", "echo played on $GPUWARD_GPU", address=served.url)
    assert done.stdout.startswith("played on GPU-") and done.stderr == ""
    told = as_user(home, "guard", "game", "start", "--pid", os.getpid(), address=served.url)
    assert "workers leave until" in told.stdout
    told = as_user(home, "guard", "game", "end", "--pid", os.getpid(), address=served.url)
    assert told.stdout == f"the game of process {os.getpid()} is over\n"
