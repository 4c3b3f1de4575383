#!/usr/bin/env python3
"""Compares models of transformers with attention by kgen_attn and by torch (SDPA): differences in results, and speed.

    kgen wheel --filter "kind in (fwd_combine, prepare_scheduler) or dtype in (bf16, fp16) and hdim in (64, 128, 256) \\
        and (target == sm90 or kind == fwd_split) and not paged and not cache"
    python3 scripts/real_models.py --library build/wheel/lib/libkgen.so --out OUT [--parts compare,train] \\
        [--models GPT,Llama]

Shapes of GPT-2 124M, Llama-3.2-1B, Gemma 2B, Gemma-2 2B, Mistral 7B, gpt-oss 20B and BERT base with random weights,
some with fewer layers (scripts/model_shapes.py). The peer is SDPA; for Gemma-2 and gpt-oss, whose softcap and sinks it does not
support, it is transformers' unfused attention ("eager"; "plain" rounds everything to bf16). Parts:

  compare   logits, loss of each token and gradient of each parameter, of equal, padded and packed batches. The
            reference is the same model in float64; kgen's error may be twice that of the peer in the same dtype (the
            larger one of torch's choice and of its unfused computation, "math"), FlashAttention's own rule.
  train     50 steps of AdamW under bf16 autocast. The loss curve may differ from the middle of the peers' by at
            most twice the spread of these. Peers: torch's choice, math, "efficient" (or eager, plain, and in float32),
            and the first two with the batch in another order.
  generate  greedy, with a growing key cache: equal and left-padded prompts, and a long one. Each step's logits obey the
            2x rule against float64. In the peer's text, kgen's best token must be the peer's if the peer's two best
            logits are further apart than the errors of both sides' logits in bf16.
  speed     tokens per second of prefill and, separately, of generation, for each of --batches and --lengths, and the
            share of attention kernels in prefill's GPU time.
  steps     tokens per second, forward and backward.
  compile   prefill, and generation with a cache of fixed size, against torch.compile, for --compiled and --mode.
            Minutes each. Also the GPU time of one call and attention's share of it. For generation: the number of
            tokens before a side's text differs from the text of kgen uncompiled, and the gap between kgen's logit of
            the first different token and its best one, in units of bf16's spacing there.

Sides alternate; figures are medians of rounds. With --limit S no piece begins after S seconds. --each S runs each
piece in a separate process and ends it after S seconds. OUT/real_models.json is written after each piece, and
--resume FILE skips the pieces in such a file.

--together N compiles N pieces of `compile` at a time, each in a separate process, after all other parts. None is timed
before all N are ready or have ended, or --each S has passed; a process that is not ready then is ended. Those that are
ready are then timed one after another while nothing compiles, each for --each S at most. Then the next N begin. With
--limit S no further N begin after S seconds. Pieces with matrix products of similar sizes are in different groups of N:
torch has the choices of the first one on disk when the next N begin. max-autotune's own measurements run concurrently
with the other pieces. The N share the GPU's memory; if a side ran out of it, its row reports that. Unless
TORCHINDUCTOR_COMPILE_THREADS is set, each of the N has its share of the cores.

Writes real_models.json and real_models.txt to OUT. Exit code 0: all passed; 1: something failed; 3: no GPU or no
library; 4: passed as far as the limit went.
With --tiny on a library for the emulator it runs without a GPU (a minute or two; its times mean nothing).
"""

import argparse
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before transformers is imported: nothing is downloaded

PARTS = ("compare", "train", "generate", "speed", "steps", "compile")

#: Options that are not passed to a piece's separate process: with `--each` it would start another process.
OF_PARENT = ("--each", "--together", "--resume", "--piece")


class Report:
    """Lines for a reader and rows for a program, written after each piece; also records whether all passed."""

    def __init__(self, out, before):
        self.out, self.rows, self.done = out, list(before.get("rows", [])), list(before.get("done", []))
        self.facts, self.lines = {"runs": before.get("runs", [])}, []
        out.mkdir(parents=True, exist_ok=True)

    @property
    def failed(self):
        return [f"{row['part']}: {row['model']}, {row['what']}" for row in self.rows if row["held"] is False]

    def row(self, part, model, what, held, text, **figures):
        """Adds a result; `held` is None if no rule applies to it."""
        self.rows.append({"part": part, "model": model, "what": what, "held": held, "text": text, **figures})
        word = {True: "ok", False: "FAIL", None: ""}[held]
        self.say(f"{word:4} {part:8} {model:12} {what:34} {text}")

    def say(self, line):
        self.lines.append(line)
        print(line, flush=True)

    def finish(self, piece):
        """Marks a piece as done, and writes the results so far to the files."""
        self.done.append(piece)
        self.write()

    def write(self):
        document = {**self.facts, "done": self.done, "failed": self.failed, "rows": self.rows}
        (self.out / "real_models.json").write_text(json.dumps(document, indent=1) + "\n")
        (self.out / "real_models.txt").write_text("\n".join(self.lines) + "\n")


