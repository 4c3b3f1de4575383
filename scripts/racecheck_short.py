#!/usr/bin/env python3
"""Determines whether racecheck's reports on fwd_short_sm90 are races: experiments on a Hopper GPU with nvcc and
compute-sanitizer.

    kgen generate flash_fwd_short_hdim64_bf16_causal_sm90 --output short
    python3 scripts/racecheck_short.py OUT --source short/flash_fwd_short_hdim64_bf16_causal_sm90.cu [--work DIR] \\
        [--build-only]

Creates variants of that kernel with one change each, runs each under racecheck for four shapes, and compares O with
float64. Does the same with scripts/racecheck/patterns.cu, the same hand-over in isolation, correct by construction,
with one ingredient added or removed at a time. Writes racecheck_short.json, .txt (tables of the hazards and of the
lines between which they occur) and .log. Exit code 0: the controls behaved as expected (a removed barrier is reported,
a plain hand-over is not, results are right) and the table is valid; 1: they did not; 3: a tool is missing.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAME = "flash_fwd_short_hdim64_bf16_causal_sm90"
# Rows and keys: one tile of keys, so one warpgroup has none; two tiles; every stage full; stages refilled.
SHAPES = ((17, 17), (17, 100), (17, 512), (17, 1100))

MEETING = "        barrier_wait(barrier.meeting, 128);  // products of other warps may still read the stages where O goes now\n"
PARTS_DONE = "    block_sync();\n\n    float factor[WARPGROUPS][2]"
HAS_KEYS = "    if (warpgroup < with_keys) {\n        KGEN_UNROLL\n        for (int h = 0; h < 2; ++h) {\n            state.sum[h] += shuffle_xor(state.sum[h], 1);"
PART_OF = "return shared + STAGES_OFFSET + w * WARPGROUP_BYTES + (chunk * 128 + thread) * 16;"
SHARED = re.compile(r"constexpr uint32_t SHARED_BYTES = (\d+);")
LAST_INCLUDE = '#include "kgen/wgmma_tile.cuh"\n'
WAIT_FOR_ALL = """    for (int w = 0; w < with_keys; ++w) {
        const barriers theirs(shared + BARRIERS_OFFSET, w);
        const int tiles = (work.tiles() - w + WARPGROUPS - 1) / WARPGROUPS;
        for (int t = max(0, tiles - STAGES); t < tiles; ++t) {
            mbarrier_wait(theirs.k_full(t % STAGES), t / STAGES % 2);
            mbarrier_wait(theirs.v_full(t % STAGES), t / STAGES % 2);
        }
    }
