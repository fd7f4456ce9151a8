"""Tests gpuward log on the simulator: its lines, and every way in which it ends."""
import csv
import datetime
import io
import json
import os
import re
import signal
import subprocess
import time

import jsonschema
import pytest

from service import Service
from support import FAILED, NO_GPU, OK, PARTIAL, PROGRAM, TIMEOUT, USAGE, environment, gpuward, on_terminal, validator
from test_terminal import ESCAPE
from worker import Fault

IDLE = "--simulate=idle-h200"
BRIEF = ("-i", "20ms", "-d", "400ms")
HEADING = (
    "time_utc,elapsed_seconds,device_index,power_watts,power_average_watts,power_instant_watts,"
    "temperature_gpu_celsius,utilization_gpu_ratio,memory_used_bytes,clock_sm_hertz,"
    "clock_event_reasons,missed,provenance"
)


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


def accounted(lines):
    """Returns the number of ticks in these lines, including those that the lines count as missed."""
    return len(lines) + sum(int(l["missed"]) for l in lines)


def test_the_summary_is_available_as_json(tmp_path):
    path = tmp_path / "summary.json"
    done = gpuward("log", "--simulate=two-gpus", *BRIEF, "--summary", path)
    doc = json.loads(path.read_text())
    validator("log-summary").validate(doc)
    assert doc["kind"] == "log-summary" and doc["simulated"] is True
    assert [d["device_index"] for d in doc["devices"]] == [0, 1]
    for d in doc["devices"]:  # the text for people has the same figures
        assert f'GPU {d["device_index"]}: {d["lines"]["collected"]} of {d["lines"]["expected"]} samples' in done.stderr
        assert f'mean {d["line_power_watts"]["mean"]:.2f} W' in done.stderr
        assert f'{d["energy_joules"]["best"]:.1f} J' in done.stderr
    again = gpuward("log", IDLE, *BRIEF, "--summary", path, "-q")  # the file is replaced, also if no text is printed
    assert again.stderr == "" and len(json.loads(path.read_text())["devices"]) == 1
    # The summary goes to standard output if the lines go to a file.
    done = gpuward("log", IDLE, *BRIEF, "-o", tmp_path / "lines.csv", "--summary", "-", "--gco2-per-kwh=380")
    validator("log-summary").validate(json.loads(done.stdout))
    device, = json.loads(done.stdout)["devices"]
    grams = 380 * device["energy_joules"]["best"] / 3.6e6
    assert device["cost"]["co2_grams"]["best"] == pytest.approx(grams) and device["cost"]["price"] is None
    assert re.search(r"\n  cost      [\d.]+ kWh, [\d.]+ g CO2\n", done.stderr)
    assert "cost" not in gpuward("log", IDLE, *BRIEF).stderr
    done = gpuward("log", IDLE, *BRIEF, "--summary", "-")
    assert done.returncode == USAGE and "write the lines to a file with -o" in done.stderr
    done = gpuward("log", IDLE, *BRIEF, "--summary", tmp_path / "none" / "x")
    assert done.returncode == 1 and "--summary" in done.stderr


def test_a_summary_to_the_file_of_the_log_is_refused(tmp_path):
    path, other = tmp_path / "p.csv", tmp_path / "other.csv"
    other.symlink_to(path)
    for name in path, f"{tmp_path}/./p.csv", other:
        done = gpuward("log", IDLE, *BRIEF, "-o", path, "--summary", name)
        assert done.returncode == USAGE and "is also the output of the log" in done.stderr
        assert not path.exists()
    path.write_text("precious")
    for option in "--append", "--force":
        done = gpuward("log", IDLE, *BRIEF, "-o", path, "--summary", other, option)
        assert done.returncode == USAGE and path.read_text() == "precious"
    with open(path, "a") as out:
        done = gpuward("log", IDLE, *BRIEF, "--summary", path, stdout=out, capture_output=False)
    assert done.returncode == USAGE and path.read_text() == "precious"
    assert gpuward("log", IDLE, *BRIEF, "-o", "/dev/null", "--summary", "/dev/null").returncode == OK


