"""Tests that wrong input gets one sentence on standard error that names what is wrong."""
import json
import os
import shutil
import signal
import subprocess

import pytest

from support import BUILD, FAILED, NO_GPU, OK, PROGRAM, SIMULATOR, TIMEOUT, USAGE, document, environment, gpuward, wait
from synthetic import result, save


def complaint(*args, code=USAGE, **kw):
    """Returns the one line on stderr of a run that must print nothing else."""
    done = gpuward(*args, **kw)
    assert done.returncode == code
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("gpuward: ")
    return lines[0]


REFUSED = [
    (["lst"], "unknown command 'lst' (did you mean 'list'?)"),
    (["frobnicate"], "unknown command 'frobnicate'; gpuward --help lists the commands"),
    (["list", "--jsn"], "unknown option '--jsn' (did you mean '--json'?)"),
    (["list", "--qqqqqqqq"], "unknown option '--qqqqqqqq'"),
    (["list", "-x"], "unknown option '-x'"),
    (["list", "extra"], "list takes no argument, but 'extra' was given"),
    (["compare", "--gpu=0", "x.json"], "compare does not read GPUs: leave out --gpu"),
    (["report", "--simulate", "x.json"], "report does not read GPUs: leave out --simulate"),
    (["plot", "--wake", "x.json"], "plot does not read GPUs: leave out --wake"),
    (["replay", "--backend=nvml", "x"], "replay does not read GPUs: leave out --backend"),
    (["recompute", "--timeout=1s", "x"], "recompute does not read GPUs: leave out --timeout"),
    (["completion", "--root=/", "bash"], "completion does not read GPUs: leave out --root"),
    (["--nvml-library=/x", "compare", "x.json"], "leave out --nvml-library"),
    (["report", "--json", "x.json"], "report has no JSON output"),
    (["plot", "-j", "x.json"], "plot has no JSON output"),
    (["list", "--json=1"], "--json takes no value"),
    (["list", "--gpu"], "--gpu needs a value (SEL)"),
    (["list", "--gpu="], "--gpu has an empty value"),
    (["list", "--gpu=0,,1"], "--gpu has an empty value"),
    (["list", "--watch"], "unknown option '--watch'"),
    (["list", "--timeout=abc"], "--timeout takes a time such as 100ms, 5s, 2m or 2h, not 'abc'"),
    (["list", "--timeout=-1s"], "not '-1s'"),
    (["list", "--timeout=1e99h"], "not '1e99h'"),
    (["list", "--timeout=nan"], "not 'nan'"),
    (["list", "--color=sometimes"], "--color takes auto, always or never, not 'sometimes'"),
    (["list", "--backend=nmvl"], "(did you mean 'nvml'?)"),
    (["list", "--backend=nmvl"], "--backend takes auto, all, nvml, nvidia-smi,"),
    (["snapshot", "--watch=garbage"], "at least 10ms such as 2s, not 'garbage'"),
    (["snapshot", "--watch=1ms"], "not '1ms'"),
    (["snapshot", "--watch="], "not ''"),
    (["snapshot", "-w5parsecs"], "not '5parsecs'"),
    (["list", "--simulate=dmo"], "(did you mean 'demo'?)"),
    (["list", "--simulate=nowhere.toml"], "nowhere.toml: no such scenario"),
    (["list", "--simulate=/"], "/: cannot be read: Is a directory"),
    (["list", "--simulate", "--nvml-library=/x"], "exclude each other"),
    (["list", "--root=/nonexistent"], "--root '/nonexistent': no such folder"),
    (["list", "--root=/etc/passwd"], "--root '/etc/passwd': no such folder"),
]


@pytest.mark.parametrize("args,sentence", REFUSED, ids=[" ".join(a) + "|" + s for a, s in REFUSED])
def test_wrong_input_is_refused_in_one_sentence(args, sentence):
    assert sentence in complaint(*args)


def test_gpuward_without_a_command_prints_a_hint_and_fails():
    done = gpuward()
    assert done.returncode == USAGE
    assert done.stdout == ""
    assert "gpuward --help" in done.stderr


