"""Every code block of README.md and of the public headers compiles and runs as it is written.

A block that no runner below takes fails: a new form of block needs a runner.
"""
import re
import shutil
import subprocess
import sys

import pytest

from service import Service
from support import BUILD, PROGRAM, SIMULATOR, TIMEOUT, TOP, environment
from test_library import plain

STRICT = ["-std=c11", "-Wall", "-Wextra", "-Werror"]
HEADERS = sorted((TOP / "include").glob("*.h"))


def readme_blocks():
    """Runs of lines that are indented by four or more; shorter indents are text of lists."""
    found, block = [], []
    for line in (TOP / "README.md").read_text().splitlines() + ["end"]:
        if line.startswith("    ") or (block and not line.strip()):
            block.append(line)
        elif block:
            while not block[-1].strip():
                block.pop()
            indent = min(len(l) - len(l.lstrip()) for l in block if l.strip())
            found.append("\n".join(l[indent:] for l in block))
            block = []
    return found


def header_blocks(path):
    """What is indented by a tab in the comment at the top."""
    head = path.read_text().split("*/", 1)[0]
    lines = [l[2:] if l.startswith(" *") else l for l in head.splitlines()]
    text = "\n".join(l[1:] if l.startswith("\t") else "" if not l.strip() else "\0" for l in lines)
    return [b.strip("\n") for b in re.split(r"\0+\n?|(?<=\n\})\n\n(?=cc )", text) if b.strip("\n\0 ")]


def kind(block):
    first = block.split("\n", 1)[0]
    if first.startswith("#include"):
        return "c"
    if first.startswith("[time]"):
        return "scenario"
    if first.startswith("with gpuward"):
        return "python"
    if first.startswith("$ "):
        return "session"
    if first.startswith("id=$(curl"):
        return "rest"
    if first.startswith("cc "):
        return "compile"
    if first.startswith(("make ", "sudo ", "meson ")):
        return "build"  # what builds and installs: run by the tests of the library and by CI
    if first.startswith(("gpuward ", "GPUWARD_SIM=")):
        return "commands"
    return None


BLOCKS = [("README.md", i, b) for i, b in enumerate(readme_blocks())]
BLOCKS += [(p.name, i, b) for p in HEADERS for i, b in enumerate(header_blocks(p))]


def of(*kinds):
    rows = [b for b in BLOCKS if kind(b[2]) in kinds]
    return pytest.mark.parametrize("block", [b[2] for b in rows], ids=[f"{name}-{i}" for name, i, _ in rows])


def shell(command, folder, **changes):
    """Runs a line as a reader would: `gpuward` and the folders of the source tree are there."""
    (folder / "bin").mkdir(exist_ok=True)
    for link, target in (("bin/gpuward", PROGRAM), ("build", BUILD), ("include", TOP / "include")):
        if not (folder / link).exists():
            (folder / link).symlink_to(target)
    return subprocess.run(
        ["bash", "-c", command], cwd=folder, capture_output=True, text=True, timeout=TIMEOUT, stdin=subprocess.DEVNULL,
        env=environment(PATH=f"{folder}/bin:/usr/bin:/bin", GPUWARD_SIM_LIBRARY=SIMULATOR, HOME=folder,
                        PKG_CONFIG_PATH=BUILD / "meson-uninstalled", C_INCLUDE_PATH=TOP / "include", **changes))


def test_every_block_has_a_runner():
    assert [b for b in BLOCKS if kind(b[2]) is None] == []
    assert {"c", "python", "session", "scenario", "rest", "compile", "commands"} <= {kind(b[2]) for b in BLOCKS}
    assert sum(name != "README.md" and kind(b) == "c" for name, _, b in BLOCKS) == len(HEADERS)


@plain
@of("c")
def test_c_runs_with_and_without_a_gpu(block, tmp_path):
    source, program = tmp_path / "program.c", tmp_path / "program"
    source.write_text(block + "\n")
    subprocess.run(["gcc", *STRICT, f"-I{TOP}/include", source, f"-L{BUILD}", "-lgpuward", f"-Wl,-rpath,{BUILD}", "-o",
                    program], check=True)
    for scenario in ("two-gpus", "no-driver", "no-gpu"):
        done = subprocess.run(
            [program], capture_output=True, text=True, timeout=TIMEOUT,
            env=environment(LD_LIBRARY_PATH=SIMULATOR.parent, GPUWARD_SIM=scenario))
        assert (done.returncode, done.stderr) == (0, ""), scenario
        assert re.search(r"\w+ \w+", done.stdout), f"{scenario}: no sentence"
        if "GW_Q_POWER" in block:
            assert ("W\n" in done.stdout) == (scenario == "two-gpus"), scenario


