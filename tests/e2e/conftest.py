import os
import random
import signal

import pytest

import support
import worker as workers
from guarded import Guarded, configure
from service import Service

SEED = "GPUWARD_TEST_SEED"


def pytest_configure(config):
    config.addinivalue_line("markers", "deep: takes long or starts other servers; make test-deep runs it, make test does not")
    if support.JITTER:
        os.environ.setdefault(SEED, str(random.randrange(10**6)))  # the processes of xdist inherit this variable


def pytest_report_header(config):
    if support.JITTER:
        return f"each step waits up to {support.JITTER:g} s, {SEED}={os.environ[SEED]}"


@pytest.fixture(autouse=True)
def seeded(request):
    """Seeds the jitter per test, so that a test that runs alone has the same jitter as in a full run."""
    if support.JITTER:
        support.chance.seed(os.environ[SEED] + request.node.nodeid)


# The longest tests begin first, so that the run does not wait for one of them at its end.
SLOW = ["test_page", "test_page_guard", "test_characterise", "test_measure_clean", "test_guard_journal", "test_ab", "test_service",
        "test_guard_adapters", "test_guard_contention", "test_log", "test_measure", "test_guard_commands", "test_baseline"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Keeps tests that share a fixture of their file in one process (--dist loadgroup). Tests that install gpuward also stay
    together, because the build folder has only one install log. All others may run in any process."""
    order = {name: i for i, name in enumerate(SLOW)}
    items.sort(key=lambda item: order.get(item.path.stem, len(SLOW)))
    for item in items:
        scopes = {d.scope for defs in item._fixtureinfo.name2fixturedefs.values() for d in defs}
        if "installed" in item.fixturenames or "was_installed" in item.name:
            item.add_marker(pytest.mark.xdist_group("install"))
        elif "module" in scopes:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


def pytest_sessionstart(session):
    # A process that a script starts in the background ignores SIGINT; a process under nohup ignores SIGHUP. A child inherits an
    # ignored signal, but not a handler. With handlers here, the programs under test do not ignore these signals.
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, lambda *_: None)):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)
    if not support.PROGRAM.exists():
        pytest.exit(f"{support.PROGRAM} is not there: make build, or set GPUWARD_BUILD", 2)


@pytest.fixture
def bare(tmp_path):
    """Returns options with which the program sees a machine without a GPU, on every machine."""
    root = tmp_path / "bare"
    for part in ("proc", "sys", "etc"):
        (root / part).mkdir(parents=True)
    return ("--root", root)


@pytest.fixture
def scenario_file(tmp_path):
    """Writes a scenario and returns its path."""

    def write(text, name="scenario.toml"):
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


@pytest.fixture
def scenario(scenario_file):
    """Writes a scenario and returns the option that uses it."""
    return lambda *args, **kw: f"--simulate={scenario_file(*args, **kw)}"


@pytest.fixture
def load(scenario):
    """One GPU that draws WATTS and has no process on it."""
    return scenario(support.CONSTANT)


@pytest.fixture
def config(tmp_path):
    """Runs `gpuward config` with no other configuration files than those below tmp_path."""

    class Config:
        top, etc, home = tmp_path, tmp_path / "etc" / "gpuward", tmp_path / "home" / "gpuward"

        def __call__(self, *words, **variables):
            env = support.environment(GPUWARD_CONFIG_ROOT=tmp_path, XDG_CONFIG_HOME=tmp_path / "home", **variables)
            return support.gpuward("config", *words, env=env)

        def write(self, text, name="gpuward.toml"):
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            return path

    return Config()


@pytest.fixture
def world(tmp_path):
    """A simulated card. Real processes hold its memory: a file for each of them says how much."""
    return workers.World(tmp_path)


@pytest.fixture
def worker(world):
    """A worker on the simulated card that has loaded its model."""
    with workers.Worker(world) as w:
        Service.wait(lambda: w.resident() == 10 * workers.GIB)
        yield w


@pytest.fixture
def s(world, worker):
    """A service that guards this worker and has observed it."""
    with Guarded(world, configure(("ollama", worker))) as guarded:
        guarded.settled()
        yield guarded