@pytest.mark.parametrize("selector", ["zz", "-1", "cuda:x", "cuda:", "0x1", "GPU", "visible2"])
def test_a_selector_that_makes_no_sense_is_a_usage_error(selector):
    assert f"--gpu '{selector}'" in complaint("list", "--simulate", "--gpu", selector)


@pytest.mark.parametrize("selector", ["zz", "cuda:x"])
def test_a_selector_makes_no_sense_without_gpus_either(selector, bare):
    assert "not an index" in complaint("list", *bare, "--gpu", selector)


@pytest.mark.parametrize(
    "selector", ["2", "99999999999999999999999", "cuda:9", "GPU-ffff", "0000:ff:00.0"]
)
def test_a_gpu_that_does_not_exist_is_reported(selector):
    line = complaint("list", "--simulate", "--gpu", selector, code=NO_GPU)
    assert f"--gpu '{selector}': no such GPU (this machine has 2" in line


def test_a_gpu_on_a_machine_without_one_is_reported(bare):
    assert "(this machine has 0" in complaint("list", *bare, "--gpu=0", code=NO_GPU)


def test_several_selectors_add_up_and_all_must_be_there():
    doc = document("list", "--simulate=eight-gpus", "--gpu=1,3", "--gpu=5")
    assert [d["index"] for d in doc["devices"]] == [1, 3, 5]
    assert doc["count"] == 8
    complaint("list", "--simulate=eight-gpus", "--gpu=1,9", code=NO_GPU)


def test_gpus_are_selected_by_uuid_prefix_and_pci_in_either_form():
    doc = document("list", "--simulate")
    second = doc["devices"][1]
    uuid, pci = second["uuid"], second["pci_bus_id"]
    for selector in (uuid, uuid[:8], uuid[4:14], uuid.upper(), pci, "0000" + pci.upper()):
        chosen = document("list", "--simulate", "--gpu", selector)["devices"]
        assert [d["uuid"] for d in chosen] == [uuid]


SCENARIO_MISTAKES = [
    ('[[gpu]]\nprofil = "h100"\n', "2:1: unknown key 'profil'; did you mean 'profile'?"),
    ('[[gpu]]\nprofile = "h1000"\n', "2:11: no profile is called 'h1000'; did you mean 'h100'?"),
    ("x = \n", "1:5: expected a value but the line ends"),
    ('[[gpu]]\nprofile = "h100"\ncount = "two"\n', "3:9: "),
    ('[[gpu]]\nprofile = "h100"\nprofile = "h100"\n', "3:1: "),
    ('[[gpu]]\nprofile = "h100\n', "2:"),
    ('[[gqu]]\nprofile = "h100"\n', "1:3: "),
]


@pytest.mark.parametrize("text,sentence", SCENARIO_MISTAKES, ids=[s for _, s in SCENARIO_MISTAKES])
def test_a_mistake_in_a_scenario_is_placed(tmp_path, text, sentence):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    line = complaint("list", f"--simulate={path}")
    assert line.startswith(f"gpuward: {path}:{sentence}")


def answer(library, **kw):
    """Returns the error of `list` for a library that cannot be used. It must be on standard error, not on standard
    output."""
    done = gpuward("list", f"--nvml-library={library}", "--backend=nvml", **kw)
    assert done.returncode == NO_GPU
    assert done.stdout == ""
    doc = document(
        "list", f"--nvml-library={library}", "--backend=nvml", code=NO_GPU, **kw
    )
    first = " ".join(done.stderr.split())
    assert " ".join(doc["source"]["message"].split()) in first
    return doc["source"]


def test_a_folder_is_no_library(tmp_path):
    source = answer(tmp_path)
    assert source["cause"] == "bad_library"
    assert "is a directory" in source["message"]


def test_a_text_file_is_no_library(tmp_path):
    path = tmp_path / "libnvidia-ml.so.1"
    path.write_text("This is not an ELF file, however long it may go on.\n" * 100)
    source = answer(path)
    assert source["cause"] == "bad_library"
    assert str(path) in source["message"]


def test_an_empty_file_is_no_library(tmp_path):
    path = tmp_path / "libnvidia-ml.so.1"
    path.touch()
    assert answer(path)["cause"] == "bad_library"