def numbers(text):
    return [int(part) for part in text.split(",")]


def pairs(text):
    return [tuple(int(number) for number in part.split("x")) for part in text.split(",")]


def arguments():
    # No abbreviations: `command` passes options by their full names.
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--library", type=pathlib.Path, help="a libkgen.so in place of the installed package's")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--parts", default="compare,train,generate,speed,steps", help=f"of {','.join(PARTS)}; in this order")
    parser.add_argument("--models", default="", help="only those whose names begin so, separated by commas")
    parser.add_argument("--batches", type=numbers, default=[1, 4, 8], help="of speed")
    parser.add_argument("--lengths", type=numbers, default=[512, 1024, 2048, 4096], help="of speed, in tokens of the prompt")
    parser.add_argument("--compiled", type=pairs, default=[(1, 512), (8, 2048)], help="of compile, BATCHxLENGTH,...")
    parser.add_argument("--mode", default="max-autotune", help="of compile, as torch.compile has it")
    parser.add_argument("--together", type=int, metavar="N", help="pieces of compile to compile at a time")
    parser.add_argument("--each", type=float, help="seconds after which a piece is ended, in a process of its own")
    parser.add_argument("--piece", help="this one alone, by its name in real_models.json")
    parser.add_argument("--ready", type=pathlib.Path, help=argparse.SUPPRESS)  # set by `together`; see `turn`
    parser.add_argument("--steps", type=int, default=50, help="of train")
    parser.add_argument("--new", type=int, default=32, help="tokens that are generated")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=1e9, help="seconds after which no further piece is begun")
    parser.add_argument("--resume", type=pathlib.Path, help="a real_models.json: its pieces are not run again, its rows kept")
    parser.add_argument("--tiny", action="store_true", help="small models, in host memory on a library for the emulator")
    args = parser.parse_args()
    args.parts = args.parts.split(",")
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"unknown part `{', '.join(sorted(unknown))}`; there are {', '.join(PARTS)}")
    if args.together is not None and args.together < 1:
        parser.error("--together: at least 1")
    if args.rounds < 1:
        parser.error("--rounds: at least 1")
    if args.tiny:
        args.batches, args.lengths, args.compiled, args.steps, args.new = [2], [24], [(1, 24)], 4, 6
        args.rounds = min(args.rounds, 2)
    return args


def pieces(args, device):
    """The work: names, and the functions that do it with a report. In order of parts."""
    import model_accuracy as accuracy
    import model_generation as generation
    import model_speed as speed
    import torch
    from model_shapes import shapes

    wanted = tuple(args.models.split(","))
    chosen = [shape for shape in shapes(args.tiny) if shape.name.startswith(wanted)]
    for part in args.parts:
        for shape in chosen:
            common = (shape, device)
            if part == "compare":
                for dtype in (torch.bfloat16, torch.float16) if shape.name.startswith("GPT") else (torch.bfloat16,):
                    yield f"compare {shape.name} {dtype}", lambda r, c=common, d=dtype: accuracy.compare(r, *c, d, args.seed)
            elif part == "train":
                yield f"train {shape.name}", lambda r, c=common: accuracy.train(r, *c, args.seed, args.steps, args.tiny)
            elif part == "generate" and shape.causal:
                yield f"generate {shape.name}", lambda r, c=common: generation.generate(r, *c, args.seed, args.new, args.tiny)
            elif part == "speed" and shape.causal:
                for length in args.lengths:
                    for batch in args.batches:
                        size = (args.seed, batch, length, args.new, args.rounds)
                        yield f"speed {shape.name} {batch}x{length}", lambda r, c=common, s=size: speed.speed(r, *c, *s)
            elif part == "steps":
                batch, length = (2, 40) if args.tiny else (8, 1024) if shape.causal else (64, 512)
                size = (args.seed, batch, length, args.rounds)
                yield f"steps {shape.name} {batch}x{length}", lambda r, c=common, s=size: speed.steps(r, *c, *s)
            elif part == "compile" and shape.causal:
                for batch, length in args.compiled:
                    for what in ("prefill", "generation"):
                        size = (args.seed, batch, length, args.new, args.rounds, args.mode, what, args.await_turn)
                        yield f"compile {shape.name} {batch}x{length} {what}", lambda r, c=common, s=size: speed.compiled(r, *c, *s)


