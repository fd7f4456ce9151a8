"""A machine for tests of workloads: a /proc with control groups, and simulated GPUs with the processes of this
/proc."""
from service import Service

GPU = """
[[gpu]]
profile = "h200"
[[gpu.load]]
kind = "constant"
level = 0.5
"""


class Machine:
    """A /proc in which processes can move to another control group, and a scenario that puts them on the GPUs."""

    def __init__(self, path):
        self.root, self.scenario = path / "root", path / "scenario.toml"
        for part in ("proc", "sys", "etc"):
            (self.root / part).mkdir(parents=True)
        (self.root / "proc/stat").write_text("btime 1700000000\n")
        (self.root / "proc/uptime").write_text("90000.0 1.0\n")
        self.text = GPU

    def process(self, pid, cgroup, more="share = 0.3", start=1000):
        folder = self.root / f"proc/{pid}"
        folder.mkdir(exist_ok=True)
        fields = f"{pid} (train) S 1 {pid} {pid} 0 -1 4194560 1 0 0 0 5 5 0 0 20 0 1 0 {start} 1 1 18446744073709551615"
        (folder / "stat").write_text(fields + " 0" * 28 + "\n")
        (folder / "status").write_text("Name:\ttrain\nUid:\t1000\t1000\t1000\t1000\n")
        (folder / "comm").write_text("train\n")
        (folder / "cmdline").write_bytes(b"train\0")
        self.move(pid, cgroup)
        self.text += f'[[gpu.process]]\npid = {pid}\nmemory = "1 GiB"\n{more}\n'
        return self

    def move(self, pid, cgroup):
        (self.root / f"proc/{pid}/cgroup").write_text(f"0::{cgroup}\n")

    def serve(self, config=""):
        self.scenario.write_text(self.text)
        return Service(self.scenario, "--root", self.root, config=config)