def test_a_missing_file_is_named(tmp_path):
    path = tmp_path / "nowhere.so"
    source = answer(path)
    assert source["cause"] == "bad_library"
    assert source["message"].endswith(f"{path}: no such file")


def test_a_library_that_is_not_nvml_is_named_with_what_it_lacks():
    source = answer("libm.so.6")
    assert source["cause"] == "no_function"
    assert "libm.so.6 has no nvmlInit_v2" in source["message"]


def test_a_library_below_stubs_is_refused_before_it_is_called(tmp_path):
    (tmp_path / "stubs").mkdir()
    stub = tmp_path / "stubs" / "libnvidia-ml.so.1"
    shutil.copy(SIMULATOR, stub)
    # In this scenario the first call prints something, but answer() requires that nothing is printed.
    source = answer(stub, env=environment(GPUWARD_SIM="stub"))
    assert source["cause"] == "stub_library"
    assert str(stub) in source["message"]
    assert source["simulated"] is False


def test_a_link_to_a_stub_is_seen_through(tmp_path):
    (tmp_path / "stubs").mkdir()
    shutil.copy(SIMULATOR, tmp_path / "stubs" / "libnvidia-ml.so.1")
    link = tmp_path / "libnvidia-ml.so.1"
    link.symlink_to(tmp_path / "stubs" / "libnvidia-ml.so.1")
    assert answer(link)["cause"] == "stub_library"


def test_a_stub_library_with_another_name_is_recognised_by_its_answer():
    done = gpuward("list", "--simulate=stub", "--json")
    source = json.loads(done.stdout)["source"]
    assert source["cause"] == "stub_library"
    assert "\n" not in source["message"]


def test_a_simulator_named_as_the_library_is_marked():
    doc = document("list", f"--nvml-library={SIMULATOR}", env=environment(GPUWARD_SIM="two-gpus"))
    assert doc["source"]["simulated"] is True
    assert [d["provenance"] for d in doc["devices"]] == ["simulated"] * 2


def test_a_scenario_that_the_simulator_library_does_not_have_is_named():
    done = gpuward("list", "--json", f"--nvml-library={SIMULATOR}", env=environment(GPUWARD_SIM="nonsense"))
    source = json.loads(done.stdout)["source"]
    assert source["cause"] == "no_scenario" and "GPUWARD_SIM: nonsense: no such scenario" in source["message"], source
    assert "--simulate=help" in source["remedy"] and "container" not in source["remedy"]
    assert "gpuward list --simulate=help lists the built-in scenarios" in done.stderr


@pytest.mark.parametrize("library, says", [("/nowhere", "GPUWARD_SIM_LIBRARY"),
                                           ("/lib/x86_64-linux-gnu/libm.so.6", "is not the simulator")])
def test_a_library_that_is_missing_or_no_simulator_is_reported(library, says):
    assert says in complaint("list", "--simulate", code=FAILED, env=environment(GPUWARD_SIM_LIBRARY=library))


@pytest.mark.parametrize("words", [["--help"], ["help"], ["list", "--help"], ["-h"], ["--version"]])
def test_help_and_version_succeed_on_stdout(words):
    done = gpuward(*words)
    assert done.returncode == OK
    assert done.stderr == ""
    assert done.stdout.startswith("gpuward")


@pytest.mark.parametrize("words", [["--json", "list"], ["--simulate", "list", "--json"]])
def test_options_may_stand_before_the_command(words):
    assert gpuward(*words).returncode == OK


def test_the_help_of_commands_that_read_no_gpu_has_no_gpu_options():
    about = ("--gpu", "--simulate", "--wake", "--backend", "--nvml-library", "--timeout", "--root")
    for command in ("compare", "diff", "report", "plot", "recompute", "replay", "completion"):
        text = gpuward(command, "--help").stdout.split("Examples:")[0]
        assert not [o for o in about if f"{o} " in text or f"{o}[" in text], command
        assert "--quiet" in text and "--version" in text
        assert ("--json" in text) == (command in ("compare", "diff", "recompute"))
    text = gpuward("list", "--help").stdout
    assert all(o in text for o in about) and "--json" in text


