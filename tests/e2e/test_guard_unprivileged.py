"""The service as the package runs it: a user of its own, who may not see which program others run nor who listens where."""
import json
import os
import pathlib
import re
import shutil
import tempfile

import pytest

import service
import support
import worker
from worker import GIB, UUID

NOBODY = 65534
UNSEEN = "may not see enough of other users' processes"
pytestmark = pytest.mark.skipif(os.getuid() != 0 or not shutil.which("setpriv"), reason="needs root to become another user")

CONFIG = """
[guard]
mode = "enforce"
simulated = true
unknown = "contend"
[[worker]]
name = "ollama"
kind = "ollama"
url = "{url}"
[[rule]]
match.exe = "*/games/*"
action = "contend-now"
"""


class Unprivileged(service.Service):
    def __init__(self, *args, capabilities=None, **kw):
        super().__init__(*args, token=True, **kw)
        self.argv = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
                     *([f"--inh-caps={capabilities}", f"--ambient-caps={capabilities}"] if capabilities else []), "--",
                     *self.argv]
        for path in (self.path, self.token_file, self.config):
            os.chown(path, NOBODY, NOBODY)

    def processes(self):
        got = self.get(f"/api/v1/guard/gpus/{UUID}")
        return {p["pid"]: p for p in got.json()["processes"]} if got.status_code == 200 else {}

    def guard(self, *words):
        done = support.gpuward("guard", *words, "--address", self.url)
        assert done.returncode == 0, done.stderr
        return done


@pytest.fixture
def place():
    """Where anybody may look, and a world and a program that are there."""
    with tempfile.TemporaryDirectory() as d:
        os.chmod(d, 0o755)
        games = pathlib.Path(d) / "games"
        games.mkdir()
        shutil.copy("/bin/sleep", games / "game")
        d = pathlib.Path(d)
        (d / "world").mkdir()
        yield worker.World(d / "world"), games / "game"


def test_what_cannot_be_seen_is_told_and_is_no_contender(place):
    world, game = place
    with worker.Worker(world, size=4 * GIB) as w, worker.Contender(world, 2 * GIB, exe=game) as g:
        service.Service.wait(lambda: w.runners())
        runner, = w.runners()
        with Unprivileged(world.scenario, config=CONFIG.format(url=w.url)) as s:
            s.wait(lambda: runner in s.processes() and g.pid in s.processes())
            seen = s.processes()
            assert seen[runner]["class"] == "unknown" and seen[runner]["may_be_worker"] and not seen[runner]["program_seen"]
            assert seen[g.pid]["class"] == "unknown"
            events = s.get("/api/v1/events").json()["events"]
            told = [e["text"] for e in events if UNSEEN in e["text"]]
            assert told and "worker ollama (by port)" in told[0] and "(match.exe)" in told[0]
            assert "CAP_SYS_PTRACE" in told[0] and UNSEEN in s.messages()
            s.wait(lambda: s.get("/api/v1/guard").json()["workers"][0]["state"] == "absent")
            assert re.search(r"known by its port.*match\.unit", " ".join(s.guard("explain").stdout.split()))
            learned = s.guard("learn", "--for", "1s")
            assert "[[rule]]" not in learned.stdout and "may be worker ollama" in learned.stderr
        assert w.acted() == []


def test_learn_names_what_the_service_can_match(place):
    world, game = place
    config = '[guard]\nmode = "observe"\nsimulated = true\n[[worker]]\nname = "w"\nkind = "systemd"\nmatch.unit = "w.service"\n'
    with worker.Contender(world, 2 * GIB, kind="graphics", exe=game) as g:
        with Unprivileged(world.scenario, config=config) as s:
            s.wait(lambda: g.pid in s.processes())
            assert 'match.name = "game"' in s.guard("learn", "--for", "1s").stdout
            assert UNSEEN not in s.messages()


def test_two_capabilities_show_all_of_it(place):
    world, game = place
    with worker.Worker(world, size=4 * GIB) as w, worker.Contender(world, 2 * GIB, exe=game) as g:
        service.Service.wait(lambda: w.runners())
        runner, = w.runners()
        with Unprivileged(world.scenario, config=CONFIG.format(url=w.url).replace("enforce", "dry-run"),
                          capabilities="+sys_ptrace,+dac_read_search") as s:
            s.wait(lambda: s.processes().get(runner, {}).get("class") == "worker")
            s.wait(lambda: s.processes().get(g.pid, {}).get("action") == "contend-now")
            assert UNSEEN not in s.messages()


def test_doctor_of_root_says_what_a_service_without_rights_would_miss(tmp_path):
    etc = tmp_path / "etc" / "gpuward"
    etc.mkdir(parents=True)
    (etc / "gpuward.toml").write_text(CONFIG.format(url="http://127.0.0.1:11434"))
    env = support.environment(GPUWARD_CONFIG_ROOT=tmp_path)
    rows = support.gpuward("doctor", "--json", "--backend=none", env=env)
    message = next(p for p in json.loads(rows.stdout)["privileges"] if p["privilege"] == "programs")["message"]
    assert "worker ollama (by port)" in message and "(match.exe)" in message
