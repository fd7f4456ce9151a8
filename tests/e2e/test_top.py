"""Tests gpuward top in a tmux terminal: whole screens, keys, sizes, and the loss of its data source.

GPUWARD_GOLDEN=write writes the screens of tests/golden again; read the difference before you commit it.
"""
import itertools
import os
import re
import shutil
import subprocess

import pytest

from guarded import configure, table
from service import Service
from support import FAILED, FIXTURES, OK, PROGRAM, TIMEOUT, TOP, USAGE, Terminal, environment, gpuward, wait
from worker import GIB, Process, World

GOLDEN = TOP / "tests" / "golden"
STILL = [f"--simulate={GOLDEN / 'still.toml'}", "--root", FIXTURES / "amd-discrete", "--backend=nvml"]
COLOUR = re.compile(r"\x1b\[[0-9;]*[39][0-7]m")
number = itertools.count()

pytestmark = pytest.mark.skipif(not shutil.which("tmux"), reason="tmux is not installed")


class Screen:
    """Runs gpuward top in its own tmux. When gpuward top has ended, the screen shows "exit STATUS"."""

    def __init__(self, path, columns, rows, *args, kind="screen", before=":", **env):
        self.socket = path / f"tmux-{next(number)}"
        words = " ".join(f"'{w}'" for w in ("top", *map(str, args)))
        script = path / f"run-{next(number)}"
        script.write_text(f"trap : QUIT\nexport TERM={kind}\n{before}\necho before top\n'{PROGRAM}' {words}\necho exit $?\nread wait\n")
        self.env = environment(HOME=path, **env)
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", columns, "-y", rows, f"sh '{script}'", ";",
                  "set", "status", "off", ";", "set", "window-size", "manual")
        self.resize(columns, rows)

    def tmux(self, *words):
        return subprocess.run(["tmux", "-u", "-S", self.socket, *map(str, words)], env=self.env, check=True, timeout=TIMEOUT,
                              capture_output=True, encoding="utf-8").stdout

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        subprocess.run(["tmux", "-S", self.socket, "kill-server"], env=self.env, capture_output=True)

    def text(self, *how):
        return self.tmux("capture-pane", "-p", *how)

    def keys(self, *keys):
        for key in keys:
            self.tmux("send-keys", key)
        return self

    def resize(self, columns, rows):
        self.tmux("resize-window", "-x", columns, "-y", rows)

    def until(self, *texts, gone=()):
        """Waits until the screen has these texts, and none of the texts in `gone`."""
        shown = [""]

        def there():
            shown[0] = self.text()
            return all(t in shown[0] for t in texts) and not any(t in shown[0] for t in gone)
        wait(there, lambda: f"{texts} on this screen:\n{shown[0]}")
        return shown[0]


def masked(text):
    """Masks the parts of the screen that change with time: clock, energy, and how far the graphs are filled."""
    text = re.sub(r"\d\d:\d\d:\d\d", "HH:MM:SS", text)
    text = re.sub(r"\d+ J in \d+s(, \d+s ago)?", "N J in Ns", text)
    text = re.sub(r"  energy \d+s old", "", text)
    text = re.sub(r" +\d+ J (free|idle)", "      N J \\1", text)
    text = re.sub(r"[⠀-⣿┄]", " ", text)
    return "".join(line.rstrip() + "\n" for line in text.splitlines())


SCREENS = {
    "80x24": (80, 24, {}, [], []),
    "200x60": (200, 60, {}, [], []),
    "ascii-60x10": (60, 10, {"LANG": "C"}, [], []),
    "zoom-100x40": (100, 40, {}, ["Enter"], ["Esc all GPUs", "memory temperature      50"]),
    "help-80x24": (80, 24, {}, ["?"], ["Keys of gpuward top"]),
}


@pytest.mark.parametrize("name", SCREENS)
def test_the_screen_is_as_it_was(name, tmp_path):
    columns, rows, env, keys, then = SCREENS[name]
    with Screen(tmp_path, columns, rows, *STILL, "-d", "100ms", **env) as top:
        # waits for a second process list, which has SM %, and for a second reading of the counter
        top.until("train", " 50 ", "q quit", *([" J"] if rows < 12 else [" J in "]))
        got = masked(top.keys(*keys).until(*then))
    path = GOLDEN / f"top-{name}.txt"
    if os.environ.get("GPUWARD_GOLDEN") == "write":
        path.write_text(got)
    assert got == path.read_text()