"""


class Missing(Exception):
    pass


def replaced(source, old, new):
    if source.count(old) != 1:
        raise Missing(f"the kernel has changed: {source.count(old)} places read\n{old}")
    return source.replace(old, new)


def hoisted(source, by="    barrier_wait(barrier.meeting, 128);\n"):
    """The source with the barrier before the parts of O for every warpgroup, including those without keys."""
    return replaced(replaced(source, MEETING, ""), HAS_KEYS, by + HAS_KEYS)


def elsewhere(source):
    """The source with the parts of O at an address to which TMA copies nothing."""
    size = int(SHARED.search(source).group(1))
    start = (size + 1023) // 1024 * 1024
    source = SHARED.sub(f"constexpr uint32_t PARTS_OFFSET = {start};\nconstexpr uint32_t SHARED_BYTES = {start} + 2 * BLOCK_M * HEAD_DIM * 4;", source)
    return replaced(source, PART_OF, "return shared + PARTS_OFFSET + w * (BLOCK_M * HEAD_DIM * 4) + (chunk * 128 + thread) * 16;")


VARIANTS = {
    "as it is": lambda s: s,
    "no barrier after the parts (a race)": lambda s: replaced(s, PARTS_DONE, PARTS_DONE.replace("    block_sync();\n\n", "", 1)),
    "two barriers after the parts": lambda s: replaced(s, PARTS_DONE, "    block_sync();\n" + PARTS_DONE),
    "all warpgroups meet, each at its own": hoisted,
    "all warpgroups meet at __syncthreads": lambda s: hoisted(s, "    block_sync();\n"),
    "numbers of barriers are constants": lambda s: replaced(s, MEETING, "        if (warpgroup == 0) barrier_wait(1, 128); else barrier_wait(2, 128);\n"),
    "parts where nothing was copied to": elsewhere,
    "both: meet, and parts elsewhere": lambda s: elsewhere(hoisted(s)),
    "all wait for all copies, after": lambda s: replaced(s, PARTS_DONE, "    block_sync();\n" + WAIT_FOR_ALL + PARTS_DONE.replace("    block_sync();\n", "", 1)),
    "all wait for all copies, and __syncthreads": lambda s: replaced(s, PARTS_DONE, "    block_sync();\n" + WAIT_FOR_ALL + PARTS_DONE),
    "no meeting before the parts (a race with products)": lambda s: replaced(s, MEETING, ""),
    "arrivals in place of copies (O is wrong)": lambda s: replaced(s, LAST_INCLUDE, LAST_INCLUDE + "#define fetch_tile(stage, maps, barrier, ...) mbarrier_arrive(barrier)\n"),
    "proxy fence before the parts": lambda s: replaced(s, MEETING, "        fence_proxy_async();\n" + MEETING),
}
OPTIONS = {
    "as it is, asynchronous copies not followed": ["--racecheck-memcpy-async", "no"],
    "as it is, indirect barriers followed": ["--racecheck-indirect-barrier-dependency"],
}
PATTERNS = [
    "store, __syncthreads, load", "no __syncthreads (a race)", "named barrier of both", "named barrier of the owner", "named barrier of both, number in a register",
    "named barrier of the owner, in a register", "copied to before, owner waited", "copied to before, all waited", "copied to, named barrier of the owner",
    "copied to, named barrier of both", "copied to, all waited, barrier of the owner", "copied to, all waited, barrier of both", "copied to, parts elsewhere, barrier of the owner",
    "copied to, proxy fence, barrier of the owner",
]


def command(words, limit=60, **more):
    try:
        return subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=limit, errors="replace", **more)
    except subprocess.TimeoutExpired as stopped:
        return subprocess.CompletedProcess(words, 124, str(stopped.stdout or ""), "out of time")


def compile_one(nvcc, folder, source, name):
    """An executable from one source; the harness is linked to all except the patterns."""
    program, flags = folder / name, ["-std=c++17", "-O3", "-lineinfo", "-gencode", "arch=compute_90a,code=sm_90a"]
    sources = [source]
    if name != "patterns":
        flags += ["-I", folder / "include", f"-DLAUNCHER={NAME}"]
        sources.append(ROOT / "scripts/racecheck/harness.cu")
    done = command([nvcc, *flags, "-o", program, *sources], 200)
    if done.returncode != 0:
        raise Missing(f"{name} does not compile:\n{done.stdout}{done.stderr}")
    return program


def lines_of(program, folder):
    """Maps offsets in machine code to the kernel's source lines and the instructions; empty without a disassembler."""
    if not shutil.which("cuobjdump") or not shutil.which("nvdisasm"):
        return {}
    work = folder / f"{program.name}.elf"
    work.mkdir(exist_ok=True)
    command(["cuobjdump", "-xelf", "all", program.resolve()], cwd=work)
    lines = {}
    for cubin in work.glob("*.cubin"):
        chain, kernel, after_code = [], "", True
        for line in command(["nvdisasm", "-gi", "-c", cubin]).stdout.splitlines():
            if section := re.match(r"\.section\s+\.text\.(\S+?),|^\.text\.(\S+):", line.strip()):
                kernel = section.group(1) or section.group(2)
            elif place := re.search(r'//## File "([^"]+)", line (\d+)(?: inlined at "([^"]+)", line (\d+))?', line):
                if after_code:
                    chain, after_code = [], False
                chain.append(f"{pathlib.Path(place.group(1)).name}:{place.group(2)}")
                if place.group(3):
                    chain.append(f"{pathlib.Path(place.group(3)).name}:{place.group(4)}")
            elif code := re.match(r"\s*/\*([0-9a-f]{4,})\*/\s+(\S.*?);", line):
                after_code = True
                own = [c for c in chain if ".cu:" in c]
                lines[int(code.group(1), 16)] = (own[0] if own else chain[0] if chain else "?", code.group(2).strip())
    return lines




def hazards(log, lines, source):
    """Pairs of accesses that racecheck considers unordered, with their counts."""
    text = source.read_text().splitlines()
    pairs, last = {}, None
    for line in log.splitlines():
        found = re.search(r"(Write|Read) access at .*?\+(0x[0-9a-f]+)(?: in (\S+:\d+))?", line)
        if not found:
            continue
        offset = int(found.group(2), 16)
        where, code = lines.get(offset, (found.group(3) or found.group(2), ""))
        line_number = where.rpartition(":")[2]
        said = text[int(line_number) - 1].strip() if line_number.isdigit() and where.startswith(source.name) else ""
        access = f"{found.group(1).lower()} {where} `{said[:70]}` ({code or hex(offset)})"
        if "Race reported between" in line or last is None:
            last = access
            continue
        many = re.search(r"\[(\d+) hazards?\]", line)
        key = f"{last} | {access}"
        pairs[key] = pairs.get(key, 0) + (int(many.group(1)) if many else 1)
        last = access if "Race reported" in line else last
    return pairs


