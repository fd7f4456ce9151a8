"""Tests that every code block of README.md, of the guides in PAGES and of the public headers works as written, and that the
examples work.

A block for which there is no runner below fails, so a new kind of block needs a runner.
"""
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys

import pytest

import support
from guarded import Guarded, configure
from service import Service
from support import BUILD, OK, PROGRAM, SIMULATOR, TIMEOUT, TOP, environment, gpuward
from test_library import plain

STRICT = ["-std=c11", "-Wall", "-Wextra", "-Werror"]
HEADERS = sorted((TOP / "include").glob("*.h"))


PAGES = ["README.md", "docs/COMMANDS.md", "docs/LIBRARY.md"]


def page_blocks(page):
    """Returns the blocks of a page: runs of lines that are indented by four or more. Shorter indents are text of lists."""
    found, block = [], []
    for line in (TOP / page).read_text().splitlines() + ["end"]:
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
    """Returns the blocks that are indented by a tab in the comment at the top of a header."""
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
    if first.startswith(("with gpuward", "import gpuward")):
        return "python"
    if first.startswith("$ "):
        return "session"
    if first.startswith("id=$(curl"):
        return "rest"
    if first.startswith("gpuward guard"):
        return "guard"
    if first.startswith("gpuward characterise"):
        return "measuring"
    if first == "gpuward serve":
        return "serving"
    if first.startswith("cc "):
        return "compile"
    if first.startswith("PYTHONPATH=python "):
        return "program"
    if re.match(r"GPU 0: |[\d.]+ \[|no GPU was found", first):
        return "printed"  # what the first programs of the library guide print
    if first.startswith(("make ", "sudo ", "meson ")):
        return "build"  # commands that build and install; the tests of the library and CI run them
    if first.startswith(("gpuward ", "GPUWARD_SIM=")):
        return "commands"
    return None


BLOCKS = [(p, i, b) for p in PAGES for i, b in enumerate(page_blocks(p))]
BLOCKS += [(p.name, i, b) for p in HEADERS for i, b in enumerate(header_blocks(p))]


def of(*kinds):
    rows = [b for b in BLOCKS if kind(b[2]) in kinds]
    return pytest.mark.parametrize("block", [b[2] for b in rows], ids=[f"{name}-{i}" for name, i, _ in rows])


def shell(command, folder, **changes):
    """Runs a line as a reader would. `gpuward` is in PATH, and the folder has links to the source tree."""
    (folder / "bin").mkdir(exist_ok=True)
    for link, target in (("bin/gpuward", PROGRAM), ("build", BUILD), ("include", TOP / "include")):
        if not (folder / link).exists():
            (folder / link).symlink_to(target)
    return subprocess.run(
        ["bash", "-c", command], cwd=folder, capture_output=True, text=True, timeout=TIMEOUT, stdin=subprocess.DEVNULL,
        env=environment(PATH=f"{folder}/bin:/usr/bin:/bin", GPUWARD_SIM_LIBRARY=SIMULATOR, HOME=folder,
                        PKG_CONFIG_PATH=BUILD / "meson-uninstalled", **changes))


def test_every_block_has_a_runner():
    assert [b for b in BLOCKS if kind(b[2]) is None] == []
    assert {"c", "python", "session", "rest", "compile", "commands", "guard", "measuring", "serving"} <= {
        kind(b[2]) for b in BLOCKS}
    assert sum(name.endswith(".h") and kind(b) == "c" for name, _, b in BLOCKS) == len(HEADERS)


@pytest.mark.parametrize("page", ["README.md", "docs/LIBRARY.md", "python/README.md"])
def test_the_first_python_block_of_a_page_imports_the_module(page):
    blocks = [b for b in page_blocks(page) if kind(b) == "python"]
    blocks += re.findall(r"```python\n(.*?)```", (TOP / page).read_text(), re.S)
    assert blocks[0].startswith("import gpuward\n"), blocks[0]


def test_readme_is_short():
    assert len((TOP / "README.md").read_text().split()) <= 1300


def test_documents_write_the_command_for_mode_enforce_in_one_form():
    """The request needs the token: root can read it, another user only a copy of it."""
    for page in ("README.md", "docs/COMMANDS.md", "docs/GUARD.md"):
        text = (TOP / page).read_text()
        assert set(re.findall(r"`(\S*\s?gpuward guard mode enforce)", text)) == {"sudo gpuward guard mode enforce"}, page


