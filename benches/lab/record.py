"""The common form of bench results: JSON Lines, a row for each contender at each point. Needs only Python.

benches/README.md lists the fields; fields that `kgen bench --format json` has too (docs/bench.md) have the same names.
"""

import json
import math
import os
import re
import subprocess
import sys
import time
import uuid
from pathlib import Path

FORMAT = 1
STATUSES = ("ok", "wrong", "refused", "error", "absent")
FIELDS = {
    "format": int, "bench": str, "case": str, "contender": str, "own": bool, "shape": dict, "dtype": (str, type(None)),
    "layout": (str, type(None)), "status": str, "message": str, "numbers": (dict, type(None)), "card": dict,
    "details": dict, "run": dict,
}
ROOT = Path(__file__).resolve().parents[2]
# Dense 16-bit FLOPs per clock and multiprocessor, as in src/bench/ceiling.rs, which cites the sources; FP8 twice that.
FLOPS_A_CLOCK = {
    75: 1024, 80: 2048, 86: 1024, 87: 2048, 89: 1024, 90: 4096, 100: 8192, 103: 8192, 110: 8192, 120: 1024, 121: 1024,
}


def _ask(*command):
    """A command's output; empty if it fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, cwd=ROOT).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def _nvidia_smi(*fields):
    words = _ask("nvidia-smi", f"--query-gpu={','.join(fields)}",
        "--format=csv,noheader,nounits").partition("\n")[0].split(", ")
    return words if len(words) == len(fields) else [""] * len(fields)


def _number(word):
    try:
        return float(word)
    except ValueError:
        return None


def card_state():
    """Current clock, temperature and power of the first card; None if they cannot be read."""
    return dict(zip(("sm_clock_mhz", "temperature_c", "power_w"),
        map(_number, _nvidia_smi("clocks.sm", "temperature.gpu", "power.draw"))))


def circumstances(gpu=True, **more):
    """Data of a run, repeated in each of its rows: card, driver, versions, commit, date and command."""
    manifest = ROOT / "Cargo.toml"  # absent if only the benches were copied to a GPU machine
    version = re.search(r'^version = "(.+?)"', manifest.read_text() if manifest.is_file() else "", re.M)
    run = {
        "id": uuid.uuid4().hex, "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": ["python3", *sys.argv],
        "kgen": version and version[1],
        "commit": os.environ.get("KGEN_COMMIT") or _ask("git", "rev-parse", "--short=12", "HEAD") or None,
        "gpu": None, "driver": None, "torch": None, "cuda": None, "cudnn": None, "ceiling": {}, **more,
    }
    if gpu:
        import torch

        card = torch.cuda.get_device_properties(0)
        capability = 10 * card.major + card.minor
        driver, sm_mhz, memory_mhz = _nvidia_smi("driver_version", "clocks.max.sm", "clocks.max.mem")
        bus = getattr(card, "memory_bus_width", None)
        flops, sm_mhz, memory_mhz = FLOPS_A_CLOCK.get(capability), _number(sm_mhz), _number(memory_mhz)
        peak = flops * card.multi_processor_count * sm_mhz / 1e6 if flops and sm_mhz else None
        run |= {
            "gpu": {
                "name": card.name, "compute_capability": capability, "multiprocessors": card.multi_processor_count,
                "l2_bytes": card.L2_cache_size,
            },
            "driver": driver or None, "torch": torch.__version__, "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
            "ceiling": {
                "tflops_16_bit": peak, "tflops_fp8": peak and 2 * peak,
                "memory_gbs": 2 * memory_mhz * bus / 8 / 1e3 if memory_mhz and bus else None,
            },
        }
    return run


def finite(value):
    """The value in a form that JSON supports: NaN and infinities become null, other objects text."""
    if isinstance(value, dict):
        return {str(key): finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(inner) for inner in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (str, int)) else str(value)


def complaints(row):
    """Errors in the form of a row, as texts."""
    found = [f"`{name}` is missing" for name in FIELDS if name not in row] + [f"`{name}` is unknown" for name in row
        if name not in FIELDS]
    found += [f"`{name}` is of the wrong type" for name, kind in FIELDS.items()
        if name in row and not isinstance(row[name], kind)]
    if not found and row["format"] != FORMAT:
        found.append(f"`format` is {row['format']}, {FORMAT} is known")
    if not found and row["status"] not in STATUSES:
        found.append(f"`status` is `{row['status']}`, not one of {', '.join(STATUSES)}")
    if not found and (row["status"] == "ok") != (row["numbers"] is not None):
        found.append("`numbers` belong to the status `ok` and to no other")
    return found


class Writer:
    """Appends rows to a file as they are produced, so that an interrupted run keeps them; without a path, writes
    nothing."""

    def __init__(self, path):
        self.path = Path(path) if path else None
        if self.path:
            self.path.write_text("")

    def write(self, row):
        row = finite(row)
        if found := complaints(row):
            raise ValueError(f"row of {row.get('bench')}: {'; '.join(found)}")
        if self.path:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row, allow_nan=False) + "\n")
        return row


def read(path):
    """The rows of a file; refuses files of another form."""
    rows = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        try:
            found = complaints(row := json.loads(line))
        except (ValueError, TypeError):
            found = ["no row of JSON"]
        if found:
            raise SystemExit(f"{path}:{number}: {'; '.join(found)} (was it written by this version's benches?)")
        rows.append(row)
    return rows