def test_a_small_terminal_gets_a_sentence_until_it_is_enlarged(tmp_path):
    with Screen(tmp_path, 200, 60, "--simulate=eight-gpus") as top:
        top.until("GPU 7", "torchrun", "utilisation")
        top.resize(50, 8)
        top.until("needs 60 columns and 10 rows", "terminal has 50 and 8", gone=["GPU 7"])
        top.resize(80, 24)
        top.until("8 GPUs", "torchrun", gone=["needs 60"])
        top.keys("q").until("exit 0")


def test_the_first_line_marks_simulated_gpus_and_q_leaves_the_terminal_as_it_was(tmp_path):
    with Screen(tmp_path, 80, 24, "--simulate=sixty-four") as top:
        assert "SIMULATED" in top.until("GPUs 0 to 13 of 64").splitlines()[0]
        top.keys("Tab", "End").until("GPUs 50 to 63 of 64")
        assert "before top" not in top.text()
        assert top.keys("q").until("exit 0").split("\n")[:2] == ["before top", "exit 0"]


def test_columns_that_do_not_fit_are_named(tmp_path):
    with Service("h200") as service:
        with Screen(tmp_path, 80, 24, "--address", service.url.removeprefix("http://")) as top:
            heading = next(l for l in top.until("matmul", "hidden: ").splitlines() if "COMMAND" in l).split()
            last = top.text().splitlines()[-1]
            hidden = last.split("hidden: ")[1].split(", ")
            assert last.startswith("q quit  ? help") and len(last) <= 80
            assert hidden and not set(hidden) & set(heading)
            top.resize(200, 24)
            wide = top.until("matmul", *hidden, gone=["hidden: "])
            assert "k end process" in wide.splitlines()[-1]


@pytest.mark.parametrize("service", [False, True])
def test_the_zoom_shows_mig_instances(service, tmp_path):
    with Service("mig") as s:
        source = ["--address", s.url.removeprefix("http://")] if service else ["--simulate=mig"]
        with Screen(tmp_path, 100, 40, *source) as top:
            top.until("serve", "q quit")
            top.keys("Enter").until("MIG 3g.71gb (instance 1)", "40.0 GiB / 69.0 GiB", "MIG 1g.18gb (instance 9)")


def test_keys_sort_filter_and_pause(tmp_path):
    with Screen(tmp_path, 100, 30, "--simulate", "--sort", "memory") as top:
        text = top.until("vllm serve", "jupyter-kernel", "MEMORY▼")
        assert text.index("vllm serve") < text.index("jupyter-kernel")
        top.keys("r").until("MEMORY▲")
        wait(lambda: top.text().index("jupyter-kernel") < top.text().index("vllm serve"), "the reverse order")
        top.keys("<").until("SM%▲", "sorted by SM%")
        top.keys("/", "v", "l", "l", "Enter").until("filter: vll", gone=["jupyter-kernel"])
        top.keys("/", "Escape").until("jupyter-kernel", gone=["filter:"])
        top.keys("Space").until("PAUSED")
        top.keys("Space").until("SIMULATED", gone=["PAUSED"])


@pytest.mark.parametrize("args,env", [(["--color=never"], {}), ([], {"NO_COLOR": "1"}), ([], {"kind": "vt100"})])
def test_no_colour_where_it_is_unwanted(args, env, tmp_path):
    with Screen(tmp_path, 80, 24, "--simulate", *args, **env) as top:
        top.until("vllm serve")
        assert not COLOUR.search(top.text("-e"))


@pytest.mark.parametrize("kind", ["screen", "xterm-256color"])
def test_eight_colours_are_enough(kind, tmp_path):
    with Screen(tmp_path, 80, 24, "--simulate", kind=kind) as top:
        top.until("vllm serve")
        shown = top.text("-e")
        assert COLOUR.search(shown) and "38;5" not in shown and "38;2" not in shown