@pytest.mark.parametrize("page", ["README.md", "docs/INSTALL.md"])
def test_documents_install_every_debian_package(page):
    names = re.findall(r"^Package: (.*)$", (TOP / "debian/control").read_text(), re.M)
    lines = " ".join(l for l in (TOP / page).read_text().splitlines() if "apt install" in l)
    assert names and [n for n in names if f"./dist/{n}_*.deb" not in lines] == []


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
        if "gw_process_list_want" in block:
            assert bool(re.search(r", SM \d+ %$", done.stdout, re.M)) == (scenario == "two-gpus"), done.stdout
        if "GW_Q_POWER" in block or "gw_series_next" in block:
            assert bool(re.search(r"\d W\b", done.stdout)) == (scenario == "two-gpus"), scenario


@plain
@of("c")
@pytest.mark.parametrize("failing", [1, 2, 3, 4, 5, 6, 7, 8])
def test_c_blocks_survive_failing_allocations(block, tmp_path, failing):
    """If one of the first allocations of the library fails, the program reports an error and does not crash."""
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
        [sys.executable, "-c", f"import gpuward, time\nmodel, batch = time.sleep, 0.3\n{block}"], capture_output=True, text=True,
        timeout=TIMEOUT, env=environment(PYTHONPATH=TOP / "python", GPUWARD_LIBRARY=BUILD / "libgpuward.so",
                                         LD_LIBRARY_PATH=SIMULATOR.parent, GPUWARD_SIM="two-gpus"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith("True")  # simulated


@plain
def test_the_first_programs_of_the_library_guide_print_what_it_shows(tmp_path):
    """The guide begins with a program in C and one in Python, the lines that run each, and what they print."""
    blocks = page_blocks("docs/LIBRARY.md")[:7]
    assert [kind(b) for b in blocks] == ["c", "compile", "printed", "python", "program", "printed", "printed"]
    c, c_lines, c_output, python, python_lines, python_output, no_gpu = blocks
    (tmp_path / "loop.c").write_text(c + "\n")
    (tmp_path / "loop.py").write_text(python + "\n")
    (tmp_path / "python").symlink_to(TOP / "python")

    def said(line, **changes):
        done = shell(line, tmp_path, GPUWARD_LIBRARY=BUILD / "libgpuward.so", **changes)
        assert (done.returncode, done.stderr) == (0, ""), (line, done)
        return done.stdout

    def shape(text):
        return re.sub(r"\('.*?\)", "CODES", re.sub(r"\d+\.\d+|\d{3,}", "N", text.strip()))

    compile_line, c_simulated, c_real = c_lines.splitlines()
    python_simulated, python_real = python_lines.splitlines()
    said(compile_line)
    assert shape(said(c_simulated)) == shape(c_output)
    assert shape(said(python_simulated)) == shape(python_output)
    assert said(c_real).strip() and said(python_real).strip()
    cause, remedy = no_gpu.split(": ")[0], no_gpu.split(". ")[-1]
    for line in (c_simulated, python_simulated):
        text = said(line, GPUWARD_SIM="no-gpu").strip()
        assert text.startswith(cause) and text.endswith(". " + remedy), text


def commands(block):
    """Yields each command of a block without the remark after it, and the output that the page shows."""
    session = block.startswith("$ ")
    for part in re.split(r"^\$ ", block, flags=re.M) if session else block.splitlines():
        if part.strip():
            first, _, output = part.partition("\n")
            yield re.split(r"\s{2,}", first)[0], output


def prepared(command):
    """Returns the command changed to run on the simulator and for a short time."""
    command = command.replace("sleep 12", "sleep 1").replace("nvml-program", "gpuward list")
    command = command.replace("-- python3 matmul.py 500 float32", "--simulate=idle-h200 -- sleep 0.2")
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
        if output and command == "gpuward snapshot --simulate":  # the tables of its output have the columns that the page shows
            heads = [[l for l in text.splitlines() if l.startswith("GPU ")] for text in (output, done.stdout)]
            assert [h.split() for h in heads[0]] == [h.split() for h in heads[1]], heads


def test_the_scenario_of_the_simulator_guide_is_read(tmp_path):
    (block,) = [b for b in page_blocks("docs/SIMULATOR.md") if b.startswith("[time]")]
    (tmp_path / "my.toml").write_text(block + "\n")
    done = shell("gpuward list --simulate=my.toml", tmp_path)
    assert done.returncode == 0 and done.stdout.count("H100") == 2, done


@of("measuring")
def test_measuring_commands_run(block, tmp_path):
    """On the simulator, with a short command; the load of --active needs CUDA, so only its option is checked."""
    assert "--active" in gpuward("characterise", "--help").stdout
    for label in ("fp32", "fp16"):
        for command, _ in commands(block):
            if command.startswith("gpuward measure"):
                command = command.replace("fp16", label).replace("-- ./benchmark", "--simulate=idle-h200 -- sleep 0.2")
                assert shell(command, tmp_path).returncode == 0, command
    for command, _ in commands(block):
        if command.startswith("gpuward compare"):
            done = shell(command, tmp_path)
            assert done.returncode == 0 and "fp16" in done.stdout, (command, done)


def test_recipe_of_the_measuring_guide_runs(tmp_path):
    """On the simulator, with short runs; the load of --active needs CUDA, so characterise and baseline are not run."""
    text = (TOP / "docs/MEASURING.md").read_text()
    recipe = text[text.index("## A result for a paper"):text.index("## In one minute")]
    lines = re.findall(r"^    (gpuward .*)$", recipe, re.M)
    again = ["characterise", "baseline", "measure", "measure", "compare"]  # the recipe has these twice: on the simulator, then on a GPU
    assert [l.split()[1] for l in lines] == [*again, *again, "compare", "compare", "report"]
    said = {}
    for line in [l for l in lines if l.split()[1] not in ("characterise", "baseline")]:
        line = re.sub(r"-- \./infer \w+$", "--no-cooldown --simulate=idle-h200 -- sleep 0.2", line)
        line = re.sub(r"-- sleep \d+$", "-- sleep 0.2", line)
        done = shell(line.replace("--trials 5", "--trials 2"), tmp_path)
        assert done.returncode == 0, (line, done.stderr)
        said[line] = done.stdout
    assert any("fp16 took" in out for out in said.values())
    assert r"\toprule" in (tmp_path / "table.tex").read_text() and "fp16" in (tmp_path / "report.html").read_text()


@of("serving")
@pytest.mark.skipif(not shutil.which("curl"), reason="no curl here")
def test_the_commands_for_the_service_run(block, tmp_path):
    with Service() as s:
        for command, _ in commands(block):
            if command.startswith("curl"):
                done = shell(command.replace("http://127.0.0.1:9490", s.url), tmp_path)
                assert done.returncode == 0 and done.stdout, (command, done)
            else:
                assert gpuward(command.split()[1], "--help").returncode == OK, command


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


@plain
@pytest.mark.skipif(not shutil.which("pkg-config"), reason="no pkg-config here")
def test_the_exports_of_the_readme_replace_an_installation(tmp_path):
    """The program, the library, its header and the module are found only through the exports of the block."""
    (block,) = [b for b in page_blocks("README.md") if "export PATH" in b]
    exports = [l for l in block.splitlines() if l.startswith("export ")]
    (compile_line,) = [b for b in page_blocks("README.md") if kind(b) == "compile"]
    for link, target in (("build", BUILD), ("python", TOP / "python")):
        (tmp_path / link).symlink_to(target)
    (tmp_path / "program.c").write_text(
        "#include <gpuward.h>\nint main(void) { return gw_cause_info(0) == 0; }\n")
    script = "\n".join(["set -e", *exports, compile_line, "./program", "gpuward --version",
                        f"{sys.executable} -c 'import gpuward; print(gpuward.__file__)'"])
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT,
                          env=environment(PATH="/usr/bin:/bin", HOME=tmp_path))
    assert done.returncode == 0, done
    assert str(tmp_path / "python") in done.stdout, done


