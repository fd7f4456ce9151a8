"""Tests gpuward setup on a file tree: what it finds, writes, leaves unchanged and removes, also if it is interrupted at
any call, or if systemctl fails."""
import fcntl
import json
import os
import pathlib
import pty
import shlex
import shutil
import subprocess
import tempfile
import time

import pytest

import guarded
import support

SHIM = support.BUILD / "tests" / "e2e" / "libkill_at_call.so"
DOCKER = "/system.slice/docker-" + "0123456789abcdef" * 4 + ".scope"
USER_TOKEN = "home/alice/.config/gpuward/token"


class Tree:
    """A file tree that represents "/": one AMD GPU, the user alice and processes."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        shutil.copytree(support.FIXTURES / "amd-discrete" / "sys", self.path / "sys", symlinks=True)
        for d in ("etc", "proc/net", "home/alice"):
            (self.path / d).mkdir(parents=True)
        (self.path / "etc/passwd").write_text(
            f"root:x:0:0::/root:/bin/sh\nalice:x:{os.getuid() or 65534}:{os.getgid() or 65534}::/home/alice:/bin/sh\n")
        if os.getuid() == 0:
            os.chown(self.path / "home/alice", 65534, 65534)

    def process(self, pid, *argv, cgroup="/user.slice/user-1000.slice/session-1.scope", cwd="/", ports=(), parent=1):
        d = self.path / "proc" / str(pid)
        for name in ("fd", "net"):
            (d / name).mkdir(parents=True)
        name = pathlib.Path(argv[0]).name[:15]
        (d / "cmdline").write_text("\0".join(argv) + "\0")
        (d / "comm").write_text(name + "\n")
        (d / "cgroup").write_text(f"0::{cgroup}\n")
        (d / "stat").write_text(f"{pid} ({name}) S {parent} {pid} {pid} 0 -1 4194560" + " 0" * 8 + f" 0 20 0 1 0 {pid} 0 0 0\n")
        (d / "status").write_text(f"Name:\t{name}\nTgid:\t{pid}\nPid:\t{pid}\nPPid:\t{parent}\nUid:\t1000\t1000\t1000\t1000\n")
        (d / "cwd").symlink_to(cwd)
        line = "   {}: 0100007F:{:04X} 00000000:0000 0A 00000000:00000000 00:00000000 00000000 1000 0 {} 1\n"
        table = "sl local_address\n" + "".join(line.format(i, p, pid * 100 + i) for i, p in enumerate(ports))
        (d / "net/tcp").write_text(table)
        for i in range(len(ports)):
            (d / "fd" / str(i)).symlink_to(f"socket:[{pid * 100 + i}]")
        with open(self.path / "proc/net/tcp", "a") as f:
            f.write(table)

    def setup(self, *args, code=support.OK, **env):
        done = support.gpuward("setup", "--root", str(self.path), *args, env=support.environment(SUDO_USER="alice", **env))
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def files(self):
        """All files below etc and home, with contents, modes and owners."""
        return {str(p.relative_to(self.path)): (p.stat().st_mode, p.stat().st_uid, p.read_text() if p.is_file() else None)
                for d in ("etc", "home") for p in sorted((self.path / d).rglob("*"))}


@pytest.fixture
def tree():
    # alice must be able to reach her home, which is not possible below pytest's own folders
    with tempfile.TemporaryDirectory(prefix="gpuward-setup-") as folder:
        os.chmod(folder, 0o711)
        yield Tree(folder + "/root")


@pytest.fixture
def full(tree):
    """One server of each kind, as unit, container and plain process."""
    tree.process(100, "/usr/local/bin/ollama", "serve", cgroup="/system.slice/ollama.service", ports=[11434])
    tree.process(101, "/usr/local/bin/ollama", "runner", cgroup="/system.slice/ollama.service", parent=100)
    tree.process(200, "/opt/llama-server", "--port", "8081", ports=[8081])
    tree.process(210, "/usr/bin/llama-swap", "-listen", ":9292", ports=[9292])
    tree.process(211, "/opt/llama-server", "-m", "x.gguf", "--port", "5800", ports=[5800], parent=210)
    tree.process(300, "python3", "/venv/bin/vllm", "serve", "M", "--port", "8002", cgroup=DOCKER, ports=[8002])
    tree.process(400, "python", "main.py", cwd="/home/alice/ComfyUI", ports=[8188])
    tree.process(500, "python3", "/x/stable-diffusion-webui/launch.py", "--api", ports=[7861])
    tree.process(600, "python", "-m", "sglang.launch_server", "--enable-memory-saver", ports=[30000],
                 cgroup="/user.slice/user-1000.slice/user@1000.service/app.slice/sglang.service")
    tree.process(700, "./koboldcpp", "--config", "/m/a.kcpps", "--admin", "--admindir", "/m", ports=[5001])
    tree.process(800, "python3", "main.py", cwd="/srv/tabbyAPI", ports=[5000])
    tree.process(900, "/usr/bin/vim", "llama-server")
    return tree


def test_each_kind_is_found_and_the_files_are_those_that_the_service_accepts(full):
    said = full.setup("--yes").stdout
    for line in ("Ollama: unit ollama.service, port 11434", "llama.cpp: process 200, port 8081", "llama-swap: process 210",
                 "vLLM: container 0123456789ab, port 8002", "ComfyUI: process 400, port 8188", "port 7861",
                 "SGLang: unit sglang.service of user", "KoboldCpp: process 700", "TabbyAPI: process 800"):
        assert line in said
    assert "process 211" not in said and "process 900" not in said
    assert "gpuward guard game start --pid $PPID" in said and "gpuward run --vram 8G --anyway -- %command%" in said
    assert "systemctl --user enable --now gpuward-notify" in said and "gpuward top shows it" in " ".join(said.split())
    files = full.files()
    assert files["etc/gpuward/token"][0] & 0o777 == 0o600 and len(files["etc/gpuward/token"][2]) == 65
    assert files[USER_TOKEN][0] & 0o777 == 0o600 and files[USER_TOKEN][2] == files["etc/gpuward/token"][2]
    assert files[USER_TOKEN][1] == (full.path / "home/alice").stat().st_uid
    assert files["home/alice/.config/gpuward"][0] & 0o777 == 0o700
    text = files["etc/gpuward/gpuward.toml"][2]
    assert text.count("\n[[worker]]\n") == 9 and 'mode = "dry-run"' in text and "x.gguf" not in text
    config = full.path / "check.toml"
    config.write_text(text.replace("/etc/gpuward", str(full.path / "etc/gpuward")))
    checked = support.gpuward("config", "check", str(config))
    assert checked.returncode == support.OK, checked.stderr


def test_nothing_is_changed_without_a_gpu_without_a_terminal_or_in_a_dry_run(full):
    before = full.files()
    assert "would" in full.setup("--dry-run").stdout
    assert "setup --yes" in full.setup(code=support.FAILED).stderr
    shutil.rmtree(full.path / "sys")
    done = full.setup("--yes", code=support.NO_GPU)
    # the sentence names the next step itself, because gpuward doctor has no other
    assert "no GPU was found" in done.stderr and "gpuward doctor" not in done.stderr and not done.stdout
    assert "install its driver" in done.stderr and "simulated card" in done.stderr
    assert "gpuward setup --dry-run --simulate." in done.stderr
    assert "gpuward setup --dry-run --simulate." not in support.gpuward("setup", "--dry-run", "--simulate=no-gpu").stderr
    plan = full.setup("--dry-run", code=support.NO_GPU)
    assert plan.stderr == done.stderr and not plan.stdout  # nothing is printed that setup would not do
    assert full.files() == before


def test_undo_removes_exactly_what_setup_wrote(full):
    before = full.files()
    full.setup("--yes")
    full.setup("--yes")  # a second run replaces only its own configuration
    assert "removed /etc/gpuward/token" in full.setup("--undo").stdout
    assert full.files() == before
    assert "nothing to undo" in full.setup("--undo").stdout


def test_undo_clears_the_mode_and_the_holds_of_the_service_and_setup_names_the_mode_in_force(full, world, worker):
    with guarded.Guarded(world, guarded.configure(("ollama", worker), mode="dry-run")) as s:
        env = {"GPUWARD_ADDRESS": s.url, "GPUWARD_TOKEN_FILE": s.token_file}
        assert "begins with a dry run" in full.setup("--yes", **env).stdout
        s.until("active")
        s.guard("mode", "enforce")
        assert "its mode is enforce" in full.setup("--yes", **env).stdout
        s.guard("evict", "ollama")
        s.until("evicted")
        said = " ".join(full.setup("--undo", "--dry-run", **env).stdout.split())
        assert "clear the mode enforce" in said and "release the worker ollama" in said
        assert "The worker ollama is off the GPU now (state evicted)" in said and "a request loads it" in said
        assert s.now() == "evicted" and s.get("/api/v1/guard").json()["mode"] == "enforce"
        assert "cleared the mode enforce" in full.setup("--undo", **env).stdout
        doc = s.get("/api/v1/guard").json()
        assert (doc["mode"], doc["mode_set"], doc["workers"][0]["mask"]) == ("dry-run", None, [])
        s.back(worker)  # the worker returned before the mode became dry-run
        full.setup("--yes")
        s.guard("mode", "enforce")
    said = " ".join(full.setup("--undo", GPUWARD_ADDRESS=s.url).stdout.split())
    assert "could not be cleared: no service answers" in said and "/var/lib/gpuward/gpuward.db" in said


def test_undo_names_a_worker_that_was_evicted_before_the_mode_became_dry_run(full, world, worker):
    with guarded.Guarded(world, guarded.configure(("ollama", worker), mode="enforce")) as s:
        env = {"GPUWARD_ADDRESS": s.url, "GPUWARD_TOKEN_FILE": s.token_file}
        full.setup("--yes", **env)
        s.until("active")
        s.guard("evict", "ollama")
        s.until("evicted")
        s.guard("mode", "dry-run")
        began = time.monotonic()
        said = " ".join(full.setup("--undo", **env).stdout.split())
        assert "The worker ollama is off the GPU now (state evicted)" in said
        assert time.monotonic() - began < 20  # setup does not wait for a worker that cannot return


def test_undo_names_a_folder_that_is_not_empty_and_a_service_that_still_runs(full):
    full.setup("--yes")
    (full.path / "etc/gpuward/notes").write_text("mine\n")
    full.process(950, "/usr/bin/gpuward", "serve", ports=[9490])
    said = full.setup("--undo").stdout
    assert "kept /etc/gpuward: it is not empty" in said
    assert "service still runs (process 950, port 9490)" in said


def test_a_dry_run_of_undo_names_what_it_would_remove_and_removes_nothing(full):
    assert "nothing to undo" in full.setup("--undo", "--dry-run").stdout
    full.setup("--yes")
    config = full.path / "etc/gpuward/gpuward.toml"
    config.write_text(config.read_text() + "# edited\n")
    before = full.files()
    said = full.setup("--undo", "--dry-run").stdout
    assert "remove /etc/gpuward/token\n" in said and "remove /home/alice/.config/gpuward/token\n" in said
    assert "keep /etc/gpuward/gpuward.toml: it was changed" in said and "removed" not in said
    assert full.files() == before


def test_a_file_that_a_person_edited_or_wrote_is_kept_and_named(full):
    full.setup("--yes")
    config = full.path / "etc/gpuward/gpuward.toml"
    config.write_text(config.read_text() + "[log]\nlevel = \"debug\"\n")
    edited = config.read_text()
    said = " ".join(full.setup("--yes").stdout.split())
    assert "a person wrote or changed" in said and config.read_text() == edited
    assert "kept /etc/gpuward/gpuward.toml: it was changed" in full.setup("--undo").stdout
    assert config.read_text() == edited and sorted(os.listdir(config.parent)) == ["gpuward.toml"]
    assert "[[worker]]" in full.setup("--yes").stdout  # lines that the user can copy
    assert config.read_text() == edited and (config.parent / "token").exists()  # the lines name this token
    config.write_text("# only an example\n")
    full.setup("--yes")
    assert config.read_text() == "# only an example\n" and (config.parent / "gpuward.d/setup.toml").exists()


def test_no_link_in_the_home_of_the_user_is_followed(full):
    aim = full.path / "aim"
    aim.mkdir(mode=0o777)
    (full.path / "home/alice/.config").symlink_to(aim)
    assert "a link, which setup does not follow" in " ".join(full.setup("--yes").stdout.split())
    assert list(aim.iterdir()) == []
    full.setup("--undo")
    assert not (full.path / "etc/gpuward").exists()


def test_a_manifest_that_another_user_can_write_is_not_used(full):
    full.setup("--yes")
    manifest = full.path / "etc/gpuward/setup.json"
    manifest.chmod(0o666)
    assert "can write it" in full.setup("--undo", code=support.FAILED).stderr
    assert (full.path / "etc/gpuward/token").exists()


def test_the_address_for_the_browser_is_that_of_the_configuration(tree):
    assert "in a browser: http://127.0.0.1:9490\n" in tree.setup("--yes").stdout
    tree.setup("--undo")
    (tree.path / "etc/gpuward").mkdir()
    (tree.path / "etc/gpuward/gpuward.toml").write_text('[service]\nlisten = ["unix:/run/x", "127.0.0.1:9555"]\n')
    assert "in a browser: http://127.0.0.1:9555\n" in tree.setup("--yes").stdout


def test_a_broken_manifest_is_named_once_and_nothing_is_changed(full):
    full.setup("--yes")
    (full.path / "etc/gpuward/setup.json").write_text("{ broken")
    before = full.files()
    for args in (["--yes"], ["--dry-run"], ["--undo"]):
        said = full.setup(*args, code=support.FAILED).stderr
        assert said.count("setup.json") == 1 and "fix or remove this file" in said
        assert full.files() == before


def test_a_unit_is_taken_only_if_the_server_started_all_of_its_processes(tree):
    cron, llama = "/system.slice/cron.service", "/system.slice/llama.service"
    tree.process(50, "/usr/sbin/cron", cgroup=cron)
    tree.process(100, "/home/alice/llama-server", "-m", "x.gguf", cgroup=cron, parent=50)
    tree.process(110, "/home/alice/bin/ollama", "serve", cgroup=cron, ports=[11434])  # the daemon's parent is not cron
    tree.process(200, "/opt/llama-server", "-m", "y.gguf", cgroup=llama)
    tree.process(201, "/bin/sh", "-c", "true", cgroup=llama, parent=200)
    said = " ".join(tree.setup("--yes").stdout.split())
    assert "Ollama (process 110) is not the only program in the unit cron.service, so the guard does not stop this unit; it" in said
    assert "llama.cpp (process 100) does not listen" not in said  # this process is not a worker
    config = (tree.path / "etc/gpuward/gpuward.toml").read_text()
    assert config.count('kind = "systemd"') == 1 and 'match.unit = "llama.service"' in config and "cron" not in config
    assert 'match.command = "(^|[/ ])ollama serve"' in config and "match.uid = 1000" in config
    companion = (tree.path / "etc/gpuward/companion.conf").read_text()
    assert "unit llama.service\n" in companion and "cron" not in companion


def test_a_hostile_process_neither_reaches_the_terminal_nor_stops_setup(tree):
    tree.process(100, "/tmp/llama-server-\u009b31m\u202e")
    tree.process(150, "/x/" + "/tmp/llama-server-" + "." * 100)
    tree.process(200, "x", ports=[11434])
    (tree.path / "proc/200/comm").write_bytes(b"\x1b]0;p\x07\x1b[2J\n")
    (tree.path / "proc/200/stat").write_bytes((tree.path / "proc/200/stat").read_bytes().replace(b"(x)", b"(\x1b]0;p\x07)"))
    tree.process(300, "/tmp/llama-server-")
    (tree.path / "proc/300/cmdline").write_bytes(b"/tmp/llama-server-\xff\xfe\0")
    for args in (["--dry-run"], ["--yes"]):
        said = tree.setup(*args).stdout
        assert not [c for c in said if ord(c) < 32 and c != "\n" or 127 <= ord(c) < 160 or c == "\u202e"], said
        assert "The process ?]0;p?" in said and "is left out" in said
    assert (tree.path / "etc/gpuward/gpuward.toml").read_text().count("\n[[worker]]\n") == 2


def test_without_a_copy_of_the_token_setup_finishes_and_says_how_to_make_the_copy(tree):
    home = tree.path / "home/alice"
    home.chmod(0o555)
    said = " ".join(tree.setup("--yes").stdout.split())
    assert "was not made" in said and "sudo install -D -o alice -m 600 /etc/gpuward/token" in said
    assert (tree.path / "etc/gpuward/gpuward.toml").exists()
    tree.setup("--undo")
    home.rmdir()
    assert "was not made" in " ".join(tree.setup("--yes").stdout.split()) and not home.exists()
    tree.setup("--undo")
    # an obstacle that setup notices only when it writes
    (home / ".config/gpuward/token.setup-new").mkdir(parents=True)
    if os.getuid() == 0:
        subprocess.run(["chown", "-R", "65534:65534", home], check=True)
    done = tree.setup("--yes")
    assert "alice has no copy of the token" in done.stderr and "To see the GPUs in a browser" in done.stdout
    assert USER_TOKEN.split("/", 2)[2] not in (tree.path / "etc/gpuward/setup.json").read_text()
    tree.setup("--undo")
    assert not (tree.path / "etc/gpuward").exists()


def test_a_second_setup_at_the_same_time_changes_nothing(tree):
    before = tree.files()
    lock = os.open(tree.path / "etc", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    for args in (["--yes"], ["--undo"]):
        assert "another gpuward setup is running" in tree.setup(*args, code=support.FAILED).stderr
    assert "would" in tree.setup("--dry-run").stdout and tree.files() == before
    os.close(lock)
    tree.setup("--yes")


@pytest.mark.parametrize("link", ["etc", "etc/gpuward", "etc/gpuward/gpuward.d"])
def test_a_root_with_a_link_that_leads_outside_is_refused(tree, link):
    outside = tree.path.parent / "outside"
    place = tree.path / link
    if link == "etc":
        place.rename(outside)
    else:
        outside.mkdir()
        place.parent.mkdir(exist_ok=True)
    place.symlink_to(outside)
    there = sorted(outside.iterdir())
    for args in (["--yes"], ["--undo"]):
        assert f"{link} is a link" in tree.setup(*args, code=support.FAILED).stderr
    assert sorted(outside.iterdir()) == there


def test_a_home_below_a_link_of_the_root_gets_no_token(tree):
    outside = tree.path.parent / "outside"
    (tree.path / "home").rename(outside)
    (tree.path / "home").symlink_to(outside)
    assert "was not made" in " ".join(tree.setup("--yes").stdout.split())
    assert list((outside / "alice").iterdir()) == []


def test_undo_fails_and_remembers_what_it_could_not_remove(full):
    before = full.files()
    full.setup("--yes")
    folder = full.path / "home/alice/.config/gpuward"
    folder.chmod(0o555)  # alice may not remove her copy
    done = full.setup("--undo", code=support.FAILED)
    assert "kept /home/alice/.config/gpuward/token: Permission denied" in done.stdout and "--undo again" in done.stderr
    assert (full.path / USER_TOKEN).exists() and not (full.path / "etc/gpuward/token").exists()
    folder.chmod(0o700)
    assert "removed /home/alice/.config/gpuward/token" in full.setup("--undo").stdout
    assert full.files() == before


def interrupted(tree, *args):
    """Runs setup and kills it before its first call, in the next run before its second call, and so on, until a run
    completes. Yields after each run."""
    for at in range(1, 400):
        done = support.gpuward("setup", "--root", str(tree.path), *args, env=support.environment(
            SUDO_USER="alice", LD_PRELOAD=SHIM, KILL_AT=at))
        yield done
        if done.returncode == support.OK:
            return
    raise AssertionError("setup never came to its end")


@pytest.mark.skipif("ASAN_OPTIONS" in os.environ or "TSAN_OPTIONS" in os.environ, reason="a sanitizer must be loaded first")
def test_interrupted_at_each_step_nothing_is_half_written_and_undo_works(full):
    before = full.files()
    whole = {}
    runs = 0
    for _ in interrupted(full, "--yes"):
        runs += 1
        for name, (_, _, text) in full.files().items():
            if name.endswith(("token", ".toml", ".conf")):
                assert text and text.endswith("\n") and (len(text) == 65 or "gpuward setup" in text), name
            if name.endswith("setup.json"):
                json.loads(text)
        full.setup("--undo")
        assert full.files() == before
    assert runs > 25
    # the next undo completes an interrupted undo, and setup continues after an interruption
    full.setup("--yes")
    whole = set(full.files())
    for _ in interrupted(full, "--undo"):
        full.setup("--yes")
        assert set(full.files()) == whole
    full.setup("--undo")
    assert full.files() == before


# The tree as "/" of a machine with systemd: its own mounts, processes and network.  systemctl is the script below.
MACHINE = ["unshare", "--mount", "--pid", "--net", "--fork", "--mount-proc", "--kill-child", "sh", "-c", """
for d in etc home sys; do mount --rbind "$0/$d" "/$d" || exit 99; done
mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system || exit 99
"$@"  # no exec, because the first process of a pid namespace cannot be killed from inside
"""]
SYSTEMCTL = """#!/bin/sh
# systemctl of a machine on which "enable" fails or setup is killed; HOW says which.  The file units has what is enabled.
echo "$*" >> {here}/calls
case $1 in
is-active | is-enabled) for unit; do :; done; [ -f "{here}/units" ] && grep -qx "$unit" "{here}/units"; exit ;;
esac
[ "$HOW" = "kill at $1" ] && kill -9 $PPID && exit 1
case $1 in
enable)
	[ "$HOW" = fail ] && exit 1
	echo "$3" >> {here}/units
	[ "$HOW" = "kill after enable" ] && kill -9 $PPID
	;;