def examine(what, program, source, words, options, lines):
    done = command(["compute-sanitizer", "--tool", "racecheck", "--racecheck-report", "all", "--print-limit", "60", *options, program, *words])
    log = done.stdout + done.stderr
    said = re.search(r"RACECHECK SUMMARY: (\d+) hazards? displayed \((\d+) errors?, (\d+) warnings?\)", log)
    counts = [int(n) for n in said.groups()] if said else None
    return {"what": what, "shape": "x".join(words), "hazards": counts, "exit_code": done.returncode, "pairs": hazards(log, lines, source), "log": log}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--source", type=pathlib.Path, required=True, help="the rendered kernel, with include/ beside it")
    parser.add_argument("--nvcc", default=shutil.which("nvcc") or "nvcc")
    parser.add_argument("--work", type=pathlib.Path, help="where variants and programs are made (default: a folder for temporary files)")
    parser.add_argument("--build-only", action="store_true", help="make and compile the variants; run nothing")
    args = parser.parse_args()
    for tool in () if args.build_only else ("compute-sanitizer", args.nvcc):
        if not shutil.which(tool):
            print(f"`{tool}` is not installed", file=sys.stderr)
            return 3
    args.out.mkdir(parents=True, exist_ok=True)
    folder = (args.work or pathlib.Path(tempfile.mkdtemp(prefix="racecheck_short_"))).resolve() / "variants"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(args.source.parent / "include", folder / "include")
    source = args.source.read_text()
    files = {}
    try:
        for number, (what, change) in enumerate(VARIANTS.items()):
            files[what] = folder / f"variant{number}.cu"
            files[what].write_text(change(source))
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            programs = {what: pool.submit(compile_one, args.nvcc, folder, file, file.stem) for what, file in files.items()}
            patterns = pool.submit(compile_one, args.nvcc, folder, ROOT / "scripts/racecheck/patterns.cu", "patterns")
            programs = {what: program.result() for what, program in programs.items()}
            patterns = patterns.result()
    except Missing as problem:
        print(problem, file=sys.stderr)
        return 1
    if args.build_only:
        print(f"{len(programs) + 1} programs in {folder}; lines known of {len(lines_of(programs['as it is'], folder))} instructions")
        return 0

    # First run the programs without racecheck, one after another.
    wrong = []
    for what, program in programs.items():
        for shape in SHAPES:
            done = command([program, *map(str, shape)])
            if done.returncode != 0 and "a race" not in what and "O is wrong" not in what:
                wrong.append(f"{what}, {shape}: exit code {done.returncode} {done.stdout.strip()}")
    for number, what in enumerate(PATTERNS):
        if (done := command([patterns, number])).returncode != 0 and "a race" not in what:
            wrong.append(f"pattern, {what}: exit code {done.returncode} {done.stdout.strip()}")
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        known = {what: lines_of(program, folder) for what, program in programs.items()}
        jobs = [pool.submit(examine, what, program, files[what], list(map(str, shape)), [], known[what]) for what, program in programs.items() for shape in SHAPES]
        jobs += [pool.submit(examine, what, programs["as it is"], files["as it is"], list(map(str, shape)), options, known["as it is"]) for what, options in OPTIONS.items() for shape in SHAPES]
        jobs += [pool.submit(examine, f"pattern: {what}", patterns, ROOT / "scripts/racecheck/patterns.cu", [str(number)], [], {}) for number, what in enumerate(PATTERNS)]
        results = [job.result() for job in jobs]
    return report(args.out, results, wrong)


def report(out, results, wrong):
    by_what = {}
    for result in results:
        by_what.setdefault(result["what"], []).append(result)
    text = [f"hazards (errors and warnings) racecheck reports; shapes are rows x keys: {', '.join(f'{q}x{k}' for q, k in SHAPES)}", ""]
    for what, cells in by_what.items():
        text.append(f"{what:58} " + "  ".join(f"{cell['hazards'][0] if cell['hazards'] else '?':>6}" for cell in cells))
    text += ["", "between which lines (of the variant's own source)"]
    for what, cells in by_what.items():
        pairs = {}
        for cell in cells:
            for pair, many in cell["pairs"].items():
                pairs[pair] = pairs.get(pair, 0) + many
        text += [f"{what}: {many} of {pair}" for pair, many in sorted(pairs.items(), key=lambda item: -item[1])[:6]]
    reported = {what: [cell["hazards"] and cell["hazards"][0] for cell in cells] for what, cells in by_what.items()}
    failed = list(wrong)
    failed += [f"no summary: {what}" for what, counts in reported.items() if None in counts]
    if not any(reported["no barrier after the parts (a race)"]) or not any(reported["pattern: no __syncthreads (a race)"]):
        failed.append("control: a race that was planted is not reported")
    if any(reported["pattern: store, __syncthreads, load"]):
        failed.append("control: a plain hand-over is reported")
    text += ["", *(failed or ["controls as they must be; O right in every variant that is meant to give it"])]
    print("\n".join(text))
    (out / "racecheck_short.txt").write_text("\n".join(text) + "\n")
    (out / "racecheck_short.log").write_text("\n".join(f"##### {r['what']}, {r['shape']}\n" + "\n".join(r["log"].splitlines()[:160]) for r in results))
    rows = [{key: value for key, value in r.items() if key != "log"} for r in results]
    (out / "racecheck_short.json").write_text(json.dumps({"results": rows, "failed": failed}, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
