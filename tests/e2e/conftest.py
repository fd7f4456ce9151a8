import pytest

import support


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