disable | stop) : > {here}/units ;;
esac
exit 0
"""


def namespaces():
    return os.getuid() == 0 and subprocess.run([*MACHINE[:7], "true"], capture_output=True).returncode == 0


class Booted(Tree):
    """The tree with systemd: setup without --root, which starts the service."""

    def __init__(self, path):
        super().__init__(path)
        self.bin = pathlib.Path(path).parent / "bin"
        self.bin.mkdir()
        (self.bin / "systemctl").write_text(SYSTEMCTL.format(here=self.bin))
        (self.bin / "systemctl").chmod(0o755)
        with open(self.path / "etc/passwd", "a") as f:
            f.write("gpuward:x:997:997::/:/usr/sbin/nologin\n")

    def run(self, *args, how="", code=support.OK):
        done = subprocess.run(
            [*MACHINE, self.path, support.PROGRAM, *args], capture_output=True, text=True, timeout=support.TIMEOUT,
            stdin=subprocess.DEVNULL, env=support.environment(SUDO_USER="alice", HOW=how, PATH=f"{self.bin}:/usr/bin:/bin"))
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def units(self):
        return (self.bin / "units").read_text().split() if (self.bin / "units").exists() else []

    def calls(self):
        return (self.bin / "calls").read_text().splitlines()


@pytest.mark.skipif(not namespaces(), reason="needs root and new namespaces")
@pytest.mark.parametrize("how,code", [("fail", support.FAILED), ("kill at daemon-reload", 137), ("kill at enable", 137),
                                      ("kill after enable", 137)])
def test_a_start_of_the_service_that_fails_or_is_interrupted_leaves_whole_files_and_can_be_undone(how, code):
    with tempfile.TemporaryDirectory(prefix="gpuward-setup-") as folder:
        os.chmod(folder, 0o711)
        tree = Booted(folder + "/root")
        before = tree.files()
        done = tree.run("setup", "--yes", how=how, code=code)
        assert "enable --now gpuward.service" in tree.calls() or how == "kill at daemon-reload", tree.calls()
        assert tree.units() == (["gpuward.service"] if how == "kill after enable" else [])
        if how == "fail":
            assert "systemctl could not start gpuward.service; journalctl -u gpuward.service shows why" in done.stderr
        there = tree.files()
        assert set(there) - set(before) == {"etc/gpuward", "etc/gpuward/gpuward.toml", "etc/gpuward/setup.json", "etc/gpuward/token",
                                            "home/alice/.config", "home/alice/.config/gpuward", USER_TOKEN}
        assert len(there["etc/gpuward/token"][2]) == 65 and there[USER_TOKEN][2] == there["etc/gpuward/token"][2]
        steps = json.loads(there["etc/gpuward/setup.json"][2])["steps"]
        assert {"what": "unit", "path": "gpuward.service", "enabled": False, "active": False} in steps
        tree.run("config", "check")
        said = tree.run("setup", "--undo").stdout
        assert "disabled and stopped gpuward.service" in said
        assert tree.files() == before and tree.units() == []
        assert "disable --quiet gpuward.service" in tree.calls() and "stop gpuward.service" in tree.calls()
        # a second setup finishes what was interrupted
        tree.run("setup", "--yes", how=how, code=code)
        tree.run("setup", "--yes")
        assert set(tree.files()) == set(there) and tree.units() == ["gpuward.service"]
        tree.run("setup", "--undo")
        assert tree.files() == before and tree.units() == []


def test_it_asks_at_most_three_questions_and_no_answer_changes_nothing(full):
    before = full.files()

    def answer(text):
        main, side = pty.openpty()
        child = subprocess.Popen([support.PROGRAM, "setup", "--root", full.path], stdin=side, stdout=side, stderr=side,
                                 env=support.environment(SUDO_USER="alice"))
        os.close(side)
        os.write(main, text)
        out = b""
        while True:
            try:
                part = os.read(main, 4096)
            except OSError:
                break
            if not part:
                break
            out += part
        os.close(main)
        return child.wait(), out.decode()
    code, said = answer(b"\x04")
    assert code == support.FAILED and "nothing was changed" in said and full.files() == before
    code, said = answer(b"n\nn\nn\n")
    assert code == support.OK and said.count("[Y/n]") <= 3
    assert "[[worker]]" not in (full.path / "etc/gpuward/gpuward.toml").read_text()
    assert not (full.path / USER_TOKEN).exists()


def as_nobody(*args, **env):
    argv = [str(support.PROGRAM), "setup", *map(str, args)]
    if os.getuid() == 0:
        argv = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *argv]
    return subprocess.run(argv, capture_output=True, text=True, env=support.environment(**env), stdin=subprocess.DEVNULL)


def test_a_user_without_rights_reads_what_setup_needs():
    done = as_nobody("--yes", "--nvml-library", support.BUILD / "sim/libnvidia-ml.so.1")
    assert done.returncode == support.FAILED and "only root can write" in done.stderr and "sudo gpuward setup" in done.stderr


def test_simulated_gpus_are_refused_because_the_service_would_not_have_them():
    done = as_nobody("--yes", "--simulate=demo")
    assert done.returncode == support.FAILED
    assert "setup starts a service for real GPUs" in done.stderr and "Try it on a simulated card" in done.stderr
    assert as_nobody("--dry-run", "--simulate=demo").returncode == support.OK


def test_without_the_right_to_see_sockets_setup_does_not_say_that_nothing_listens(tree):
    tree.process(100, "/usr/local/bin/ollama", "serve", ports=[11434])
    (tree.path / "proc/100/fd").chmod(0)
    done = as_nobody("--dry-run", "--root", tree.path)
    said = " ".join(done.stdout.split())
    assert done.returncode == support.OK, done.stderr
    assert "cannot be seen without root" in said and "nothing listens" not in said and "does not listen" not in said


def test_with_a_file_of_a_person_the_token_that_the_printed_lines_name_exists(full):
    folder = full.path / "etc/gpuward/gpuward.d"
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text('[log]\nlevel = "debug"\n')
    said = full.setup("--yes").stdout
    assert 'token_file = "/etc/gpuward/token"' in said and not (full.path / "etc/gpuward/gpuward.toml").exists()
    assert len((full.path / "etc/gpuward/token").read_text()) == 65
    full.setup("--undo")
    assert sorted(str(p) for p in (full.path / "etc/gpuward").rglob("*")) == [str(folder), str(folder / "mine.toml")]


def test_a_purge_of_the_package_removes_only_the_user_that_the_package_created(tmp_path):
    line = next(s for s in (support.TOP / "packaging/systemd/sysusers.conf").read_text().splitlines() if s.startswith("u "))
    _, name, _, title, home = shlex.split(line)
    rows = {f"{name}:!*:997:997:{title}:{home}:/usr/sbin/nologin": True,
            f"{name}:x:1001:1001:{title},,,:/home/{name}:/bin/bash": False,
            f"{name}:x:997:997::{home}:/bin/sh": False,
            "": False}
    for account, removed in rows.items():
        # PATH has no other command, so that nothing on this machine is removed
        for command, does in (("getent", f'[ -n "{account}" ] || exit 2; echo "{account}"'), ("rm", ":"), ("userdel", 'echo "userdel $1"')):
            (tmp_path / command).write_text(f"#!/bin/sh\n{does}\n")
            (tmp_path / command).chmod(0o755)
        done = subprocess.run(["/bin/sh", support.TOP / "debian/gpuward.postrm", "purge"], env={"PATH": str(tmp_path)},
                              capture_output=True, text=True)
        assert done.returncode == 0 and (done.stdout == f"userdel {name}\n") == removed, (account, done)
        assert ("stays" in done.stdout) == (bool(account) and not removed)


@pytest.mark.skipif(not namespaces(), reason="needs root and new namespaces")
def test_undo_leaves_a_unit_that_ran_before_setup():
    with tempfile.TemporaryDirectory(prefix="gpuward-setup-") as folder:
        os.chmod(folder, 0o711)
        tree = Booted(folder + "/root")
        (tree.bin / "units").write_text("gpuward.service\n")
        tree.run("setup", "--yes")
        for said in tree.run("setup", "--undo", "--dry-run").stdout, tree.run("setup", "--undo").stdout:
            assert "gpuward.service" not in said
        assert tree.units() == ["gpuward.service"]
