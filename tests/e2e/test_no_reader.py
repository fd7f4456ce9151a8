"""A build without jansson has the commands that read results, and they say what is missing."""
import pytest

from support import FAILED, gpuward
from synthetic import reader, result, save


@pytest.mark.skipif(reader(), reason="built with jansson")
@pytest.mark.parametrize("command", ["compare", "report", "plot"])
def test_results_are_refused_with_the_reason(command, tmp_path):
    path = save(tmp_path, "a.json", result("a"))
    done = gpuward(command, path)
    assert done.returncode == FAILED and done.stdout == ""
    assert done.stderr == (f"gpuward: {path}: this gpuward was built without a JSON reader "
                           "(jansson), so it cannot read results\n")
