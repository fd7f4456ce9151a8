"""Compares whole outputs with the files in tests/golden.

GPUWARD_GOLDEN=write writes them again; read the difference before you commit it.
The simulated time does not run (stepped time) and the host is a fixture, so every byte is known.
"""
import json
import os

import pytest

from support import FIXTURES, SIMULATOR, TOP, environment, gpuward

GOLDEN = TOP / "tests" / "golden"
STILL = ["--root", str(FIXTURES / "amd-discrete"), "--backend=nvml"]
SCENE = f"--simulate={GOLDEN / 'still.toml'}"

OUTPUTS = {
    "list.txt": ["list", SCENE],
    "list-mig.txt": ["list", "--simulate=mig"],
    "list-odd-names.txt": ["list", "--simulate=odd-names"],
    "snapshot.txt": ["snapshot", SCENE],
    "env.txt": ["env", SCENE, "--verbose"],
    "doctor.txt": ["doctor", SCENE],
    "doctor-version-mismatch.txt": ["doctor", "--simulate=version-mismatch"],
    "list.json": ["list", SCENE, "--json"],
    "snapshot.json": ["snapshot", SCENE, "--json"],
    "env.json": ["env", SCENE, "--json"],
    "doctor.json": ["doctor", SCENE, "--json"],
}
ALWAYS = {
    "help.txt": ["--help"],
    "help-snapshot.txt": ["snapshot", "--help"],
}
CHANGING = ("time_utc", "monotonic_seconds", "architecture", "version")


def still(text, name):
    """Returns the text without what differs between runs or machines."""
    text = text.replace(str(SIMULATOR), "/SIMULATOR")
    if name.endswith(".json"):
        doc = json.loads(text)
        for part in (doc, doc.get("host", {}), doc.get("tool", {})):
            for key in CHANGING:
                if key in part:
                    part[key] = type(part[key])()
        return json.dumps(doc, indent=2, ensure_ascii=False) + "\n"
    lines = text.splitlines()
    varies = ("  time_utc", "  architecture  ", "  version  ", "gpuward   ")
    kept = [l for l in lines if not l.startswith(varies) or "Hopper" in l or "Ada" in l]
    return "\n".join(kept) + "\n"


@pytest.mark.parametrize("name", [*OUTPUTS, *ALWAYS])
def test_output_is_as_it_was(name):
    words = OUTPUTS[name] + STILL if name in OUTPUTS else ALWAYS[name]
    done = gpuward(*words, env=environment(COLUMNS=100))
    got = still(done.stdout, name)
    path = GOLDEN / name
    if os.environ.get("GPUWARD_GOLDEN") == "write":
        path.write_text(got)
    assert got == path.read_text()
