"""Plants each fault of faults.toml in each kernel it concerns and looks at what the emulator says.

    plant_faults.py WORK KERNELS COMPILER

WORK holds `runtime.o` and `harness` (run.sh makes them), KERNELS the generated .cu files, COMPILER compiles them.
Prints a line for each fault and kernel; exit status 1 if one was not caught as faults.toml says, or concerns no kernel.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
TEMPLATES = HERE.parent.parent / "templates"
FLAGS = ["-std=c++17", "-O1", "-ffp-contract=off", "-fPIC", "-w"]
CASES = ["1,2,2,113,203", "2,4,2,64,130,gapped", "1,1,1,203,113"]
KINDS = ["race", "out of bounds", "deadlock", "never waited for", "unwritten", "read-only", "misaligned"]


def run_planted(work: pathlib.Path, compiler: str, kernel: pathlib.Path, fault: dict) -> set[str] | None:
    """How the fault shows in a kernel: kinds of violation, "wrong numbers", or nothing. None: it does not concern it."""
    tree = work / "planted"
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(TEMPLATES / "include", tree / "include")
    planted = tree / kernel.name
    shutil.copyfile(kernel, planted)
    target = planted if fault["file"] == "kernel" else tree / fault["file"]
    text = target.read_text()
    if text.count(fault["find"]) != 1:
        return None
    target.write_text(text.replace(fault["find"], fault["replace"]))
    library = tree / "kernel.so"
    include = ["-I", TEMPLATES / "emulator", "-I", tree / "include"]
    subprocess.run([compiler, "-x", "c++", *FLAGS, *include, "-shared", "-o", library, planted, "-x", "none", work / "runtime.o"], check=True)
    cases = ["1,1,1,113,333," + fault["layout"]] if "layout" in fault else CASES
    output = subprocess.run([work / "harness", library, kernel.stem, *cases], capture_output=True, text=True, timeout=60).stdout
    shows = {kind for kind in KINDS if re.search(rf"^  {kind}: ", output, re.MULTILINE)}
    if re.search(r"^FAIL.*\n(?!  code)", output, re.MULTILINE):
        shows.add("wrong numbers")
    return shows


def main() -> int:
    work, kernels, compiler = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
    missed = 0
    for fault in tomllib.loads((HERE / "faults.toml").read_text())["fault"]:
        concerned = 0
        for kernel in sorted(kernels.glob("flash_fwd_*.cu")):
            shows = run_planted(work, compiler, kernel, fault)
            if shows is None:
                continue
            concerned += 1
            caught = fault["expect"] in shows
            missed += not caught
            print(f"{'caught' if caught else 'MISSED'}  {fault['name']}  [{kernel.stem}]  {', '.join(sorted(shows)) or 'nothing'}", flush=True)
        if concerned == 0:
            missed += 1
            print(f"MISSED  {fault['name']}: its text is in none of the kernels")
    return 1 if missed else 0


sys.exit(main())
