"""Tests how gpuward config reads and prints the guard's tables of gpuward.toml."""
import json
import re

import pytest

import guarded
import service
from support import OK, PROGRAM, TOP, USAGE, check, environment, gpuward

EXAMPLE = TOP / "packaging" / "gpuward-guard.toml"
GUARD = """\
[guard]
profile = "desktop"
poll_ms = 50
[guard.defaults]
quiet_s = 12.5
headroom = "3GiB"
[[worker]]
name = "ollama"
kind = "ollama"
match.unit = "ollama.service"
priority = -2
quiet_s = 5
[[worker]]
name = "batch"
kind = "exec"
match.exe = "/opt/batch/bin/worker"
evict_command = ["/opt/batch/bin/pause", "--wait", "a \\"b\\""]
resume = "lazy"
[[rule]]
match.name = "game*"
match.vram_ge = "1GiB"
match.type = ["graphics"]
action = "contend-now"
[[schedule]]
worker = "ollama"
evict = "Fri-Sun 18:00-23:00; daily 01:00-02:00"
"""


def printed(config, path, **variables):
    done = config("print", path, "--json", **variables)
    assert (done.returncode, done.stderr) == (OK, "")
    doc = json.loads(done.stdout)
    check("config-print", doc)
    return doc


def plain(entries):
    """Returns the entries without their positions in the file."""
    return [{k: v for k, v in e.items() if k != "origin"} for e in entries]


def test_valid_worker_tables_are_accepted(config):
    path = config.write(GUARD)
    done = config("check", path)
    assert (done.returncode, done.stderr, done.stdout) == (OK, "", f"{path}: ok\n")


def test_a_worker_that_only_a_name_identifies_is_accepted_with_a_warning(config):
    named = '[guard]\nmode = "observe"\n[[worker]]\nname = "w"\nkind = "checkpoint"\nmatch.name = "holder"\n'
    done = config("check", config.write(named))
    assert done.returncode == OK and "gpuward.toml:6:" in done.stderr, done.stderr
    assert "any user can start a process with this name" in done.stderr and "match.uid" in done.stderr
    done = config("check", config.write(named + "match.uid = 1000\n"))
    assert done.returncode == OK and "can have this name" not in done.stderr, done.stderr
    guide = " ".join((TOP / "docs/GUARD.md").read_text().split())
    assert "never by name alone" not in guide and "A name (`match.name`) proves nothing" in guide


def test_workers_and_rules_are_printed_as_json(config):
    path = config.write(GUARD)
    doc = printed(config, path)
    assert plain(doc["workers"]) == [
        {"name": "ollama", "kind": "ollama", "priority": -2, "quiet_s": 5, "match": {"unit": "ollama.service"}},
        {"name": "batch", "kind": "exec", "resume": "lazy",
         "evict_command": ["/opt/batch/bin/pause", "--wait", 'a "b"'],
         "match": {"exe": "/opt/batch/bin/worker"}},
    ]
    assert plain(doc["rules"]) == [
        {"action": "contend-now",
         "match": {"name": "game*", "vram_ge": 1 << 30, "type": ["graphics"]}}]
    assert plain(doc["schedules"]) == [
        {"worker": "ollama", "evict": ["Fri-Sun 18:00-23:00; daily 01:00-02:00"]}]
    assert doc["workers"][0]["origin"] == f"{path}:7:1"
    assert doc["values"]["guard.defaults"]["quiet_s"] == 12.5
    assert doc["values"]["guard"]["mode"] == "enforce"
    assert doc["origins"]["guard"]["mode"] == f"{path}:2:1", "where the profile was named"


def test_what_is_printed_reads_back_to_the_same(config):
    first = config("print", config.write(GUARD))
    again_file = config.write(first.stdout, "again.toml")
    assert config("print", again_file).stdout == first.stdout
    a, b = printed(config, config.write(GUARD)), printed(config, again_file)
    assert a["values"] == b["values"]
    for table in ("workers", "rules", "schedules"):
        assert plain(a[table]) == plain(b[table])


