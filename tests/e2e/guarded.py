"""A service whose guard acts on simulated GPUs, for tests."""
from service import Service

WORLD = """
[[gpu]]
profile = "rtx4090"
used = "700 MiB"
[[gpu.process]]
name = "ollama"
memory = "{memory}"
{until}
[[gpu.process]]
name = "Xorg"
type = "graphics"
memory = "180 MiB"
"""
WORKER = """
[[worker]]
name = "ollama"
kind = "exec"
match.name = "ollama"
evict_command = ["/bin/true"]
resume_command = ["/bin/true"]
"""


def config(mode="enforce", worker=WORKER, more=""):
    return f'[guard]\nmode = "{mode}"\nsimulated = true\n{more}\n{worker}'


def service(directory, memory="4 GiB", until=None, mode="enforce", **kw):
    """memory: what the worker holds; until: second at which it lets go."""
    scenario = directory / "world.toml"
    scenario.write_text(WORLD.format(memory=memory, until=f"until = {until}" if until else ""))
    return Service(scenario, token=True, config=config(mode), **kw)


def looked(s):
    """Waits until the guard knows its workers."""
    def there():
        got = s.get("/api/v1/guard")
        return got.status_code == 200 and all(w["state"] != "reconcile" for w in got.json()["workers"])
    s.wait(there)
    return s