TEXT = (support.TOP / "docs" / "GUARD.md").read_text()

LOCAL = {"config", "doctor", "setup"}  # these commands do not use a service


def shown():
    """Returns the commands in blocks (without the remark after two blanks), in sentences and in gamemode.ini."""
    found = [re.split(r"  +", line.strip())[0] for line in re.findall(r"^ {4}(gpuward .*)$", TEXT, re.M)]
    found += [" ".join(c.split()) for c in re.findall(r"`(gpuward [^`]*)`", TEXT)]
    found += [line for _, _, b in BLOCKS if kind(b) == "guard" for line, _ in commands(b)]
    return found + re.findall(r"^(?:start|end)=(gpuward .*)$", TEXT, re.M)


def test_every_command_of_the_guide_works(world, worker, tmp_path):
    trace, other, good = (tmp_path / n for n in ("guard.trace", "new.toml", "good.toml"))
    config = configure(("ollama", worker), guard=f'record = "{trace}"', defaults="")
    good.write_text(config)
    other.write_text(config)
    means = {"vllm": "ollama", "TRACE": str(trace), "new.toml": str(other), "$PPID": str(os.getpid()),
             "4711": str(os.getpid()), "./render": "/bin/true", "gamemoderun": "/bin/true", "%command%": "/bin/true",
             "8G": "1G", "10G": "1G"}
    done = set()
    with Guarded(world, config) as s:
        s.until("active")
        for text in shown():
            name, *words = [means.get(w, w) for w in shlex.split(text)[1:]]
            if words == ["learn"]:
                words += ["--for", "1s"]
            if words[:1] == ["check"]:
                words.append(str(good))
            if name == "setup":
                words += ["--simulate=demo", "--dry-run"]
            if name == "top":  # needs a terminal; test_top.py runs it
                assert support.gpuward(name, *words, "--help").returncode == support.OK
                continue
            if name == "guard":
                s.guard("release")  # the commands are independent: each starts without a hold
            got = support.gpuward(name, *words) if name in LOCAL else s.cli(name, *words)
            assert got.returncode == support.OK or (name == "doctor" and got.returncode == support.FAILED), (text, got)
            done.add((name, *words[:1]))
    assert {("guard", w) for w in ("status", "explain", "learn", "evict", "resume", "hold", "release", "snooze", "pause",
                                   "game", "recover", "replay")} <= done
    assert {("config", "check"), ("doctor",)} <= done and any(d[0] == "run" for d in done)