def test_a_service_that_is_gone_leaves_old_figures_and_is_found_again(tmp_path):
    with Service("demo", config=configure(table("vllm", "exec", match_name="vllm serve", evict_command=["/bin/true"],
                                                resume_command=["/bin/true"]), mode="observe")) as service:
        address = service.url.removeprefix("http://")
        with Screen(tmp_path, 120, 30, "--address", address) as top:
            top.until("python train.py", "guard observe: vllm", "contender", "vllm ")
            service.stop()
            shown = top.until("These figures are", "old: no service listens on " + address, "trying again")
            assert "python train.py" in shown  # the last figures stay ...
            assert not COLOUR.search(top.text("-e").split("GPU 0")[1])  # ... but without their colours
            service.restart()
            top.until("python train.py", gone=["old: "])
            top.keys("q").until("exit 0")


def test_a_service_is_found_by_its_configuration_and_direct_does_not_ask_it(tmp_path):
    with Service("h200") as service:
        config = tmp_path / "root/etc/gpuward/gpuward.toml"
        config.parent.mkdir(parents=True)
        config.write_text(f'[service]\nlisten = ["{service.url.removeprefix("http://")}"]\n')
        with Screen(tmp_path, 160, 30, GPUWARD_CONFIG_ROOT=tmp_path / "root") as top:
            top.until("matmul", "read from the service")
        with Screen(tmp_path, 160, 30, "--direct", "--backend=none", GPUWARD_CONFIG_ROOT=tmp_path / "root") as top:
            top.until("read from the driver")


@pytest.fixture
def world(tmp_path):
    (tmp_path / "w").mkdir()
    return World(tmp_path / "w")


def test_only_a_process_of_the_user_can_be_ended_and_only_after_a_question(tmp_path, world):
    with Process(world, ["/bin/sleep", "1000"]) as own:
        world.hold(own.pid, GIB)
        with Screen(tmp_path, 110, 24, f"--simulate={world.scenario}") as top:
            top.until(str(own.pid), "sleep")
            top.keys("k").until(f"End sleep (pid {own.pid}) with SIGTERM?")
            top.keys("n").until("nothing was ended")
            assert own.child.poll() is None
            top.keys("k").until("with SIGTERM?")
            top.keys("y").until("SIGTERM was sent")
            assert own.child.wait(TIMEOUT) == -15


@pytest.mark.skipif(os.getuid() != 0, reason="needs another user's process")
def test_even_root_is_not_offered_to_end_the_process_of_another_user(tmp_path, world):
    with Process(world, ["/bin/sleep", "1000"], user=65534) as other:
        world.hold(other.pid, GIB)
        with Screen(tmp_path, 110, 24, f"--simulate={world.scenario}") as top:
            top.until(str(other.pid), "sleep")
            shown = top.keys("k").until("belongs to", "top ends only your own processes")
            assert "SIGTERM?" not in shown
            top.keys("y").until("sleep", gone=["belongs to"])
            assert other.child.poll() is None


def test_names_of_others_do_not_reach_the_terminal_as_commands(tmp_path, scenario):
    evil = scenario('[[gpu]]\nprofile = "h100"\nname = "red \\u001b[31m\\u202e and \\r over"\n'
                    '[[gpu.process]]\nname = "a\\u001b]0;title\\u0007\\u009b2J"\nmemory = "1 GiB"\n')
    with Screen(tmp_path, 100, 24, evil) as top:
        assert "red ?[31m? and ? over" in top.until("a?]0;title??2J")
        assert top.tmux("display-message", "-p", "#{pane_title}").strip() != "title"


def test_wide_characters_stay_in_the_row_of_their_process(tmp_path, world):
    """When only the row of the wide command is written again, the row below it must stay as it is."""
    with Process(world, ["/bin/sleep", "997"]) as above, Process(world, ["⚡" * 80, "998"], executable="/bin/sleep") as wide, \
            Process(world, ["/bin/sleep", "999"]) as below:
        for n, process in enumerate((below, wide, above)):
            world.hold(process.pid, (n + 1) * GIB)
        with Screen(tmp_path, 100, 24, f"--simulate={world.scenario}", "--sort=MEMORY") as top:
            top.until(*(str(p.pid) for p in (above, wide, below)))
            top.keys("Down", "k").until(f"(pid {wide.pid}) with SIGTERM?")
            shown = top.keys("n").until("nothing was ended").splitlines()
            row = next(i for i, line in enumerate(shown) if str(wide.pid) in line)
            assert "⚡⚡⚡" in shown[row] and str(below.pid) in shown[row + 1] and "sleep 999" in shown[row + 1], "\n".join(shown)