def run(report, args, device):
    """Runs pieces until the time limit; returns True if all of them were run."""
    import torch

    begin, wanted, left, compiles = time.monotonic(), [], [], []
    for name, piece in pieces(args, device):
        if args.piece not in (None, name):
            continue
        wanted.append(name)
        if name in report.done:
            continue
        if args.together is not None and name.startswith("compile "):
            compiles.append(name)
            continue
        since = time.monotonic()
        if since - begin > args.limit:
            left.append(name)
            continue
        if args.each is not None:
            apart(report, name, args)
            continue
        try:
            piece(report)
        except Exception as problem:  # the results so far are worth more than a bare traceback
            traceback.print_exc()
            last = str(problem).strip().splitlines()[-1:]
            report.row(name.split(" ")[0], name.partition(" ")[2], "all", False, f"{type(problem).__name__}: {' '.join(last)}")
        if device == "cuda":
            torch.cuda.empty_cache()
        if args.ready is None:  # for the others the parent's figure is better: they have waited
            report.say(f"     {name}: {time.monotonic() - since:.0f} s")
        report.finish(name)
    compiles = likes_apart(compiles)
    while compiles:
        if time.monotonic() - begin > args.limit:
            left += compiles
            break
        together(report, compiles[: args.together], args)
        del compiles[: args.together]
    if left:
        report.say(f"not begun, {args.limit:.0f} s were over: {'; '.join(left)}")
    return set(wanted) <= set(report.done)


def likes_apart(names):
    """Pieces of compile, ordered so that pieces with products of the same sizes are far apart: a prompt's matrices have
    BATCH x LENGTH rows, a decoding step's BATCH."""
    rounds, seen = {}, {}
    for name in names:
        model, size, what = name.rsplit(" ", 2)
        batch, length = map(int, size.split("x"))
        sizes = (model, what, batch * length if what == "prefill" else batch)
        rounds[name] = seen[sizes] = seen.get(sizes, -1) + 1
    return sorted(names, key=rounds.get)


def command(name, out, *more):
    """The command that runs this script with the same arguments for one piece. If an option occurs twice, the last one
    counts."""
    given, skip = [], False
    for word in sys.argv[1:]:
        if not skip and word.split("=")[0] not in OF_PARENT:
            given.append(word)
        skip = not skip and word in OF_PARENT
    return [sys.executable, __file__, *given, "--piece", name, "--out", str(out), *more]


def apart(report, name, args):
    """Runs a piece in a separate process, which is ended after `--each` seconds; its rows come from that
    process's file."""
    since, out = time.monotonic(), args.out / "apart"
    (out / "real_models.json").unlink(missing_ok=True)
    try:
        subprocess.run(command(name, out), timeout=args.each, check=False)
    except subprocess.TimeoutExpired:
        report.say(f"     {name}: ended after {time.monotonic() - since:.0f} s")
        return
    collect(report, name, out, report.lines.append)


def collect(report, name, out, tell):
    """Reads the results that a piece's own process has written to `out`; `tell` receives the lines."""
    if not (out / "real_models.json").is_file():
        report.row(name.split(" ")[0], name.partition(" ")[2], "all", False, "its process told nothing")
        report.write()
        return
    report.rows += json.loads((out / "real_models.json").read_text())["rows"]
    for line in (out / "real_models.txt").read_text().splitlines()[1:]:  # the line about the machine is dropped
        tell(line)
    report.finish(name)


