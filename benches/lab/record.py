"""Rows of kgen's store of measurements (docs/lab.md), as JSON Lines: one for each contender at each point. Needs only
Python."""

import atexit
import hashlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
import uuid
from pathlib import Path

FORMAT = 1
STATUSES = ("ok", "wrong", "refused", "error", "absent", "timeout", "crash", "spilled", "truncated")
FIELDS = {
    "format": int, "bench": str, "case": str, "contender": str, "own": bool, "shape": dict, "dtype": (str, type(None)),
    "layout": (str, type(None)), "status": str, "message": str, "numbers": (dict, type(None)), "card": dict,
    "details": dict, "run": dict,
}
OPTIONAL = {"kernel": dict, "foreign": str}
TIMED = ("kgen bench", "kgen tune")  # programs whose results are times
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
    package = ROOT / "Cargo.toml"  # absent if only the benches were copied to a GPU machine
    version = re.search(r'^version = "(.+?)"', package.read_text() if package.is_file() else "", re.M)
    run = {
        "id": uuid.uuid4().hex, "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": ["python3", *sys.argv], "process": os.getpid(), "harness": harness(),
        "kgen": version and version[1],
        "commit": os.environ.get("KGEN_COMMIT") or _ask("git", "rev-parse", "--short=12", "HEAD") or None,
        "gpu": None, "driver": None, "torch": None, "cuda": None, "cudnn": None, "ceiling": {},
        "card_before": card_state() if gpu else {}, **more,
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


def harness():
    """SHA-256 of the running program and of this package."""
    digest = hashlib.sha256()
    for path in [Path(sys.argv[0]), *sorted(Path(__file__).parent.glob("*.py"))]:
        digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.hexdigest()


def kernels(library):
    """{name: facts} of the kernels of a library, from the manifest that `kgen build` writes beside it: registers,
    spills, machine code, compiler and flags. Empty if there is none."""
    path = Path(library).with_name("manifest.json")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        flags = {target: group["flags"] for target, group in manifest["targets"].items()}
        of_all = {"nvcc": manifest["nvcc"], "host_compiler": manifest["host_compiler"]}
        return {entry["name"]: {**entry, **of_all, "flags": flags.get(entry["target"])}
            for entry in manifest["variants"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


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
    known = FIELDS | OPTIONAL
    found = [f"`{name}` is missing" for name in FIELDS if name not in row] + [f"`{name}` is unknown" for name in row
        if name not in known]
    found += [f"`{name}` is of the wrong type" for name, kind in known.items()
        if name in row and not isinstance(row[name], kind)]
    if not found and row["format"] != FORMAT:
        found.append(f"`format` is {row['format']}, {FORMAT} is known")
    if not found and row["status"] not in STATUSES:
        found.append(f"`status` is `{row['status']}`, not one of {', '.join(STATUSES)}")
    if not found and (row["status"] == "ok") != (row["numbers"] is not None):
        found.append("`numbers` belong to the status `ok` and to no other")
    if not found and row["numbers"] and ("microseconds" in row["numbers"] or row["bench"] in TIMED):
        median = (row["numbers"].get("microseconds") or {}).get("median")
        if not (isinstance(median, (int, float)) and math.isfinite(median) and median > 0):
            found.append("`numbers` have no finite `microseconds.median` above 0")
    if not found and not (row["run"].get("id") and row["run"].get("date")):
        found.append("`run` has no `id` or no `date`")
    return found


def program():
    """The kgen that is named by KGEN, installed, or built in this repository; None if there is none."""
    built = [ROOT / "target" / profile / "kgen" for profile in ("release", "ci", "debug")]
    there = (str(path) for path in built if path.is_file())
    return os.environ.get("KGEN") or shutil.which("kgen") or next(there, None)


class Writer:
    """Appends rows to a file as they are produced, so that an interrupted run keeps them; without a path, writes
    nothing. With a store, `kgen db import` adds the file to it when the program ends; without a path, the file lies
    beside the store until then."""

    def __init__(self, path, store=None):
        self.store, self.is_temporary = store, not path
        if store:
            if not program():
                raise SystemExit(f"no kgen, which adds the rows to `{store}`; name one with KGEN, or take --out")
            path = path or f"{store}.{uuid.uuid4().hex}.jsonl"
            atexit.register(self.keep)
        self.path = Path(path) if path else None
        if self.path:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text("")

    def keep(self):
        """Adds the rows to the store. If that fails, the file stays, and the message says where."""
        if not self.path.stat().st_size:
            return self.path.unlink() if self.is_temporary else None
        done = subprocess.run([program(), "db", "import", "--db", self.store, str(self.path)], capture_output=True,
            text=True)
        if done.returncode:
            print(f"the rows are in `{self.path}`, and not in `{self.store}`: {done.stderr.strip()}", file=sys.stderr)
        elif self.is_temporary:
            self.path.unlink()

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
