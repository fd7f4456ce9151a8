"""Makes the examples of /openapi.json from real answers. Facts about the machine that answered are replaced, so that an
example does not depend on the machine.

    GPUWARD_EXAMPLES=DIR build/tests/unit/test_openapi && tests/e2e/api_examples.py DIR
"""
import json
import pathlib
import sys

EXAMPLES = pathlib.Path(__file__).resolve().parent.parent.parent / "docs/schema/examples"
FIXED = {  # values of these keys in the object with this name
    "source": {"nvml_library": "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"},
    "cpu": {"model": "AMD EPYC 9454 48-Core Processor", "cores": 48, "threads": 96},
    "ram": {"total_bytes": 811000000000},
    "host": {
        "hostname": "node1", "kernel": "6.1.0-18-amd64", "container": "none",
        "virtual_machine": "none", "boot_id": "3e1b2f0a-6f0c-4c1e-9a57-0d2d5a1f7c11",
        "uptime_seconds": 86400.0, "cpu_online_cores": 96, "load_average_1m": 1.5,
        "ram_total_bytes": 811000000000, "ram_used_bytes": 61000000000,
        "ram_available_bytes": 750000000000,
    },
}
SELF = {
    "cpu_seconds": 181.4, "cpu_mean_ratio": 0.0021, "rss_bytes": 7340032, "rss_peak_bytes": 7864320,
    "threads": 5, "descriptors": 21, "wakeups": 259200, "ticks": 86400, "tick_seconds": 0.0011,
    "tick_max_seconds": 0.0042,
    "calls": [{"name": "nvmlDeviceGetFieldValues", "count": 86400, "errors": 0,
               "seconds_total": 35.4, "seconds_max": 0.0012}],
}


def tidy(value, name=""):
    if isinstance(value, list):
        return [tidy(v) for v in value]
    if not isinstance(value, dict):
        return value
    fixed = FIXED.get(name, {})
    return {k: fixed[k] if k in fixed and v is not None else tidy(v, k) for k, v in value.items()}


def main(directory):
    for path in sorted(pathlib.Path(directory).iterdir()):
        text = path.read_text()
        if path.suffix == ".json":
            doc = tidy(json.loads(text))
            if path.stem == "getSelf":
                doc.update(SELF)
            text = json.dumps(doc, indent=1, ensure_ascii=False) + "\n"
        (EXAMPLES / path.name).write_text(text)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