def test_tables_of_several_files_come_together(config):
    config.write('[[worker]]\nname = "a"\nkind = "ollama"\n', "etc/gpuward/gpuward.toml")
    config.write('[[worker]]\nname = "b"\nkind = "vllm"\n[guard]\nmode = "dry-run"\n',
                "etc/gpuward/gpuward.d/b.toml")
    config.write('[[schedule]]\nworker = "a"\nevict = "1:00-2:00"\n', "home/gpuward/gpuward.toml")
    done = config("print", "--json")
    doc = json.loads(done.stdout)
    assert done.returncode == OK
    assert [w["name"] for w in doc["workers"]] == ["a", "b"]
    assert len(doc["schedules"]) == 1


def test_a_worker_of_another_file_is_named_with_its_file(config):
    first = config.write('[guard]\nmode = "enforce"\n[[worker]]\nname = "a"\nkind = "ollama"\n',
                        "etc/gpuward/gpuward.toml")
    second = config.write('[[worker]]\nname = "a"\nkind = "vllm"\n', "etc/gpuward/gpuward.d/b.toml")
    done = config("check")
    assert done.returncode == USAGE
    assert done.stderr == f'{second}:2:8: the worker name "a" is already used in {first}:3\n'


def test_every_mistake_is_printed_with_its_place(config):
    path = config.write("""\
[guard]
profile = "dekstop"
[[worker]]
name = "a"
kind = "olama"
[[worker]]
name = "b"
kind = "vllm"
url = "gopher://x"
[[worker]]
name = "c"
kind = "ollama"
match.unit = "x.service"
[[worker]]
name = "c"
kind = "llamacpp"
match.unit = "x.service"
[[rule]]
match.command = "["
action = "ignore"
[[schedule]]
worker = "d"
evict = "Fri 24:30-25:00"
""")
    done = config("check", path)
    assert (done.returncode, done.stdout) == (USAGE, "")
    places = [tuple(map(int, m)) for m in re.findall(r"toml:(\d+):(\d+): ", done.stderr)]
    assert sorted(places) == [(2, 11), (5, 8), (9, 7), (14, 1), (15, 8), (19, 17), (22, 10), (23, 9)]
    for word in ('"desktop"?', '"ollama"?', "write http://HOST:PORT", "in line 10",
                 "regular expression", 'no worker "d"', "24:30 is out of range"):
        assert word in done.stderr
    doc = json.loads(config("check", path, "--json").stdout)
    check("config-check", doc)
    assert len(doc["errors"]) == len(places)


def test_names_from_a_file_do_not_act_on_the_terminal(config):
    path = config.write('[[worker]]\nname = "a\\u001b[31m\\nb"\nkind = "ollama"\n'
                       '"\\u001b]0;x" = 1\n')
    done = config("check", path)
    assert done.returncode == USAGE
    assert "\x1b" not in done.stderr
    assert all(line.startswith(str(path)) for line in done.stderr.splitlines())


def test_environment_variables_override_the_file(config):
    path = config.write(GUARD)
    doc = printed(config, path, GPUWARD_GUARD_MODE="dry-run", GPUWARD_GUARD_DEFAULTS_QUIET_S="7")
    assert doc["values"]["guard"]["mode"] == "dry-run"
    assert doc["values"]["guard.defaults"]["quiet_s"] == 7
    assert doc["origins"]["guard.defaults"]["quiet_s"] == "GPUWARD_GUARD_DEFAULTS_QUIET_S"
    doc = printed(config, config.write(""), GPUWARD_GUARD_PROFILE="container")
    assert doc["values"]["guard"]["by_unattributed"] is True
    assert doc["origins"]["guard"]["by_unattributed"] == "GPUWARD_GUARD_PROFILE"


def test_the_original_keys_have_their_original_effect(config):
    doc = printed(config, config.write(
        "enable_nvml = true\nrequire_nvml = true\nauto_evict_for_user_apps = true\n"
        "process_check_interval_secs = 5\nenable_health_monitoring = true\n"
        "health_check_interval_secs = 10\ntemperature_threshold_celsius = 85\n"
        "enable_capacity_tracking = true\n"))
    values = doc["values"]
    assert values["device"]["require_nvml"] is True
    assert values["guard"]["mode"] == "enforce"
    assert values["guard"]["poll_ms"] == 5000
    assert (values["health"]["enabled"], values["health"]["interval_s"]) == (True, 10)
    assert values["health"]["temp_override_c"] == 85
    assert values["capacity"]["enabled"] is True