def test_completion_offers_no_option_that_is_refused(tmp_path):
    script = tmp_path / "bash"
    script.write_text(gpuward("completion", "bash").stdout + """
offer() {
	COMP_WORDS=(gpuward "$1" --) COMP_CWORD=2
	_gpuward
	echo "$1 ${COMPREPLY[*]}"
}
for c in list compare plot; do offer $c; done
""")
    done = subprocess.run(["bash", script], capture_output=True, text=True, timeout=60)
    offered = {l.split()[0]: l.split()[1:] for l in done.stdout.splitlines()}
    assert {"--gpu", "--json", "--simulate"} <= set(offered["list"]), done.stderr
    assert "--json" in offered["compare"] and "--metric" in offered["compare"]
    assert not {"--gpu", "--simulate", "--wake"} & set(offered["compare"])
    assert not {"--gpu", "--json"} & set(offered["plot"]) and "--output" in offered["plot"]


@pytest.mark.parametrize("command", ["compare", "report", "plot"])
def test_results_are_refused_with_the_reason(command, tmp_path):
    path = save(tmp_path, "a.json", result("a"))
    (tmp_path / "libjansson.so.4").write_text("no library")
    done = gpuward(command, path, env=environment(LD_LIBRARY_PATH=tmp_path))
    assert done.returncode == FAILED and done.stdout == ""
    assert done.stderr == f"gpuward: {path}: libjansson.so.4 is needed to read JSON: install libjansson4\n"


# ---- files that do not end, and pipes to which nothing is written

# Arguments, and the message for an endless file.
NO_RESULT = "/dev/zero: not a result: a result of gpuward is JSON and begins with {"
READERS = [
    (["compare", "{}"], NO_RESULT), (["diff", "{}", "{}"], NO_RESULT), (["report", "{}"], NO_RESULT), (["plot", "{}"], NO_RESULT),
    (["recompute", "{}"], "/dev/zero is not a bundle"),
    (["replay", "{}"], "/dev/zero is not a bundle"),
    (["guard", "replay", "{}"], "/dev/zero:1: this line is longer than 16 MiB"),
    (["guard", "replay", "--policy", "{}", "{}"], "/dev/zero: the file is larger than 1 MiB"),
    (["config", "check", "--config", "{}"], "/dev/zero: the file is larger than 1 MiB"),
    (["list", "--simulate={}"], "/dev/zero: the file is larger than 1 MiB"),
    (["measure", "--simulate=two-gpus", "--calibrate", "{}", "--", "true"], "/dev/zero is not a regular file"),
    (["serve", "--simulate=two-gpus", "--history", "none", "--listen", "127.0.0.1:0", "--token-file", "{}"],
     "/dev/zero is not a regular file"),
]
MOST_KIB = 256 << 10  # the peak of a child includes the memory of this test before exec


def peak(args):
    """Returns exit status, stderr and the peak resident memory in KiB."""
    with subprocess.Popen([str(PROGRAM), *args], env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, encoding="utf-8") as child:
        said = child.stderr.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode, said, usage.ru_maxrss


@pytest.mark.skipif(any(w in PROGRAM.read_bytes() for w in (b"__asan_init", b"__tsan_init")), reason="a sanitizer needs memory")
@pytest.mark.parametrize("args,sentence", READERS, ids=lambda a: "-".join(w for w in a if w[0] not in "{-1/")[:40])
@pytest.mark.parametrize("kind", ["endless", "pipe"])
@pytest.mark.deep
def test_a_file_that_does_not_end_is_refused(tmp_path, args, sentence, kind):
    path = "/dev/zero"
    if kind == "pipe":
        path = str(tmp_path / "pipe")
        os.mkfifo(path, 0o600)
    code, said, memory = peak([a.replace("{}", path) for a in args])
    assert code > 0 and path in said and len(said.splitlines()) <= 4, said
    assert kind == "pipe" or sentence in said, said
    assert memory < MOST_KIB and "out of memory" not in said


