"""Without libjansson the commands that read results say what is missing."""
import pytest

from support import FAILED, environment, gpuward
from synthetic import result, save


@pytest.mark.parametrize("command", ["compare", "report", "plot"])
def test_results_are_refused_with_the_reason(command, tmp_path):
    path = save(tmp_path, "a.json", result("a"))
    (tmp_path / "libjansson.so.4").write_text("no library")
    done = gpuward(command, path, env=environment(LD_LIBRARY_PATH=tmp_path))
    assert done.returncode == FAILED and done.stdout == ""
    assert done.stderr == f"gpuward: {path}: libjansson.so.4 is needed to read JSON: install libjansson4\n"