def test_the_example_is_good_and_so_is_what_it_has_in_comments(config):
    done = config("check", EXAMPLE)
    assert (done.returncode, done.stderr) == (OK, "")
    server = EXAMPLE.read_text().split("# ---- A server")[1].split("\n\n", 1)[1]
    text = re.sub(r"^# ?", "", server, flags=re.M)
    assert "[[worker]]" in text
    done = config("check", config.write(text))
    assert (done.returncode, done.stderr) == (OK, "")
    evening = re.search(r"(?:^# (?:\[\[schedule|worker|evict).*\n)+", EXAMPLE.read_text(), re.M)
    done = config("check", config.write(
        EXAMPLE.read_text() + re.sub(r"^# ", "", evening.group(0), flags=re.M)))
    assert (done.returncode, done.stderr) == (OK, "")


def test_configurations_in_the_guide_are_valid(config):
    text = (TOP / "docs" / "GUARD.md").read_text()
    shown = re.findall(r"```toml\n(.*?)```", text, re.S)
    assert len(shown) >= 3
    for block in shown:
        done = config("check", config.write(block))
        assert (done.returncode, done.stderr) == (OK, ""), block


def test_the_manual_names_every_key(config):
    page = PROGRAM.parent / "docs" / "man" / "gpuward.toml.5"
    if not page.exists():
        pytest.skip("the manual pages were not built")
    text = re.sub(r"\\f.|\\&|\\", "", page.read_text())
    rows = re.findall(r'^G\(\w+, [A-Z| ]+, "([a-z_.]+)"',
                      (TOP / "src" / "daemon" / "guard_config.def").read_text(), re.M)
    assert len(rows) > 30
    for key in rows:
        assert f"{key} (" in text, key


def test_the_journal_is_in_the_folder_that_state_dir_names(tmp_path):
    text = f'[guard]\nstate_dir = "{tmp_path}"\n'
    with service.Service("two-gpus", config=text, state="auto"):
        assert (tmp_path / "gpuward.db").exists()


@pytest.mark.parametrize("mistake, line", [("[log]\nlevle = 3\n", 5), ("[[worker]]\nname = 3\n", 4)])
def test_a_mistake_in_the_file_does_not_keep_commands_from_the_service(tmp_path, mistake, line):
    with guarded.service(tmp_path) as s:
        guarded.ready(s)
        etc = tmp_path / "etc" / "gpuward"
        etc.mkdir(parents=True)
        address = s.url.removeprefix("http://")
        file = etc / "gpuward.toml"
        file.write_text(f'[service]\nlisten = ["{address}"]\ntoken_file = "{s.token_file}"\n{mistake}')
        env = environment(GPUWARD_CONFIG_ROOT=tmp_path, XDG_CONFIG_HOME=tmp_path / "home")
        note = f"gpuward: note: the configuration has a mistake: {file}:{line}:"
        done = gpuward("guard", "status", env=env)
        assert done.returncode == OK and "ollama" in done.stdout, done.stderr
        assert done.stderr.startswith(note)
        for where in ([], ["--address", address]):
            done = gpuward("guard", "hold", "active", "ollama", "--for", "1h", *where, env=env)
            assert done.returncode == OK, done.stderr
            assert done.stderr.startswith(note)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with guarded.service(tmp_path) as s:
        guarded.ready(s)
        etc = tmp_path / "etc" / "gpuward"
        etc.mkdir(parents=True)
        (etc / "gpuward.toml").write_text(f'[service]\ntoken_file = "{s.token_file}"\n[log\n')
        env = environment(GPUWARD_CONFIG_ROOT=tmp_path, XDG_CONFIG_HOME=tmp_path / "home")
        done = gpuward("guard", "hold", "active", "ollama", "--for", "1h",
                       "--address", s.url.removeprefix("http://"), env=env)
        assert done.returncode == 1 and "the service refuses" in done.stderr
        assert "the configuration has a mistake" in done.stderr and "gpuward.toml:3:" in done.stderr
