"""The tools that keep the tree in order say what they are there to say."""
import shutil
import subprocess

import pytest

from support import TOP


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


def test_what_decides_and_what_computes_is_pure(tree):
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


def test_a_layer_knows_nothing_of_those_to_its_right(tree):
    change(tree, "src/guard/action.c", '#include "action.h"\n', '#include "action.h"\n#include "daemon/config.h"\n')
    (tree / "src/cli/cmd_new.c").write_text('#include "device/device.h"\n')
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