@plain
@of("c")
@pytest.mark.parametrize("failing", [1, 2, 3, 4, 5, 6, 7, 8])
def test_c_frees_nothing_that_was_never_there(block, tmp_path, failing):
    """The same with each of the first allocations of the library failing: an error, never a crash."""
    source, program, broken = tmp_path / "program.c", tmp_path / "program", tmp_path / "broken.c"
    source.write_text(block + "\n")
    broken.write_text("""#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
static int calls, armed;
void *calloc(size_t n, size_t size)
{
	static void *(*next)(size_t, size_t);
	static char early[4096];
	if (!next) {
		if (armed)
			return early;
		armed = 1;
		next = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "calloc");
	}
	return size > 600 && ++calls == FAILING ? NULL : next(n, size);
}
""")
    subprocess.run(["gcc", "-w", f"-DFAILING={failing}", f"-I{TOP}/include", source, broken, f"-L{BUILD}", "-lgpuward",
                    "-ldl", f"-Wl,-rpath,{BUILD}", "-o", program], check=True)
    done = subprocess.run([program], capture_output=True, text=True, timeout=TIMEOUT,
                          env=environment(LD_LIBRARY_PATH=SIMULATOR.parent, GPUWARD_SIM="two-gpus"))
    assert done.returncode in (0, 1), done
    assert done.returncode == 0 or re.search(r"\w+ \w+", done.stderr), done


@of("python")
def test_python_runs(block):
    done = subprocess.run(
        [sys.executable, "-c", f"import gpuward\nmodel, batch = print, 1\n{block}"], capture_output=True, text=True,
        timeout=TIMEOUT, env=environment(PYTHONPATH=TOP / "python", GPUWARD_LIBRARY=BUILD / "libgpuward.so",
                                         LD_LIBRARY_PATH=SIMULATOR.parent, GPUWARD_SIM="two-gpus"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith("True")  # simulated


def commands(block):
    """Commands of a block without what stands behind them, and the lines that they printed."""
    session = block.startswith("$ ")
    for part in re.split(r"^\$ ", block, flags=re.M) if session else block.splitlines():
        if part.strip():
            first, _, output = part.partition("\n")
            yield re.split(r"\s{2,}", first)[0], output


def prepared(command):
    """The same command on the simulator, and for a short time."""
    command = command.replace("sleep 12", "sleep 1").replace("nvml-program", "gpuward list")
    if "--simulate" not in command and "GPUWARD_SIM" not in command:
        command = command.replace("gpuward snapshot", "gpuward snapshot --simulate")
    return f"timeout --preserve-status -s INT 2 {command}" if command.endswith(" -w") else command


@of("session", "commands")
def test_commands_run(block, tmp_path):
    (tmp_path / "my.toml").write_text('[[gpu]]\nprofile = "h100"\n')
    for command, output in commands(block):
        if command == "gpuward serve":
            with Service() as s:
                assert output.strip().rsplit(":", 1)[0] == f"gpuward is listening on {s.url}".rsplit(":", 1)[0]
            continue
        done = shell(prepared(command), tmp_path)
        # 3, 4: a broken driver, a lost GPU; 130: interrupted
        assert done.returncode in (0, 3, 4) or (command.endswith(" -w") and done.returncode == 130), (command, done)
        assert (done.stdout + done.stderr).strip(), (command, done)


@of("scenario")
def test_scenarios_are_read(block, tmp_path):
    (tmp_path / "my.toml").write_text(block + "\n")
    done = shell("gpuward list --simulate=my.toml", tmp_path)
    assert done.returncode == 0 and done.stdout.count("H100") == 2, done


@of("rest")
@pytest.mark.skipif(not shutil.which("jq") or not shutil.which("curl"), reason="no jq or curl here")
def test_requests_are_answered(block, tmp_path):
    with Service() as s:
        done = shell("set -e\n" + block.replace("http://127.0.0.1:9490", s.url), tmp_path)
    assert done.returncode == 0 and '"best"' in done.stdout, done


@plain
@of("compile")
@pytest.mark.skipif(not shutil.which("pkg-config"), reason="no pkg-config here")
def test_the_compiler_lines_compile(block, tmp_path):
    program = next(b for name, _, b in BLOCKS if kind(b) == "c")
    for name in set(re.findall(r"\w+\.c\b", block)):
        (tmp_path / name).write_text(program + "\n")
    for line in block.splitlines():
        done = shell(line, tmp_path, LD_LIBRARY_PATH=BUILD)
        assert done.returncode == 0, (line, done)