def test_a_locale_that_is_not_installed_still_draws_bars_and_graphs(tmp_path):
    for name, drawn in (("xx_XX.UTF-8", "█"), ("xx_XX", "#")):
        with Screen(tmp_path, 100, 30, "--simulate=demo", LC_ALL=name) as top:
            top.until("GPU 0", drawn)


@pytest.mark.parametrize("size", ["rows 0 cols 0", "rows 24 cols 100"])
def test_the_text_console_of_linux_is_drawn(size, tmp_path):
    """The description of this terminal has no size, and some terminals do not report theirs."""
    with Screen(tmp_path, 100, 24, "--simulate", kind="linux", before=f"stty {size}") as top:
        top.until("GPU 0")
        top.keys("q").until("exit 0")


def test_a_quit_signal_and_an_absurd_size_leave_a_usable_terminal(tmp_path):
    with Screen(tmp_path, 100, 24, "--simulate", COLUMNS=100000, LINES=100000) as top:
        top.until("GPU 0")
        top.keys("C-\\").until("exit 0", gone=["GPU 0"])


@pytest.mark.parametrize("before", [True, False])
def test_a_terminal_that_claims_65535_rows_and_columns_is_not_drawn_whole(before, tmp_path):
    """The size is absurd when top starts, or becomes absurd while top runs."""
    huge = ("stty", "rows", "65535", "cols", "65535")
    with Screen(tmp_path, 100, 24, "--simulate", before="stty rows 65535 cols 65535" if before else ":") as top:
        if before:  # what is drawn is too wide for the pane, so it cannot be read there
            top.until("█")
        else:
            top.until("GPU 0")
            with open(top.tmux("display-message", "-p", "#{pane_tty}").strip()) as tty:
                subprocess.run(huge, stdin=tty, check=True)
        top.keys("q").until("exit 0")


def test_a_lost_gpu_is_named_with_what_happened(tmp_path, scenario):
    goes = scenario('[[gpu]]\nprofile = "h100"\ncount = 2\n[[timeline]]\nat = 1\ndo = "lose"\ngpu = 1\n')
    with Screen(tmp_path, 120, 24, goes) as top:
        top.until("GPU 1  ", "lost", "fell off the bus", "GPU 0", "idle")


def test_a_hanging_driver_does_not_block_the_keys(tmp_path, scenario):
    hangs = scenario('[[gpu]]\nprofile = "h100"\n[[fault]]\ncall = "nvmlDeviceGetUtilizationRates"\nhang = true\nfrom = 1\n')
    with Screen(tmp_path, 100, 24, hangs, "--timeout=20s") as top:
        top.until("These figures are", "the last reading has not finished")
        top.keys("q").until("exit 0")


@pytest.mark.parametrize("args,message", [
    ([], "top needs a terminal; for a pipe, a file or a simple terminal use gpuward snapshot -w"),
    (["--interval=1ms"], "--interval takes a time from 100ms to 1h"),
    (["--sort=height"], "--sort takes the title of a column"),
    (["--json"], "top has no JSON output"),
])
def test_what_cannot_work_is_refused_with_a_sentence(args, message):
    done = gpuward("top", "--simulate", *args)
    assert done.returncode == USAGE and message in done.stderr and done.stdout == ""


def test_a_named_service_that_does_not_answer_is_an_error(tmp_path):
    out, code = Terminal(80, "top", "--address", "127.0.0.1:9").end()
    assert code == FAILED and "no service listens on 127.0.0.1:9" in out


def test_without_ncurses_the_missing_package_is_named_and_other_commands_work(tmp_path):
    (tmp_path / "libncursesw.so.6").write_text("")  # replaces the real library
    out, code = Terminal(120, "top", "--simulate", LD_LIBRARY_PATH=tmp_path).end()
    assert code == FAILED and "libncursesw6" in out.replace("\n", " ") and "\x1b" not in out
    assert gpuward("list", "--simulate", env=environment(LD_LIBRARY_PATH=tmp_path)).returncode == OK