def test_csv_has_a_heading_and_a_line_for_each_gpu_and_tick():
    done = gpuward("log", "--simulate=two-gpus", *BRIEF)
    assert done.returncode == OK
    assert done.stdout.splitlines()[0] == HEADING
    lines = rows(done.stdout)
    for index in "01":
        own = [l for l in lines if l["device_index"] == index]
        assert 20 <= accounted(own) <= 22
        at = [float(l["elapsed_seconds"]) for l in own]
        assert at == sorted(at) and at[0] >= 0
    for l in lines:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", l["time_utc"])
        assert float(l["power_watts"]) > 0
    assert f"GPU 0: {len([l for l in lines if l['device_index'] == '0'])} of 20 samples" in done.stderr


def test_json_lines_follow_the_schema():
    done = gpuward("log", IDLE, *BRIEF, "--format=jsonl")
    lines = [json.loads(l) for l in done.stdout.splitlines()]
    assert 20 <= accounted(lines) <= 22
    for l in lines:
        validator("log").validate(l)
    assert lines[0]["device_uuid"].startswith("GPU-")
    assert lines[0]["clock_event_reasons"] == ["idle"]
    broken = dict(lines[0], power_watts="80 W")
    with pytest.raises(jsonschema.ValidationError):
        validator("log").validate(broken)
    assert gpuward("log", IDLE, *BRIEF, "--json").stdout[0] == "{"


def test_every_line_and_the_summary_are_marked_as_simulated():
    done = gpuward("log", IDLE, *BRIEF)
    assert {l["provenance"] for l in rows(done.stdout)} == {"simulated"}
    assert done.stderr.count(" SIMULATED ") == 1
    done = gpuward("log", IDLE, *BRIEF, "--json", "-q")
    assert {json.loads(l)["provenance"] for l in done.stdout.splitlines()} == {"simulated"}
    assert done.stderr == ""


