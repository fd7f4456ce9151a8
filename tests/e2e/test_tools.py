"""Tests that the tools that check the tree, and the schemas in docs/schema, find mistakes."""
import copy
import importlib.machinery
import importlib.util
import json
import os
import shutil
import subprocess
import sys

import jsonschema
import pytest

import openapi_check
from support import BUILD, COMMANDS, SCHEMAS, TIMEOUT, TOP, check, document, load, validator


@pytest.fixture
def tree(tmp_path):
    for folder in ("src", "sim"):
        shutil.copytree(TOP / folder, tmp_path / folder)
    return tmp_path


def layers(tree):
    return subprocess.run([TOP / "tools" / "check-layers", tree], capture_output=True, text=True)


def change(tree, name, old, new):
    text = (tree / name).read_text()
    assert old in text
    (tree / name).write_text(text.replace(old, new, 1))


def test_deciding_and_computing_code_must_be_pure(tree):
    done = layers(tree)
    assert (done.returncode, done.stdout, done.stderr) == (0, "check-layers: ok\n", "")
    include, call = '#include "guard_internal.h"\n', "\tuint64_t t = clock_mono_ns(clock_real());\n"
    change(tree, "src/guard/observe.c", include, include + '#include "action.h"\n#include <unistd.h>\n')
    change(tree, "src/guard/decide.c", "\n{\n", "\n{\n" + call)
    change(tree, "src/guard/demand.c", "\n{\n", "\n{\n\tFILE *f = fopen(path, mode);\n")
    (tree / "src/guard/guard_new.c").write_text('#include "base/root.h"\n')
    change(tree, "src/measure/energy.c", "\n{\n", "\n{\n\ttime_t now = time(NULL);\n")
    change(tree, "src/measure/stat.c", '#include "stat.h"\n', '#include "stat.h"\n#include "meter.h"\n')
    done = layers(tree)
    assert done.returncode == 1 and done.stdout == ""
    said = done.stderr.splitlines()
    for file, what in (("src/guard/observe.c", '"action.h"'), ("src/guard/observe.c", "<unistd.h>"),
                       ("src/guard/decide.c:", "clock_real()"), ("src/guard/demand.c:", "fopen("),
                       ("src/guard/guard_new.c", '"base/root.h"'), ("src/measure/energy.c:", "time(NULL)"),
                       ("src/measure/stat.c", '"meter.h"')):
        assert [line for line in said if line.startswith(f"check-layers: {file}") and what in line], (file, what)
    assert len(said) == 7


def test_the_measurement_of_checkpoints_on_a_gpu_works_with_the_fake_driver():
    """tests/gpu/evict is tried here, because no machine of the tests has a GPU."""
    done = subprocess.run([TOP / "tests" / "gpu" / "evict", "--check", "2"], capture_output=True, text=True, timeout=TIMEOUT,
                          env={**os.environ, "BUILD": str(BUILD)})
    assert done.returncode == 0 and done.stdout.endswith("8 rows, 0 failed\n"), done.stdout + done.stderr
    measured = [line for line in done.stdout.splitlines() if line.startswith("driver") and "skipped" not in line]
    assert len(measured) >= 6 and all(line.endswith(" equal") for line in measured), done.stdout


