"""Tests libgpuward for programs: it compiles, links only to libc, and exports only its own names."""
import json
import os
import re
import shutil
import subprocess

import pytest

from support import BUILD, OK, PROGRAM, SIMULATOR, TIMEOUT, TOP, environment, gpuward

LIBRARY = BUILD / "libgpuward.so"
SOURCE = TOP / "tests" / "e2e" / "program.c"
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"]
COMPILERS = {
    "c11": ["gcc", "-std=c11"],
    "c2x": ["gcc", "-std=c2x"],
    "c++11": ["g++", "-std=c++11", "-x", "c++"],
    "c++20": ["g++", "-std=c++20", "-x", "c++"],
}
EXPECTED = """\
0 NVIDIA H100 80GB HBM3 simulated ok 1
1 NVIDIA H100 80GB HBM3 simulated ok 1
backend nvml simulated 1
processes 1
facts 1
"""


def run(*words, env=None):
    done = subprocess.run(
        list(map(str, words)), capture_output=True, text=True, timeout=TIMEOUT,
        env=env or environment(),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def sanitized():
    options = json.loads((BUILD / "meson-info" / "intro-buildoptions.json").read_text())
    return next(o["value"] for o in options if o["name"] == "b_sanitize") != "none"


plain = pytest.mark.skipif(sanitized(), reason="a sanitizer brings its own libraries")


@plain
@pytest.mark.parametrize("standard", COMPILERS)
def test_a_program_compiles_without_a_warning_and_runs(standard, tmp_path):
    if not shutil.which(COMPILERS[standard][0]):
        pytest.skip(f"no {COMPILERS[standard][0]} here")
    program = tmp_path / "program"
    run(*COMPILERS[standard], *STRICT, f"-I{TOP}/include", SOURCE, "-x", "none", LIBRARY,
        f"-Wl,-rpath,{BUILD}", "-o", program)
    out = run(program, SIMULATOR, env=environment(GPUWARD_SIM="lost-gpu"))
    assert out == EXPECTED


@plain
@pytest.mark.parametrize("file", [LIBRARY, PROGRAM], ids=["library", "program"])
def test_libc_alone_is_needed(file):
    allowed = r"(linux-vdso|libc|libm|libdl|libpthread|.*/?ld-linux[\w-]*)\.so[.\d]*"
    for line in run("ldd", file).splitlines():
        assert re.fullmatch(allowed, line.split()[0]), line


@plain
def test_the_library_stays_small(tmp_path):
    out = tmp_path / "stripped"
    run("strip", "-o", out, os.path.realpath(LIBRARY))
    assert out.stat().st_size <= 400 << 10, out.stat().st_size


def exports(file):
    lines = run("nm", "-D", "--defined-only", file).splitlines()
    return {l.split()[2].split("@")[0] for l in lines if l.split()[1] != "A"}


@plain
def test_the_library_exports_what_the_header_declares_and_no_more():
    header = "".join(p.read_text() for p in (TOP / "include").glob("*.h"))
    declared = set(re.findall(r"^GW_API [^;]*?\b(gw_\w+)\(", header, flags=re.M))
    assert exports(LIBRARY) == declared


@plain
def test_the_simulator_exports_nvml_and_its_own_names_only():
    names = exports(SIMULATOR)
    assert {n for n in names if not n.startswith(("nvml", "gpuward_sim"))} == set()
    assert "nvmlInit_v2" in names


@pytest.mark.parametrize("name", ["gpuward.h", "gpuward-guard.h"])
def test_the_header_needs_nothing_before_it(tmp_path, name):
    unit = tmp_path / "unit.c"
    unit.write_text(f"#include <{name}>\nint unit = GW_QUANTITIES;\n")
    run("gcc", "-std=c11", *STRICT, f"-I{TOP}/include", "-c", unit, "-o", tmp_path / "unit.o")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    if not shutil.which("meson"):
        pytest.skip("no meson here")
    if not os.access(BUILD / "meson-logs", os.W_OK):
        pytest.skip("installing writes a log into the build folder, which is not ours")
    dest = tmp_path_factory.mktemp("dest")
    run("meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", dest,
        env={**os.environ, "DESTDIR": ""})
    return dest


def find(dest, name):
    found = sorted(dest.rglob(name))
    assert found, f"no {name} was installed"
    return found[0]


def test_install_brings_every_part(installed):
    for name in ("gpuward", "libgpuward.so", "libgpuward.so.0", "gpuward.h", "gpuward.pc",
                 "quantity.def", "libnvidia-ml.so.1"):
        find(installed, name)
    assert find(installed, "quantity.def").parent.name == "gpuward"


def test_what_was_installed_can_be_removed(tmp_path):
    """Another test may install from the same folder and replace the install log; then this test tries again."""
    if not shutil.which("meson") or not os.access(BUILD / "meson-logs", os.W_OK):
        pytest.skip("installing needs meson and a build folder that is ours")
    kept = tmp_path / "keep"
    for _ in range(5):
        run("meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", tmp_path,
            env={**os.environ, "DESTDIR": ""})
        (find(tmp_path, "GUARD.md").parent / "note").symlink_to(kept)  # not installed
        run(TOP / "tools" / "uninstall", BUILD)
        left = [p for p in tmp_path.rglob("*") if p.is_symlink() or not p.is_dir()]
        if len(left) == 1:
            break
        shutil.rmtree(tmp_path / "usr", ignore_errors=True)
    assert [p.name for p in left] == ["note"]
    assert [p.name for p in tmp_path.rglob("gpuward*")] == ["gpuward"]  # only the folder that has the note


@pytest.mark.skipif(not shutil.which("pkg-config"), reason="no pkg-config here")
def test_a_program_with_an_own_prefix_is_built_as_documented(installed, tmp_path):
    """Runs the lines of LIBRARY.md, with a prefix below the installation folder."""
    page = (TOP / "docs" / "LIBRARY.md").read_text()
    program = re.search(r"    #include <gpuward.h>\n.*?\n    }\n", page, re.S)[0]
    (tmp_path / "program.c").write_text(re.sub(r"(?m)^    ", "", program))
    lines = re.search(r"    make install PREFIX=\$HOME/gw\n(.*?)\n\n", page, re.S)[1]
    folder = find(installed, "libgpuward.so").parent
    assert "\n    ./program\n" in lines and folder.name in ("x86_64-linux-gnu", "lib", "lib64")
    lines = lines.replace("$HOME/gw/lib/x86_64-linux-gnu", str(folder))
    done = subprocess.run(["bash", "-ec", lines], cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT,
                          env={**os.environ, "PKG_CONFIG_SYSROOT_DIR": str(installed), "LD_LIBRARY_PATH": ""})
    assert done.returncode == 0 and len(re.findall(r"GPU [0-9]: [0-9.]+ J .*simulated", done.stdout)) >= 2, done


def test_licence_and_examples_are_installed(installed):
    doc = find(installed, "GUARD.md").parent
    assert (doc / "LICENSE").read_text() == (TOP / "LICENSE").read_text()
    for name in re.findall(r"`(examples/[a-z_.]+)`", (doc / "GUARD.md").read_text()):
        assert (doc / name).exists(), name


def test_the_simulator_is_not_installed_in_the_search_path_for_nvml(installed):
    assert find(installed, "libnvidia-ml.so.1").parent.name == "sim"


def test_no_test_or_internal_header_is_installed(installed):
    headers = {p.name for p in installed.rglob("*.h")}
    assert headers == {"gpuward.h", "gpuward-guard.h", "gpuward-sim.h"}


@pytest.mark.skipif(not shutil.which("scdoc"), reason="no scdoc here")
@pytest.mark.skipif(not list((TOP / "docs" / "man").glob("*.scd")), reason="no manual pages yet")
def test_manual_pages_are_installed(installed):
    find(installed, "gpuward.1*")


@plain
@pytest.mark.skipif(not shutil.which("pkg-config"), reason="no pkg-config here")
def test_pkg_config_is_enough_to_build_and_run(installed, tmp_path):
    pc = find(installed, "gpuward.pc")
    prefix = find(installed, "gpuward.h").parent.parent
    lib = find(installed, "libgpuward.so").parent
    env = environment(PKG_CONFIG_PATH=pc.parent)
    flags = run("pkg-config", f"--define-variable=prefix={prefix}", "--cflags", "--libs",
                "gpuward", env=env).split()
    program = tmp_path / "program"
    run("gcc", "-std=c11", *STRICT, SOURCE, *flags, f"-Wl,-rpath,{lib}", "-o", program)
    out = run(program, SIMULATOR, env=environment(GPUWARD_SIM="lost-gpu"))
    assert out == EXPECTED


@plain
@pytest.mark.skipif(not shutil.which("pkg-config"), reason="no pkg-config here")
@pytest.mark.parametrize("name", sorted(p.name for p in (TOP / "examples").glob("*.c")))
def test_pkg_config_is_enough_to_build_an_example(installed, tmp_path, name):
    pc = find(installed, "gpuward.pc")
    prefix = find(installed, "gpuward.h").parent.parent
    flags = run("pkg-config", f"--define-variable=prefix={prefix}", "--cflags", "--libs",
                "gpuward", env=environment(PKG_CONFIG_PATH=pc.parent)).split()
    run("gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", TOP / "examples" / name, *flags,
        *(["-lm"] if name == "window.c" else []), "-o", tmp_path / "program")


def test_the_installed_program_takes_its_simulator_from_the_environment(installed):
    program = next(p for p in installed.rglob("gpuward") if p.parent.name == "bin")
    sim = find(installed, "libnvidia-ml.so.1")
    done = gpuward("list", "--simulate=two-gpus", "--json", program=program,
                   env=environment(GPUWARD_SIM_LIBRARY=sim))
    assert done.returncode == OK
    doc = json.loads(done.stdout)
    assert doc["count"] == 2
    assert doc["source"]["nvml_library"] == str(sim)


@plain
@pytest.mark.skipif(not shutil.which("abidw"), reason="no libabigail here")
def test_a_change_of_the_abi_is_noticed(tmp_path):
    changes = {
        "a member of a struct": ("libgpuward.abi", r"var-decl name='anchor_ratio'", "var-decl name='anchor'"),
        "a size of a struct": ("libgpuward.abi", r"(class-decl name='gw_energy' size-in-bits)='\d+'", r"\1='64'"),
        "a number of an enum": ("numbers", r"^GW_E_STATE 12$", "GW_E_STATE 13"),
        "a function": ("libgpuward.abi", r"elf-symbol name='gw_version'", "elf-symbol name='gw_edition'"),
    }
    for what, (name, old, new) in changes.items():
        for path in (TOP / "tests" / "abi" / "libgpuward.abi", TOP / "tests" / "abi" / "numbers"):
            shutil.copy(path, tmp_path)
        changed, count = re.subn(old, new, (tmp_path / name).read_text(), flags=re.M)
        assert count, what
        (tmp_path / name).write_text(changed)
        done = subprocess.run([TOP / "tests" / "abi" / "library", LIBRARY], capture_output=True, text=True,
                              env=environment(GPUWARD_ABI=tmp_path))
        assert done.returncode == 1 and "CONTRIBUTING.md" in done.stdout, what