def together(report, names, args):
    """Pieces of compile: their processes compile in parallel, then take turns at being timed."""
    since, threads = time.monotonic(), max(2, len(os.sched_getaffinity(0)) // len(names))
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as ends:
        every = []
        for i, name in enumerate(names):
            every.append(Beside(name, pathlib.Path(place, str(i)), threads))
            ends.callback(every[-1].end)
        compiling, waiting = list(every), []
        while compiling and (args.each is None or time.monotonic() - since < args.each):
            time.sleep(0.05)
            for one in [one for one in compiling if one.ended or one.ready]:
                compiling.remove(one)
                one.compiled = time.monotonic() - since
                if not one.ended:
                    waiting.append(one)
                    continue
                end = f"exit code {one.process.returncode} after {one.compiled:.0f} s"
                report.say(f"     {one.name}: {end}, before its turn")
                collect(report, one.name, one.out, report.say)
                one.show_log()
        for one in compiling:
            one.end()
            report.say(f"     {one.name}: not compiled after {time.monotonic() - since:.0f} s, ended")
            one.show_log()
        report.write()
        for one in sorted(waiting, key=every.index):
            begin = time.monotonic()
            in_time = one.time_it(args.each)
            timing = f"{one.name}: compiling {one.compiled:.0f} s, timing {time.monotonic() - begin:.0f} s"
            if in_time:
                report.say(f"     {timing}" + (f", exit code {code}" if (code := one.process.returncode) else ""))
                collect(report, one.name, one.out, report.say)
            else:
                report.say(f"     {timing}, ended")
                report.write()
            if one.process.returncode != 0:
                one.show_log()


class Beside:
    """A piece's process, which compiles in parallel with others, and the parent's side of its turn."""

    def __init__(self, name, out, threads):
        out.mkdir()
        self.name, self.out, self.compiled = name, out, None
        with open(out / "log", "wb") as log:
            self.process = subprocess.Popen(
                command(name, out, "--ready", str(out / "ready")),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                bufsize=0,
                env={"TORCHINDUCTOR_COMPILE_THREADS": str(threads), **os.environ},
                start_new_session=True,  # a separate group, which includes its compiler processes
            )

    @property
    def ended(self):
        return self.process.poll() is not None

    @property
    def ready(self):
        return (self.out / "ready").exists()

    def time_it(self, limit):
        """Lets the process continue to its end; returns true if it ended in time."""
        with contextlib.suppress(BrokenPipeError):  # in case it has just died
            self.process.stdin.write(b"\n")
        try:
            self.process.wait(limit)
        except subprocess.TimeoutExpired:
            return False
        finally:
            self.end()
        return True

    def end(self):
        """Ends the process, if it has not ended yet, and its compiler processes, which would run for another minute."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdin.close()

    def show_log(self):
        """Prints the end of the process's log; for the user, not for the report."""
        last = (self.out / "log").read_text(errors="replace").splitlines()[-20:]
        print("\n".join(f"       | {line}" for line in last), file=sys.stderr, flush=True)


def turn(ready):
    """The process's side: a function that creates the file `ready` and returns once the parent lets this process
    continue, by a line on stdin. If stdin ends, the parent has ended: this process then ends too, with its compiler
    processes."""
    go = threading.Event()

    def watch():
        while os.read(sys.stdin.fileno(), 1):
            go.set()
        os.killpg(0, signal.SIGKILL)

    def await_turn():
        ready.touch()
        go.wait()

    threading.Thread(target=watch, daemon=True).start()
    return await_turn


def main():
    args = arguments()
    args.await_turn = turn(args.ready) if args.ready is not None else None
    if args.library is not None:
        if not args.library.is_file():
            print(f"`{args.library}` is not there: build it with `kgen wheel`", file=sys.stderr)
            return 3
        os.environ["KGEN_LIBRARY"] = str(args.library.resolve())
        # The package beside this script: its C structures match a library of this repository.
        sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))
    import torch
    import transformers

    if not args.tiny and not torch.cuda.is_available():
        print("no GPU; --tiny runs on a library for the emulator", file=sys.stderr)
        return 3
    import kgen_attn

    kgen_attn.register()
    torch.backends.cuda.matmul.allow_tf32 = False
    device = "cpu" if args.tiny else "cuda"
    before = json.loads(args.resume.read_text()) if args.resume is not None else {}
    report = Report(args.out, before)
    machine = torch.cuda.get_device_name() if device == "cuda" else "emulator"
    about = f"{machine}, torch {torch.__version__}, transformers {transformers.__version__}"
    report.facts["runs"].append({"machine": about, "arguments": sys.argv[1:]})
    report.say(about)
    complete = run(report, args, device)
    if args.piece is None:
        report.say("all held" if not report.failed else "did not hold:\n  " + "\n  ".join(report.failed))
    report.write()
    return 1 if report.failed else 0 if complete else 4


if __name__ == "__main__":
    sys.exit(main())