@pytest.fixture(scope="module")
def assets():
    """tools/assets as a module."""
    loader = importlib.machinery.SourceFileLoader("assets", str(TOP / "tools" / "assets"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("assets", loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


@pytest.mark.parametrize("text, served", [
    ("// a\n\t// b\nf(1); // c\n/* d\n e */\ng();\n", "f(1);\ng();\n"),
    ("a /* b */ + c\n", "a   + c\n"),
    ("return /* b\n */ c\n", "return \n c\n"),  # a comment over two lines ends a statement
    ("f('//', \"/* \\\" */\", 'it\\'s // 1');\n", None),
    ("`// ${ a /* b */ + `/* ${ {c: '}'}.c } */` } //`; // d\n", "`// ${ a   + `/* ${ {c: '}'}.c } */` } //`;\n"),
    ("`\\` // ${1}$ // `\n", None),
    ("x = a / b; // c / d\n", "x = a / b;\n"),
    ("x = (a + b) / c[1] / 2; // '\ny++ / 2; // `\n", "x = (a + b) / c[1] / 2;\ny++ / 2;\n"),
    ("x = s.replace(/[/*]\\/\\/*'/g, '//'); // a\n", "x = s.replace(/[/*]\\/\\/*'/g, '//');\n"),
    ("return /\"/.test(s); // a\n", "return /\"/.test(s);\n"),
    ("if (a) /`/.test(s); // a\nx = o.return / 2; // '\n", "if (a) /`/.test(s);\nx = o.return / 2;\n"),
    ("a = 1;\n// the end", "a = 1;"),
])
def test_comments_of_modules_are_not_served(assets, text, served):
    assert assets.without_comments(text, "a.js") == (served or text)


@pytest.mark.parametrize("text", ["x = {} / 2;", "'a", "`a", "x = /a\n/;", "/* a"])
def test_a_module_that_cannot_be_read_is_refused(assets, text):
    with pytest.raises(ValueError, match="line 1: "):
        assets.without_comments(text, "a.js")


def test_comments_of_style_sheets_are_not_served(assets):
    text = "/* a */\na::after { content: \"/* b */\"; } /* c */\nb { background: url(http://d/*e.svg); }\n"
    assert assets.without_comments(text, "a.css") == (
        "a::after { content: \"/* b */\"; }\nb { background: url(http://d/*e.svg); }\n")


@pytest.mark.parametrize("file", sorted(f.name for f in (TOP / "web").glob("*.js")))
def test_the_page_keeps_everything_but_comments(assets, file):
    def code(text):
        return [t for t in assets.js_tokens(text) if not t.isspace() and not t.startswith(("//", "/*"))]

    source = (TOP / "web" / file).read_text()
    served = assets.without_comments(source, file)
    assert code(served) == code(source)
    assert not [t for t in assets.js_tokens(served) if t.startswith(("//", "/*"))]


def test_a_pattern_of_pure_files_must_match_a_file(tree):
    for file in (tree / "src/guard").glob("reservation*"):
        file.rename(file.with_name("booking" + file.suffix))
    done = layers(tree)
    assert done.returncode == 1
    assert done.stderr == ("check-layers: no file matches src/guard/reservation*.[ch]: change the list of pure files in "
                           "tools/check-layers\n")


def test_a_missing_schema_is_reported_in_a_sentence():
    with pytest.raises(AssertionError, match="#/components/schemas/new: the document has no new; add it to docs/schema"):
        openapi_check.follow({"components": {"schemas": {}}}, "#/components/schemas/new")


def test_a_layer_must_not_include_headers_of_higher_layers(tree):
    change(tree, "src/guard/action.c", '#include "action.h"\n', '#include "action.h"\n#include "daemon/config.h"\n')
    (tree / "src/cli/cmd_new.c").write_text('#include "device/backend.h"\n')
    (tree / "src/base/new.c").write_text("void f(void)\n{\n\texit(1);\n}\n")
    done = layers(tree)
    assert done.returncode == 1
    assert "src/guard/action.c (layer guard) includes a header of layer daemon" in done.stderr
    assert "src/cli/cmd_new.c includes a header of layer device" in done.stderr
    assert "may not print, exit or install signal handlers" in done.stderr


def test_only_the_recorder_may_change_the_guard(tree):
    own = '#include "guard_service_parts.h"\n'
    change(tree, "src/daemon/guard_service_request.c", own, own + '#include "guard/guard_input.h"\n')
    done = layers(tree)
    assert done.returncode == 1
    assert done.stderr == ("check-layers: src/daemon/guard_service_request.c includes guard_input.h; change the guard through "
                           "guard_recorder.c, which records its inputs\n")


def test_a_variable_must_not_have_the_name_of_a_function_of_its_file(tree):
    (tree / "src/base/new.c").write_text("static int first(void)\n{\n\treturn last(0, first);\n}\n\n"
                                         "static int next(int a)\n{\n\tint b = first(a, 1), *next = &a, first[2];\n\n"
                                         "\tstruct x y = { .run = first, next };\n}\n")
    done = layers(tree)
    assert done.returncode == 1
    assert sorted(done.stderr.splitlines()) == [
        f"check-layers: src/base/new.c:8: variable {name} has the name of a function of its file: rename the variable"
        for name in ("first", "next")]


def test_a_struct_has_at_most_25_members(tree):
    def members(first, n):
        return "".join(f"\tint (*m{k})(int, int), a{k}[2]; /* one; two */\n" for k in range(first, first + n // 2))

    (tree / "src/base/new.h").write_text("struct many {\n" + members(0, 24) + "\tstruct {\n\t\tint a, b;\n\t};\n};\n"
                                         "struct few {\n" + members(0, 24) + "\tstruct {\n\t\tint a, b;\n\t} c;\n};\n"
                                         "enum words { " + "WORD, " * 40 + "};\n")
    done = layers(tree)
    assert done.returncode == 1
    assert done.stderr == ("check-layers: src/base/new.h:1: struct many has 26 members: group some of them into a struct "
                           "with a name\n")


@pytest.mark.parametrize("path", sorted(SCHEMAS.glob("*.json")), ids=lambda p: p.name)
def test_every_schema_is_valid(path):
    jsonschema.Draft202012Validator.check_schema(json.loads(path.read_text()))


def test_generated_schemas_follow_the_tables():
    done = subprocess.run([sys.executable, TOP / "tools" / "schema", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def good():
    return document("snapshot", "--simulate=mig")


BROKEN = {
    "another schema_version": lambda d: d.update(schema_version=2),
    "a local time": lambda d: d.update(time_utc="2026-11-15T04:18:46+01:00"),
    "a missing figure": lambda d: d.pop("gpu_vram_gb"),
    "a null without a reason": lambda d: d["devices"][0].update(power_watts=None),
    "a reason without a null": lambda d: d["devices"][0]["absent"].update(power_watts="lost"),
    "an unknown reason": lambda d: d["devices"][0]["absent"].update(fan_speed_ratio="shy"),
    "a placeholder": lambda d: d["devices"][0].update(power_watts=4294967.295),
    "a number as text": lambda d: d["devices"][0].update(power_watts="70 W"),
    "an unknown key": lambda d: d["devices"][0].update(power_wats=1.0),
    "an unknown key of the host": lambda d: d["host"].update(cpu=1),
    "an unknown provenance": lambda d: d["devices"][0].update(provenance="guess"),
}


@pytest.mark.parametrize("damage", BROKEN)
def test_the_schema_check_detects_mistakes(damage, good):
    check("snapshot", good)
    bad = copy.deepcopy(good)
    BROKEN[damage](bad)
    with pytest.raises((jsonschema.ValidationError, AssertionError)):
        check("snapshot", bad)


@pytest.mark.parametrize("command", COMMANDS)
def test_schemas_accept_unknown_keys(command):
    doc = document(command, "--simulate")
    doc["later"] = 1
    validator(command).validate(doc)
    assert load(command + ".json")["title"].startswith(f"gpuward {command}")


def test_uninstall_removes_only_from_the_given_prefix(tmp_path):
    def uninstall(*more, destdir=""):
        done = subprocess.run([TOP / "tools" / "uninstall", tmp_path / "build", *more], capture_output=True, text=True,
                              env={**os.environ, "DESTDIR": destdir}, timeout=TIMEOUT)
        return done.returncode, done.stdout + done.stderr

    prefix = tmp_path / "opt" / "x"
    files = [prefix / "bin" / "gpuward", prefix / "include" / "gpuward" / "code.def"]
    assert uninstall(prefix)[0] == 1
    (tmp_path / "build" / "meson-logs").mkdir(parents=True)
    (tmp_path / "build" / "meson-logs" / "install-log.txt").write_text("# List\n" + "".join(f"{f}\n" for f in files))
    code, text = uninstall(prefix)
    assert (code, text) == (0, f"nothing was removed: no installed file is left in {prefix}\n")
    for f in files:
        f.parent.mkdir(parents=True)
        f.touch()
    for other in (["/usr/local"], [prefix.parent]):
        code, text = uninstall(*other)
        assert code == 1 and f"wrote to {prefix}, not to {other[0]}." in text
        assert f"make uninstall PREFIX={prefix}." in text
        assert all(f.exists() for f in files)
    code, text = uninstall(prefix, destdir="/dest")
    assert code == 1 and f"make uninstall DESTDIR= PREFIX={prefix}." in text
    code, text = uninstall("/opt/x/", destdir=str(tmp_path))
    assert code == 0 and text.startswith(f"removed 2 files that were installed in {prefix}; /etc/gpuward")
    assert not any(f.exists() for f in files) and not files[1].parent.exists()
