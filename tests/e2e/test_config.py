"""Tests gpuward config, the configuration files, and the units that start the service."""
import configparser
import json
import re
import shutil
import subprocess

import pytest

from support import OK, PROGRAM, TOP, USAGE, check, gpuward

EXAMPLE = TOP / "packaging" / "gpuward.toml"
UNITS = TOP / "packaging" / "systemd"


def test_without_files_the_defaults_are_good(config):
    done = config("check")
    assert (done.returncode, done.stderr) == (OK, "")
    assert done.stdout == "no configuration file found; the defaults are used\n"


def test_check_names_the_files_that_it_read(config):
    a = config.write("[service]\ninterval = 2\n", config.etc / "gpuward.toml")
    b = config.write("[log]\nlevel = 'debug'\n", config.etc / "gpuward.d" / "50-more.toml")
    c = config.write("", config.home / "gpuward.toml")
    done = config("check")
    assert done.returncode == OK
    assert done.stdout == f"{a}, {b}, {c}: ok\n"


@pytest.mark.parametrize("text, mode, says", [
    (None, 0o600, "cannot be read: No such file"),
    ("short\n", 0o600, "shorter than 16 characters"),
    ("0123456789abcdef\n", 0o644, "other users can read"),
])
def test_a_token_that_the_service_would_refuse_is_refused(config, text, mode, says):
    token = config.top / "token"
    if text:
        token.write_text(text)
        token.chmod(mode)
    path = config.write(f"[history]\npath = 'none'\n[service]\nlisten = ['127.0.0.1:0']\ntoken_file = '{token}'\n", config.top / "a.toml")
    done = config("check", path)
    assert done.returncode == USAGE and f"{path}:5:1: token_file: " in done.stderr and says in done.stderr
    assert config("check", "--config", path).stderr == done.stderr
    done = gpuward("serve", "--simulate", "--config", path)
    assert done.stderr.endswith("\n")
    assert done.returncode == 78 and "service.token_file: " in done.stderr and says in done.stderr


def test_a_missing_token_of_a_worker_is_a_warning(config):
    path = config.write("[guard]\nmode = 'enforce'\n[[worker]]\nname = 'v'\nkind = 'vllm'\ntoken_file = '/absent'\n", config.top / "a.toml")
    done = config("check", path)
    assert done.returncode == OK and f"{path}:6:14: warning: cannot read token_file /absent" in done.stderr


@pytest.mark.parametrize("key", ["job", "instance", "user"])
def test_a_long_label_of_push_is_named_with_its_line(config, key):
    path = config.write(f"[push]\n{key} = '{'x' * 20000}'\n", config.top / "a.toml")
    done = config("check", path)
    assert done.returncode == USAGE
    assert f"{path}:2:1: push.{key} has 20000 bytes, but at most 199 are possible" in done.stderr


def test_check_prints_all_errors_and_exits_2(config):
    path = config.write("[service]\nlisen = 1\ninterval = 'soon'\n[lgo]\n", config.top / "bad.toml")
    done = config("check", path)
    assert done.returncode == USAGE
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        f'{path}:2:1: no such key "lisen" in [service]; did you mean "listen"?',
        f'{path}:3:12: interval must be a time such as "1s" or "500ms", or a number of seconds, '
        'not "soon"',
        f'{path}:4:2: no such section "lgo"; did you mean "log"?',
    ]


def test_check_sorts_by_line_and_names_a_missing_token_with_the_other_errors(config):
    path = config.write("[guard]\nmode = 'often'\n[service]\ntoken_file = '/absent'\nlisten = ['x']\nhosts = ['a b']\n[lgo]\n",
                        config.top / "bad.toml")
    done = config("check", path, GPUWARD_LOG_LEVEL="loud")
    assert done.returncode == USAGE
    places = [line.removeprefix(f"{path}:").split(":")[0] for line in done.stderr.splitlines()]
    assert places == ["2", "4", "5", "6", "7", "GPUWARD_LOG_LEVEL"], done.stderr
    assert "token_file: /absent cannot be read" in done.stderr


def test_check_as_json(config):
    path = config.write("[service]\nlisen = 1\n", config.top / "bad.toml")
    done = config("check", path, "--json", GPUWARD_LOG_LEVEL="loud", GPUWARD_LISEN="1")
    assert (done.returncode, done.stderr) == (USAGE, "")
    doc = json.loads(done.stdout)
    check("config-check", doc)
    assert doc["ok"] is False
    assert doc["files"] == [str(path)]
    assert [(e["file"], e["line"], e["column"]) for e in doc["errors"]] == [
        (str(path), 2, 1), (None, None, None)]
    assert doc["errors"][1]["message"].startswith("GPUWARD_LOG_LEVEL: must be error, ")
    assert doc["warnings"][0]["message"].startswith("GPUWARD_LISEN: unknown setting")


