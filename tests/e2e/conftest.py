import pytest

import service
import support
import worker as workers


def pytest_sessionstart(session):
    if not support.PROGRAM.exists():
        pytest.exit(f"{support.PROGRAM} is not there: make build, or set GPUWARD_BUILD", 2)


@pytest.fixture
def bare(tmp_path):
    """Options that show the program a machine without any GPU, on whatever machine it runs."""
    root = tmp_path / "bare"
    for part in ("proc", "sys", "etc"):
        (root / part).mkdir(parents=True)
    return ("--root", root)


@pytest.fixture
def scenario(tmp_path):
    """Writes a scenario and returns the option that uses it."""

    def write(text, name="scenario.toml"):
        path = tmp_path / name
        path.write_text(text)
        return f"--simulate={path}"

    return write


@pytest.fixture
def world(tmp_path):
    """A simulated card whose memory is what real processes say."""
    return workers.World(tmp_path)


@pytest.fixture
def worker(world):
    """A worker on it that has loaded its model."""
    with workers.Worker(world) as w:
        service.Service.wait(lambda: w.resident() == 10 * workers.GIB)
        yield w