def test_the_simulated_card_shows_an_eviction_and_a_return(tmp_path):
    part = TEXT.split("## Try it on a simulated card")[1].split("\n## ")[0]
    blocks = re.findall(r"```sh\n(.*?)```", part, re.S)
    assert len(blocks) == 8
    script = "\necho -----\n".join(blocks).replace("9495", str(support.free_port()))
    # on a slow machine, the guard may see the game later
    assert "\nsleep 3\ngpuward guard explain" in script
    script = script.replace("\nsleep 3\ngpuward guard explain", '\nuntil gpuward guard explain | grep -q "fits next to"; do sleep 1; done\n'
                            "gpuward guard explain")
    env = support.environment(HOME=tmp_path, TMPDIR=tmp_path, PATH=f"{support.PROGRAM.parent}:{os.environ['PATH']}")
    shell = subprocess.Popen(["bash", "-c", script], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             start_new_session=True)
    try:
        said, _ = shell.communicate(timeout=support.TIMEOUT)
    finally:
        try:
            os.killpg(shell.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    before, during, after, stays, grown, held, reserved, _ = said.split("-----\n")
    active = r"^model +active .* 8\.0 GiB .*is back: 8.0 GiB; it had left %s"
    assert re.search(r"^model +active .* 8\.0 GiB .*as found", before, re.M), said
    assert re.search(r"^model +evicted .*contention .*for sleep \(pid \d+, 4.0 GiB\)", during, re.M) and "Contender: pid" in during, said
    assert re.search(active % r"for sleep \(pid \d+, 4.0 GiB\)", after, re.M), said
    assert stays.startswith(" SIMULATED") and "\nmodel has been active" in stays and "which fits next to the worker" in re.sub(r"\s+", " ", stays), said
    assert re.search(r"^model +evicted .*14.0 GiB", grown, re.M) and re.search(active % r"for sleep \(pid \d+, 14.0 GiB\)", grown, re.M), said
    assert re.search(r"^model +evicted .*manual", held, re.M) and re.search(active % "at the request of a client with the token", held, re.M), said
    assert re.search(r"^model +evicted .*reserved", reserved, re.M), said
    assert not list(tmp_path.glob("tmp.*")), "something is left behind"


EXAMPLES = TOP / "examples"
PRECISIONS = ("fp32", "fp16", "int8")
WEIGHT_BYTES = {"fp32": 4, "fp16": 2, "int8": 1}


def lacking(*commands):
    """Returns the commands that the built program does not have."""
    helped = gpuward("--help").stdout.splitlines()
    have = {line.split()[0] for line in helped if line.startswith("  ") and line.split()}
    return [c for c in commands if c not in have]


def run(*words, **changes):
    return subprocess.run(
        list(map(str, words)), capture_output=True, text=True, timeout=TIMEOUT,
        env=environment(**changes))


def window(*words, **changes):
    return run(BUILD / "examples" / "window", *words, LD_LIBRARY_PATH=SIMULATOR.parent,
               XDG_CACHE_HOME="/nonexistent", **changes)


def test_the_window_example_prints_joules_with_an_interval():
    done = window("1.5", GPUWARD_SIM="h200")
    assert done.returncode == OK, done.stderr
    mark, *lines = [l for l in done.stdout.splitlines() if not l.startswith("\t")]
    assert mark == "SIMULATED: no figure is real"
    assert [l.split(",")[0] for l in lines] == ["all", "second half"]
    for line, seconds in zip(lines, (1.5, 0.75)):
        words = line.replace("(", "").replace(")", "").replace(";", "").split("GPU 0:")[1].split()
        best, low, high = float(words[0]), float(words[2]), float(words[4])
        assert low < best < high
        # The load of this scenario draws 690 to 700 W; a busy machine may stretch the sleep.
        assert 600 * seconds < best < 750 * float(words[6])
    assert "counter+ring" in done.stdout


def test_the_loop_example_prints_each_step_and_writes_the_readings(tmp_path):
    csv = tmp_path / "readings.csv"
    done = run(BUILD / "examples" / "loop", "2", csv, LD_LIBRARY_PATH=SIMULATOR.parent, XDG_CACHE_HOME=tmp_path,
               GPUWARD_SIM="h200")
    assert done.returncode == OK, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "SIMULATED: no figure is real" and lines[1].startswith("sensor: counter+ring, assumed,")
    assert [l.split(":")[0] for l in lines[2:]] == ["step", "step", "all", "above idle", "peak"]
    assert "no baseline of this GPU and kind is stored" in lines[5]
    rows = [l.split(",") for l in csv.read_text().splitlines()[1:]]
    assert len(rows) > 30 and {len(r) for r in rows} == {3}
    assert any(r[1] for r in rows) and any(r[2] for r in rows)
    assert [float(r[0]) for r in rows] == sorted(float(r[0]) for r in rows)
    done = run(BUILD / "examples" / "loop", LD_LIBRARY_PATH=SIMULATOR.parent, GPUWARD_SIM="no-gpu")
    assert (done.returncode, done.stderr) == (
        1, "loop: no GPU was found: the driver is loaded but reports no GPU\n")


def test_the_window_example_works_without_a_gpu():
    done = window("0.1", GPUWARD_SIM="no-gpu")
    assert (done.returncode, done.stdout) == (OK, "this machine has no GPU\n")


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_size_of_the_layer_follows_from_its_precision(precision):
    done = run(sys.executable, EXAMPLES / "precision" / "infer.py", precision, "--model-bytes",
               FAST="1")
    assert done.stdout.strip() == str(512 * 512 * WEIGHT_BYTES[precision])


def test_the_precision_example_compares_three_results(tmp_path):
    missing = lacking("measure", "compare")
    if missing:
        pytest.skip(f"the program has no command {' or '.join(missing)} yet")
    done = run(EXAMPLES / "precision" / "run.sh", "--simulate=idle-h200", FAST="1",
               OUT=tmp_path, GPUWARD=PROGRAM,
               PYTHON=sys.executable, XDG_CACHE_HOME=tmp_path, COLUMNS="200")
    assert done.returncode == OK, done.stderr
    rows = [line.split()[:2] for line in done.stdout.splitlines() if line.strip()]
    assert [r[0] for r in rows if r[1:] == ["(inference)"]] == list(PRECISIONS)
    for precision in PRECISIONS:
        result = json.loads((tmp_path / f"{precision}.json").read_text())
        assert result["label"] == precision
        assert result["iterations"] == 400
        assert result["model_size_bytes"] == 512 * 512 * WEIGHT_BYTES[precision]
        (once,) = result["runs"]
        assert once["latency_seconds"] == pytest.approx(once["seconds"] / 400)
        # If a busy machine reads many marks at once, single iterations have no times.
        assert once["latency_p50_seconds"] is None or once["latency_p50_seconds"] > 0
        assert once["energy_joules"]["low"] < once["energy_joules"]["best"]
        assert [w["label"] for w in once["windows"]] == ["warm-up", "inference"]
        assert once["part"] == "inference" and once["iterations"] == 400
        assert once["seconds"] == once["windows"][1]["seconds"]
