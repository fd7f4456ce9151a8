"""The schemas in docs/schema are themselves in order, and notice what they should."""
import copy
import json
import subprocess
import sys

import jsonschema
import pytest

from support import COMMANDS, SCHEMAS, TOP, check, document, load, validator


@pytest.mark.parametrize("path", sorted(SCHEMAS.glob("*.json")), ids=lambda p: p.name)
def test_every_schema_is_one(path):
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
    "a reason that is none": lambda d: d["devices"][0]["absent"].update(fan_speed_ratio="shy"),
    "a placeholder": lambda d: d["devices"][0].update(power_watts=4294967.295),
    "a number as text": lambda d: d["devices"][0].update(power_watts="70 W"),
    "an unknown key": lambda d: d["devices"][0].update(power_wats=1.0),
    "an unknown key of the host": lambda d: d["host"].update(cpu=1),
    "an unknown provenance": lambda d: d["devices"][0].update(provenance="guess"),
}


@pytest.mark.parametrize("damage", BROKEN)
def test_the_checks_of_these_tests_notice(damage, good):
    check("snapshot", good)
    bad = copy.deepcopy(good)
    BROKEN[damage](bad)
    with pytest.raises((jsonschema.ValidationError, AssertionError)):
        check("snapshot", bad)


@pytest.mark.parametrize("command", COMMANDS)
def test_programs_must_bear_keys_that_come_later(command):
    doc = document(command, "--simulate")
    doc["later"] = 1
    validator(command).validate(doc)
    assert load(command + ".json")["title"].startswith(f"gpuward {command}")