@pytest.mark.parametrize("command", ["compare", "report", "plot"])
def test_a_result_that_is_too_large_is_refused_before_it_is_read(tmp_path, command):
    path = tmp_path / "large.json"
    with open(path, "w") as f:
        f.write("{")
        f.truncate(257 << 20)
    code, said, memory = peak([command, str(path)])
    assert code == FAILED and f"{path}: too large for a result: the limit is 256 MiB" in said, said
    assert memory < MOST_KIB or b"san_init" in PROGRAM.read_bytes()


@pytest.mark.parametrize("args", [["list"], ["snapshot"], ["snapshot", "-v"]], ids=" ".join)
def test_a_table_that_memory_has_no_room_for_is_an_error(args):
    env = environment(LD_PRELOAD=str(BUILD / "tests" / "e2e" / "libno_memory.so"))
    assert gpuward(*args, "--simulate=two-gpus", env=env).returncode == OK
    env["GPUWARD_TEST_MEMORY"] = "20000"
    done = gpuward(*args, "--simulate=two-gpus", env=env)
    assert done.returncode == FAILED and "out of memory; the table is not shown" in done.stderr
    assert "INDEX" not in done.stdout


def test_an_output_that_is_no_regular_file_is_written_to(tmp_path):
    """The rule is the same for every -o: a log refuses an existing file; a document replaces it and says so."""
    saved = save(tmp_path, "in.json", result())
    commands = {
        "measure": ["measure", "--simulate=demo", "-o", None, "--", "true"],
        "log": ["log", "--simulate=demo", "-d", "0.2s", "-o", None],
        "compare": ["compare", saved, "-o", None],
        "report": ["report", saved, "-o", None],
    }
    for name, args in commands.items():
        def run(path, *more):
            return gpuward(args[0], *more, *(path if a is None else a for a in args[1:]))
        for path in ("/dev/null", "/dev/stdout"):
            done = run(path)
            assert done.returncode == OK and (len(done.stdout) > 50) == (path != "/dev/null"), (name, done)
            assert "replaced" not in done.stderr
        fifo = tmp_path / f"{name}.fifo"
        os.mkfifo(fifo)
        reader = subprocess.Popen(["cat", fifo], stdout=subprocess.PIPE)
        assert run(fifo).returncode == OK and len(reader.communicate(timeout=60)[0]) > 50, name
        done = run(fifo)
        assert done.returncode == FAILED and f"{fifo}" in done.stderr and "no program reads this FIFO" in done.stderr, name
        file = tmp_path / f"{name}.out"
        assert "replaced" not in run(file).stderr
        done = run(file)
        if name == "log":
            assert done.returncode == FAILED and "--append adds to it, --force replaces it" in done.stderr
        else:
            assert done.returncode == OK and f"gpuward: replaced {file}" in done.stderr, (name, done.stderr)
            assert (tmp_path / f"{name}.out.old").exists() == (name in ("measure", "ab"))
            assert "replaced" not in run(file, "--quiet").stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)
def test_a_signal_ends_a_measurement_that_waits_for_the_reader_of_a_fifo(tmp_path, number):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    while True:  # fills the FIFO, so that the result cannot be written
        try:
            os.write(writer, bytes(4096))
        except BlockingIOError:
            break
    argv = [str(PROGRAM), "measure", "--simulate=demo", "-o", str(fifo), "--", "true"]
    with subprocess.Popen(argv, env=environment(), stderr=subprocess.PIPE) as child:
        def waits():
            return any(os.path.realpath(f"/proc/{child.pid}/fd/{n}") == str(fifo.resolve())
                       for n in os.listdir(f"/proc/{child.pid}/fd"))
        wait(waits, "the result is being written")
        child.send_signal(number)
        assert child.wait(TIMEOUT) == -number
    os.close(reader)
    os.close(writer)


def test_without_proc_the_cause_is_named():
    hidden = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
    if subprocess.run([*hidden, "true"], capture_output=True).returncode:
        pytest.skip("mounting is not permitted here")
    for args in (("serve",), ("list", "--simulate=two-gpus")):
        done = subprocess.run([*hidden, str(PROGRAM), *args], env=environment(), capture_output=True, text=True, timeout=20)
        assert done.returncode == 1 and "/proc/self/exe cannot be read; mount /proc" in done.stderr, done.stderr