def test_lines_of_a_tick_stand_in_the_order_of_the_gpus():
    """gpuward does not wait for a GPU that is more than 100 ms late.  Only lines of older ticks may come after a line."""
    argv = [str(PROGRAM), "log", "--simulate=eight-gpus", "-i", "20ms", "-d", "1s"]
    with subprocess.Popen(argv, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as p:
        came = [(line, time.time()) for line in p.stdout]
    lines = rows("".join(line for line, _ in came))
    ticks, order, utc = [0] * 8, [], []
    for l, (_, now) in zip(lines, came[1:]):
        index = int(l["device_index"])
        ticks[index] += 1 + int(l["missed"])
        overtook = [t for t, key in zip(utc, order) if key > (ticks[index], index)]
        assert not overtook or now - max(overtook) > 0.098, (l, came)
        order.append((ticks[index], index))
        utc.append(datetime.datetime.fromisoformat(l["time_utc"].replace("Z", "+00:00")).timestamp())
    assert len(order) > 100


def test_unknown_values_are_empty_or_null_and_no_reasons_are_none(scenario):
    world = scenario('[[gpu]]\nprofile = "h200"\n[gpu.sensor]\nno_average = true\n'
                     '[[fault]]\ncall = "nvmlDeviceGetTemperature"\ncode = 3\n'
                     '[[fault]]\ncall = "nvmlDeviceGetTemperatureV"\ncode = 3\n'
                     '[[fault]]\ncall = "nvmlDeviceGetCurrentClocksEventReasons"\nvalue = 0\n')
    line = rows(gpuward("log", world, *BRIEF).stdout)[0]
    assert line["temperature_gpu_celsius"] == ""
    assert line["clock_event_reasons"] == "none"
    line = json.loads(gpuward("log", world, *BRIEF, "--json").stdout.splitlines()[0])
    assert line["temperature_gpu_celsius"] is None
    assert line["clock_event_reasons"] == []


def test_several_reasons_are_quoted(scenario):
    world = scenario('[[gpu]]\nprofile = "h200"\n'
                     '[[fault]]\ncall = "nvmlDeviceGetCurrentClocksEventReasons"\nvalue = 36\n')
    done = gpuward("log", world, *BRIEF, "--fields=clock_event_reasons,missed")
    assert done.stdout.splitlines()[1] == '"sw_power_cap,sw_thermal",0'
    assert rows(done.stdout)[0]["clock_event_reasons"] == "sw_power_cap,sw_thermal"


def test_fields_are_those_that_were_named_in_that_order():
    out = gpuward("log", IDLE, *BRIEF, "--fields=power_watts,device_uuid", "--fields=missed").stdout
    assert out.splitlines()[0] == "power_watts,device_uuid,missed"
    assert set(rows(out)[0]) == {"power_watts", "device_uuid", "missed"}


@pytest.mark.parametrize(
    "args,words",
    [
        (["--fields=power_wats"], "did you mean 'power_watts'?"),
        (["--fields=nothing_like_it"], "the fields are time_utc, elapsed_seconds"),
        (["--fields=missed,missed"], "given twice"),
        (["-i", "10us"], "at least 1ms"),
        (["-i", "1s", "-d", "100ms"], "shorter than the interval"),
        (["--force", "--append"], "exclude each other"),
        (["--json", "--format=csv"], "exclude each other"),
        (["--format=xml"], "xml"),
    ],
)
def test_wrong_usage(args, words):
    done = gpuward("log", IDLE, *args)
    assert done.returncode == USAGE
    assert words in done.stderr


def test_only_the_selected_gpu_is_logged():
    done = gpuward("log", "--simulate=two-gpus", *BRIEF, "--gpu=1")
    assert {l["device_index"] for l in rows(done.stdout)} == {"1"}
    assert "GPU 1: " in done.stderr and "GPU 0: " not in done.stderr


def test_no_gpu_is_reported(bare):
    done = gpuward("log", *bare)
    assert (done.returncode, done.stdout) == (NO_GPU, "")
    assert "no GPU to log" in done.stderr


def test_the_summary_agrees_with_the_lines_and_with_the_load(scenario):
    world = scenario('[time]\nbegin = 20\n[[gpu]]\nprofile = "h200"\n'
                     '[[gpu.load]]\nkind = "constant"\nlevel = 0.5\n')
    done = gpuward("log", world, "-i", "50ms", "-d", "2s")
    power = [float(l["power_watts"]) for l in rows(done.stdout)]
    mean, low, high = map(float, re.search(
        r"mean ([\d.]+) W, s.d. [\d.]+ W, ([\d.]+) to ([\d.]+) W", done.stderr).groups())
    assert abs(mean - sum(power) / len(power)) < 0.01 * mean
    assert abs(low - min(power)) < 0.01 and abs(high - max(power)) < 0.01
    best, least, most, seconds = map(float, re.search(
        r"energy +([\d.]+) J \(([\d.]+) to ([\d.]+) J\) in ([\d.]+) s", done.stderr).groups())
    assert least < best < most and seconds > 1.5  # a busy machine begins or ends the log late
    assert abs(best / seconds - mean) < 0.05 * mean
    assert "throttle  none" in done.stderr


def test_the_summary_names_what_held_the_clocks_back(scenario):
    world = scenario('[time]\nbegin = 20\n[[gpu]]\nprofile = "h200"\nlimit_w = 400\n'
                     '[[gpu.load]]\nkind = "constant"\nlevel = 1\n')
    done = gpuward("log", world, "-d", "1.5s")
    assert re.search(r"throttle .*power_cap [\d.]+ s", done.stderr)


def test_quiet_prints_nothing_to_stderr():
    done = gpuward("log", IDLE, *BRIEF, "-q")
    assert done.stderr == "" and done.returncode == OK


def test_one_line_each_hundred_samples_where_there_is_no_terminal():
    done = gpuward("log", IDLE, "-i", "2ms", "-d", "600ms")
    collected = int(re.search(r"GPU 0: (\d+) of 300 samples", done.stderr)[1])
    said = len(re.findall(r"^gpuward: \d+ of 300 samples", done.stderr, re.M))
    assert collected // 100 - 1 <= said <= collected // 100, done.stderr


def test_a_terminal_sees_a_bar_when_the_lines_go_elsewhere(tmp_path):
    out, code = on_terminal(100, "log", IDLE, "-d", "1s", "-o", tmp_path / "a.csv")
    assert code == OK
    assert re.search(r"\[#*\.*\] \d+ of 10 samples  [\d.]+ W  [\d.]+ s", ESCAPE.sub("", out))
    assert re.search(r"GPU 0: \d+ of 10 samples", out)
    out, _ = on_terminal(200, "log", IDLE, *BRIEF)
    assert "[#" not in out and HEADING in out


def test_a_file_that_is_there_is_left_alone(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("precious")
    done = gpuward("log", IDLE, *BRIEF, "-o", path)
    assert done.returncode == FAILED
    assert "already exists; --append adds to it, --force replaces it" in done.stderr
    assert path.read_text() == "precious"
    assert gpuward("log", IDLE, *BRIEF, "-o", path, "--force").returncode == OK
    assert path.read_text().splitlines()[0] == HEADING


def test_append_adds_lines_without_a_second_heading(tmp_path):
    path = tmp_path / "log.csv"
    for _ in range(2):
        assert gpuward("log", IDLE, *BRIEF, "-o", path, "--append").returncode == OK
    text = path.read_text()
    assert text.count("time_utc") == 1
    assert accounted(rows(text)) >= 40
    done = gpuward("log", IDLE, *BRIEF, "-o", path, "--append", "--fields=missed")
    assert done.returncode == FAILED and "has other columns" in done.stderr
    assert path.read_text() == text


def test_append_refuses_json_lines_in_a_file_with_other_text(tmp_path):
    path = tmp_path / "log.csv"
    assert gpuward("log", IDLE, *BRIEF, "-o", path).returncode == OK
    for text in path.read_text(), "notes of today\n", "\n{}\n":
        path.write_text(text)
        done = gpuward("log", IDLE, *BRIEF, "-o", path, "--append", "--format=jsonl")
        assert done.returncode == FAILED and "does not contain JSON lines" in done.stderr
        assert path.read_text() == text
    path.write_text("")
    for _ in range(2):
        assert gpuward("log", IDLE, *BRIEF, "-o", path, "--append", "--json").returncode == OK
    assert all(json.loads(line) for line in path.read_text().splitlines())


@pytest.mark.parametrize("cut", [1, 10])
def test_append_begins_a_new_line_after_an_incomplete_one(tmp_path, cut):
    path = tmp_path / "log.csv"
    for options in ["--force"], ["--force", "--format=jsonl"]:
        assert gpuward("log", IDLE, *BRIEF, "-o", path, *options).returncode == OK
        before = path.read_text()[:-cut]
        path.write_text(before)
        assert gpuward("log", IDLE, *BRIEF, "-o", path, "--append", *options[1:]).returncode == OK
        text = path.read_text()
        assert text.startswith(before + "\n")
        added = text[len(before) + 1:].splitlines()
        whole = before.splitlines()[0]
        assert len(added) > 5 and len({l.count(",") for l in [whole, *added]}) == 1


def test_append_closes_the_quotes_of_an_incomplete_line(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text('device_index,clock_event_reasons\n0,none\n0,"sw_power_cap,hw_sl')
    assert gpuward("log", IDLE, *BRIEF, "-o", path, "--append",
                   "--fields=device_index,clock_event_reasons").returncode == OK
    lines = rows(path.read_text())
    assert lines[1]["clock_event_reasons"] == "sw_power_cap,hw_sl" and len(lines) > 5
    assert {l["clock_event_reasons"] for l in lines[2:]} <= {"none", "idle"}


@pytest.mark.parametrize("args, says", [
    (["no/log.csv"], "No such file"),
    (["/dev/full", "--force"], "cannot write /dev/full: No space left on device"),
])
def test_a_file_that_cannot_be_opened_or_written_is_reported(tmp_path, args, says):
    done = gpuward("log", IDLE, *BRIEF, "-o", tmp_path / args[0], *args[1:])
    assert done.returncode == FAILED and says in done.stderr


def test_a_disk_that_fills_up_ends_it_with_its_summary(tmp_path):
    command = f'ulimit -f 8; trap "" XFSZ; exec "{PROGRAM}" log {IDLE} -i 2ms -d 20s -o "{tmp_path}/l.csv"'
    done = subprocess.run(["bash", "-c", command], env=environment(), capture_output=True,
                          text=True, timeout=TIMEOUT)
    assert done.returncode == FAILED
    assert "cannot write" in done.stderr and "File too large" in done.stderr
    assert "GPU 0: " in done.stderr and "energy" in done.stderr


def test_a_reader_that_goes_ends_it_quietly():
    command = f'"{PROGRAM}" log {IDLE} -i 10ms | head -2; echo "${{PIPESTATUS[0]}}"'
    done = subprocess.run(["bash", "-c", command], env=environment(), capture_output=True,
                          text=True, timeout=TIMEOUT)
    assert done.stdout.splitlines()[0] == HEADING
    assert done.stdout.splitlines()[-1] == "0"
    assert done.stderr == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_with_whole_lines_and_a_summary(number):
    p = subprocess.Popen([str(PROGRAM), "log", IDLE, "-i", "20ms"], env=environment(),
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for _ in range(5):
        p.stdout.readline()
    p.send_signal(number)
    out, err = p.communicate(timeout=TIMEOUT)
    assert p.returncode == OK
    assert out == "" or out.endswith("\n")
    got, expected = map(int, re.search(r"GPU 0: (\d+) of (\d+) samples", err).groups())
    assert 4 <= got <= expected


def test_lines_come_one_by_one():
    p = subprocess.Popen([str(PROGRAM), "log", IDLE, "-i", "100ms"], env=environment(),
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert p.stdout.readline().decode().strip() == HEADING
    first = os.read(p.stdout.fileno(), 65536)
    assert first.count(b"\n") <= 2 and first.endswith(b"\n")
    p.terminate()
    p.wait(TIMEOUT)


def test_a_slow_reader_costs_lines_and_not_samples():
    p = subprocess.Popen([str(PROGRAM), "log", IDLE, "-i", "1ms", "-d", "1m"], env=environment(),
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while "the program that reads the log is too slow" not in p.stderr.readline():
        assert p.poll() is None
    out = [p.stdout.readline()]
    while out[-1] == out[0] or rows(out[0] + out[-1])[0]["missed"] == "0":
        out.append(p.stdout.readline())
    p.terminate()  # there are lines again, and the first one counts those that are missing
    rest, err = p.stdout.read(), p.stderr.read()
    assert p.wait(TIMEOUT) == OK
    left_out = int(re.search(r"(\d+) lines dropped: the program that reads the log was too slow", err).group(1))
    collected = int(re.search(r"GPU 0: (\d+) of \d+ samples", err).group(1))
    lines = rows("".join(out) + rest)
    assert left_out > 0
    assert collected == len(lines) + left_out
    assert sum(int(l["missed"]) for l in lines) >= left_out


def test_a_reader_that_never_reads_does_not_hold_it():
    p = subprocess.Popen([str(PROGRAM), "log", IDLE, "-i", "1ms", "-d", "1s"], env=environment(), pipesize=4096,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    err = p.stderr.read()  # until gpuward has ended
    assert p.wait(TIMEOUT) == OK
    assert "lines dropped" in err
    p.stdout.close()


def log_until(fault, scenario, *args):
    """Logs for two seconds; the fault begins after some lines.  Returns the exit code and the summary."""
    world = scenario('[[gpu]]\nprofile = "h100"\n' + fault.text)
    p = subprocess.Popen([str(PROGRAM), "log", world, "-i", "50ms", "-d", "2s", *args], env=environment(),
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for _ in range(6):
        assert p.stdout.readline()
    with fault:
        err = p.communicate(timeout=TIMEOUT)[1]
    return p.returncode, err


def test_a_gpu_that_is_lost_is_partial(scenario, tmp_path):
    code, err = log_until(Fault(tmp_path, "code = 15", "*"), scenario)
    assert code == PARTIAL
    got, missed = map(int, re.search(r"GPU 0: (\d+) of 40 samples, (\d+) missed", err).groups())
    assert 0 < got < 40 and got + missed == 40
    assert "gpu-lost" in err


def test_a_driver_that_hangs_does_not_hang_it(scenario, tmp_path):
    hang = Fault(tmp_path, "hang = true", "nvmlDeviceGetUtilizationRates")
    code, err = log_until(hang, scenario, "--timeout=200ms")
    assert code == PARTIAL
    got, missed, gap = re.search(r"GPU 0: (\d+) of 40 samples, (\d+) missed, largest gap ([\d.]+) s", err).groups()
    assert 0 < int(got) < 40 and int(got) + int(missed) == 40
    assert float(gap) > 0.3
    assert "truncated" in err


# An nvidia-smi with one GPU of 100 W.  Each start adds a line to the file `starts`.  With -lms it prints lines for `silent` seconds.
FAKE_SMI = """\
#!/usr/bin/python3
import datetime, sys, time
with open({starts!r}, "a") as f:
    f.write(" ".join(sys.argv[1:]) + "\\n")
columns = sys.argv[1].partition("=")[2].split(",")
known = dict(index="0", uuid="GPU-00000000-1111-2222-3333-444444444444", name="NVIDIA H200", driver_version="580.1")
known.update({{"pci.bus_id": "00000000:01:00.0", "memory.total": "143771", "temperature.gpu": "30", "pstate": "P0"}})
def row():
    now = datetime.datetime.now(datetime.timezone.utc)
    known["timestamp"] = now.strftime("%Y/%m/%d %H:%M:%S.") + f"{{now.microsecond // 1000:03d}}"
    print(", ".join("100.00" if c.startswith("power.draw") else known.get(c, "[N/A]") for c in columns), flush=True)
begin, n = time.monotonic(), 0
known["memory.used"] = "1000"
row()
while "-lms" in sys.argv:
    n += 1
    time.sleep(max(0, begin + n / 10 - time.monotonic()))
    known["memory.used"] = str(1000 + n * {growth})  # MiB
    if n / 10 < {silent}:
        row()
"""


def fake_smi(tmp_path, silent=1000, growth=0):
    """Returns a PATH with such an nvidia-smi, and the file that records its starts."""
    starts, program = tmp_path / "starts", tmp_path / "bin/nvidia-smi"
    program.parent.mkdir()
    program.write_text(FAKE_SMI.format(starts=str(starts), silent=silent, growth=growth))
    program.chmod(0o755)
    return f"{program.parent}:/usr/bin:/bin", starts


@pytest.fixture
def smi(tmp_path):
    """Runs gpuward log with such an nvidia-smi.  Returns the summary as text and JSON, and the starts of nvidia-smi."""
    def run(seconds, silent):
        path, starts = fake_smi(tmp_path, silent)
        summary = tmp_path / "summary.json"
        done = gpuward("log", "--backend=nvidia-smi", "-d", f"{seconds}s", "--summary", summary, env=environment(PATH=path))
        assert done.returncode == OK, done.stderr
        return done.stderr, json.loads(summary.read_text()), starts.read_text().splitlines()
    return run


def test_a_working_nvidia_smi_is_not_started_for_every_line(smi):
    text, doc, starts = smi(5, silent=1000)
    assert sum("-lms" in s for s in starts) == 1
    assert len(starts) <= 15, starts  # 65 if each line needed a start; on a busy machine the first line of the stream is late
    validator("log-summary").validate(doc)
    assert re.search(r"nvidia-smi used [\d.]+ s of CPU time: [\d.]+ % of one core", text)
    assert doc["nvidia_smi_cpu_seconds"] > 0


def test_after_nvidia_smi_fell_silent_the_summary_agrees_with_itself(smi):
    text, doc, starts = smi(5, silent=1.5)
    lines, energy = (float(w) for w in re.findall(r"mean ([\d.]+) W", text))
    assert lines == 100 and abs(energy - 100) < 5, text


@pytest.mark.parametrize("growth,period_s", [(0, 10), (1, 2)], ids=["same-memory", "growing-memory"])
@pytest.mark.deep
def test_a_service_that_is_polled_starts_nvidia_smi_rarely(tmp_path, growth, period_s):
    """Power and utilisation come from one process; the list of processes is read every 10 s, or every 2 s if memory changes."""
    path, starts = fake_smi(tmp_path, growth=growth)
    with Service(None, "--backend", "nvidia-smi", env={"PATH": path}, simulate=False) as s:
        s.wait(lambda: s.get("/api/v1/self").json()["nvidia_smi"]["stream_cpu_seconds"] > 0)
        s.ticks(2)
        began, before = time.monotonic(), len(starts.read_text().splitlines())
        s.ticks(12)  # sends requests all the time
        new = starts.read_text().splitlines()[before:]
        elapsed = time.monotonic() - began
        lists = sum("--query-compute-apps" in line for line in new)
        assert lists <= 1 + elapsed / period_s, new
        assert len(new) - lists <= 2 + elapsed / 5, new  # health and limits, every 10 s


def test_the_service_reports_the_cost_of_nvidia_smi(tmp_path):
    path, starts = fake_smi(tmp_path)
    with Service(None, "--backend", "nvidia-smi", env={"PATH": path}, simulate=False) as s:
        cost = lambda: s.get("/api/v1/self").json()["nvidia_smi"]
        s.wait(lambda: cost() and cost()["stream_cpu_seconds"] > 0)
        s.ticks(4)
        assert cost()["starts"] >= 3 and cost()["run_seconds"] > 0 and cost()["stream_stalls"] == 0
        assert abs(cost()["starts"] - len(starts.read_text().splitlines())) <= 2
    with Service("two-gpus") as s:
        assert s.get("/api/v1/self").json()["nvidia_smi"] is None
