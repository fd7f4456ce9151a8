"""What docs/GUARD.md lets a reader paste does what it says."""
import os
import re
import signal
import socket
import subprocess

import support

GUIDE = (support.TOP / "docs" / "GUARD.md").read_text()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def test_the_simulated_card_shows_an_eviction_and_a_return(tmp_path):
    part = GUIDE.split("## Try it on a simulated card")[1].split("\n## ")[0]
    blocks = re.findall(r"```sh\n(.*?)```", part, re.S)
    assert len(blocks) == 4
    port = str(free_port())
    script = "\necho -----\n".join(blocks).replace("/tmp/try-guard", str(tmp_path / "try")).replace("9495", port)
    states = iter(["active .*8.0 GiB", "evicted", "active .*is back"])  # what each sleep is for, however slow the machine
    script = re.sub(r"^sleep \d$", lambda m: f'until gpuward guard status --address 127.0.0.1:{port} 2>&1 | '
                    f'grep -q "^model *{next(states)}"; do sleep 0.1; done', script, flags=re.M)
    assert next(states, None) is None
    env = support.environment(HOME=tmp_path, PATH=f"{support.PROGRAM.parent}:{os.environ['PATH']}")
    shell = subprocess.Popen(["bash", "-c", script], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             start_new_session=True)
    try:
        said, _ = shell.communicate(timeout=support.TIMEOUT)
    finally:
        try:
            os.killpg(shell.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    before, during, after, _ = said.split("-----\n")
    assert re.search(r"^model +active .* 8\.0 GiB", before, re.M), said
    assert re.search(r"^model +evicted .*contention", during, re.M) and "Contender: pid" in during, said
    assert re.search(r"^model +active .*is back", after, re.M), said