def test_a_file_that_is_not_there_or_not_to_be_read_is_named(config):
    done = config("check", config.top / "none.toml")
    assert done.returncode == USAGE
    assert "none.toml: " in done.stderr
    done = config("check", config.top)
    assert done.returncode == USAGE
    assert str(config.top) in done.stderr


def test_a_file_that_everybody_may_write_is_good_with_a_warning(config):
    path = config.write("", config.top / "open.toml")
    path.chmod(0o666)
    done = config("check", path)
    assert done.returncode == OK
    assert "every user can write this file" in done.stderr
    assert config("check", path, "--quiet").stderr == ""


def test_what_is_printed_reads_back_to_the_same(config):
    path = config.write(
        'require_nvml = true\n[service]\nlisten = ["[::1]:1", "unix:/run/x"]\n'
        'interval = 0.123\ntoken_file = "/a \\"b\\""\n[history]\nlimit = "3MiB"\n',
        config.top / "a.toml",
    )
    first = config("print", path)
    assert (first.returncode, first.stderr) == (OK, "")
    again = config("print", config.write(first.stdout, config.top / "b.toml"))
    assert again.stdout == first.stdout
    a, b = (json.loads(config("print", config.top / f, "--json").stdout) for f in ("a.toml", "b.toml"))
    assert a["values"] == b["values"]
    assert a["values"]["service"]["interval"] == 0.123
    assert a["values"]["device"]["require_nvml"] is True


def test_print_shows_where_values_came_from(config):
    path = config.write("require_nvml = true\n", config.top / "a.toml")
    done = config("print", path, "--origin", GPUWARD_INTERVAL="2s")
    assert f"require_nvml = true  # {path}:1:1\n" in done.stdout
    assert 'interval = "2s"  # GPUWARD_INTERVAL\n' in done.stdout
    assert "insecure = false  # default\n" in done.stdout
    doc = json.loads(config("print", path, "--json", GPUWARD_INTERVAL="2s").stdout)
    check("config-print", doc)
    assert doc["origins"]["device"]["require_nvml"] == f"{path}:1:1"
    assert doc["origins"]["service"]["interval"] == "GPUWARD_INTERVAL"


def test_print_of_a_bad_configuration_prints_none(config):
    done = config("print", GPUWARD_INTERVAL="soon")
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert done.stderr.startswith("GPUWARD_INTERVAL: ")
    doc = json.loads(config("print", "--json", GPUWARD_INTERVAL="soon").stdout)
    check("config-print", doc)
    assert "values" not in doc


@pytest.mark.parametrize("words", [[], ["chek"], ["check", "a", "b"], ["check", "--origin"],
                                   ["print", "--gpu", "0"]])
def test_wrong_usage_is_refused(config, words):
    done = config(*words)
    assert done.returncode == USAGE
    assert done.stderr.startswith("gpuward: ")


def test_the_example_is_what_the_program_prints(config):
    made = config("print", "--example").stdout
    assert EXAMPLE.read_text() == made, "gpuward config print --example >packaging/gpuward.toml"


def test_the_example_sets_nothing_and_has_every_default(config):
    config.write(EXAMPLE.read_text(), config.etc / "gpuward.toml")
    assert set(origins(config)) == {"default"}
    bare = re.sub(r"^#(?=[a-z0-9_]+ = )", "", EXAMPLE.read_text(), flags=re.M)
    bare = bare.replace("# The values after a # are the defaults; remove the # to change one.\n", "")
    (config.etc / "gpuward.toml").unlink()
    assert config("print").stdout == bare


def origins(config):
    doc = json.loads(config("print", "--json").stdout)
    return [place for keys in doc["origins"].values() for place in keys.values()]


def test_the_example_does_not_override_a_profile(config):
    """The example is copied to /etc; the guard has its own file, as in the guide."""
    config.write(EXAMPLE.read_text(), config.etc / "gpuward.toml")
    config.write(GUARD, config.etc / "gpuward.d" / "guard.toml")
    done = config("check")
    assert (done.returncode, done.stderr) == (OK, "")
    values = json.loads(config("print", "--json").stdout)["values"]
    assert (values["guard"]["mode"], values["device"]["require_nvml"]) == ("enforce", True)


GUARD = '[guard]\nprofile = "desktop"\n[[worker]]\nname = "a"\nkind = "ollama"\n'


def test_a_profile_that_an_earlier_file_disarms_is_reported(config):
    first = config.write(config("print").stdout, config.etc / "gpuward.toml")
    line = first.read_text().splitlines().index('mode = "observe"') + 1
    second = config.write(GUARD, config.etc / "gpuward.d" / "guard.toml")
    done = config("check")
    assert done.returncode == OK
    assert done.stderr.endswith(
        f'{first}:{line}:1: warning: mode = "observe" is set here, so the profile "desktop" '
        f"({second}) does not set it to enforce; remove this line, or move it next to the profile\n")
    assert "require_nvml = false is set here" in done.stderr and done.stderr.count("\n") == 2
    # If mode is next to the profile, or in a later file, it has an effect.
    first.unlink()
    second.write_text(GUARD.replace("[[", 'mode = "observe"\n[[', 1))
    assert config("check").stderr == ""
    config.write("[device]\nrequire_nvml = false\n", config.etc / "gpuward.d" / "later.toml")
    assert config("check").stderr == ""


def test_example_excludes_other_outputs_of_config(config):
    for words in (("check", "--example"), ("print", "--example", "--origin")):
        done = config(*words)
        assert done.returncode == USAGE and "--example" in done.stderr


def test_the_manual_names_every_setting(config):
    page = PROGRAM.parent / "docs" / "man" / "gpuward.toml.5"
    if not page.exists():
        pytest.skip("the manual pages were not built")
    text = re.sub(r"\\f.|\\&|\\", "", page.read_text())
    values = json.loads(config("print", "--json").stdout)["values"]
    assert values
    for section, keys in values.items():
        assert f"[{section}]" in text
        for key in keys:
            variable = f"GPUWARD_{'' if section == 'service' else section + '_'}{key}"
            variable = variable.upper().replace(".", "_")
            assert f"{key} (" in text, key
            assert variable in text, variable


def unit(name, folder=None):
    parser = configparser.RawConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    text = (UNITS / name).read_text()
    parser.read_string(text)
    if folder:
        made = text.replace("@bindir@/gpuward", str(PROGRAM))
        made = made.replace("@libexecdir@/gpuward/gpuward-companion", str(PROGRAM) + "-companion")
        (folder / name).write_text(made)
    return parser


def test_the_unit_keeps_the_service_small():
    service = unit("gpuward.service")["Service"]
    for key, value in {
        "Type": "notify",
        "ExecStart": "@bindir@/gpuward serve",
        "NoNewPrivileges": "yes",
        "ProtectSystem": "strict",
        "ProtectHome": "yes",
        "CapabilityBoundingSet": "",
        "PrivateDevices": "no",
        "DevicePolicy": "closed",
        "DynamicUser": "yes",
        "StateDirectory": "gpuward",
        "RuntimeDirectory": "gpuward",
        "SupplementaryGroups": "video render",
    }.items():
        assert service[key] == value
    assert "78" in service["RestartPreventExitStatus"].split()
    for key in ("WatchdogSec", "ExecReload", "MemoryMax", "SystemCallFilter", "DeviceAllow"):
        assert service[key]
    assert unit("gpuward.socket")["Socket"]["Service"] == "gpuward.service"
    assert service["ExecStopPost"] == "-@bindir@/gpuward guard recover"


def test_the_companions_unit_has_three_capabilities_and_waits_for_what_is_under_way():
    service = unit("gpuward-companion.service")["Service"]
    assert service["CapabilityBoundingSet"] == "CAP_KILL CAP_SYS_PTRACE CAP_DAC_OVERRIDE"
    for key in ("NoNewPrivileges", "ProtectHome", "PrivateNetwork", "MemoryDenyWriteExecute", "RestrictNamespaces"):
        assert service[key] == "yes"
    assert service["KillMode"] == "mixed" and service["Restart"] == "no"
    socket = unit("gpuward-companion.socket")["Socket"]
    assert (socket["SocketMode"], socket["SocketGroup"]) == ("0660", "gpuward")
    assert socket["ListenStream"] == "/run/gpuward-companion.sock"


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
def test_systemd_finds_no_fault_with_the_units(tmp_path):
    names = ("gpuward.service", "gpuward.socket", "gpuward-companion.service", "gpuward-companion.socket")
    for name in names:
        unit(name, tmp_path)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(tmp_path / name for name in names)],
        capture_output=True, text=True, timeout=60,
    )
    assert done.returncode == 0, done.stderr
    # systemd-analyze only warns about keys that it does not know.
    assert "gpuward" not in done.stderr, done.stderr


def test_a_currency_is_one_short_word(config):
    place = config.etc / "gpuward.toml"
    config.write('[energy]\nprice_per_kwh = 0.31\nprice_currency = "EUR"\n', place)
    assert config("check").returncode == OK
    config.write('[energy]\nprice_currency = "seventeen-letters"\n', place)
    done = config("check")
    assert done.returncode != OK and "price_currency must be a word of at most 16 bytes" in done.stdout + done.stderr
