#!/usr/bin/env python3
"""Models of transformers with attention by kgen, next to torch's own (SDPA): does anything differ, and how fast is it?

    kgen build --filter "kind in (fwd_combine, prepare_scheduler) or hdim == 64 and dtype in (bf16, fp16) and (target == sm90 or kind == fwd_split)"
    python3 scripts/real_models.py --library build/lib/libkgen.so --out OUT [--parts compare,train,generate,speed] [--models GPT]

Shapes of GPT-2 124M, Llama-3.2-1B and BERT base with random weights (scripts/model_shapes.py). Comparisons:

  compare   logits, loss of each token and gradient of each parameter, of equal, padded and packed batches. The reference is the
            same model in float64; the error of kgen may be twice that of SDPA in the same dtype (the larger one of torch's choice and
            of its unfused computation, "math"), FlashAttention's own rule.
  train     20 steps of AdamW under bf16 autocast. The loss curve may differ from the middle of SDPA's by twice what
            theirs differ from each other: torch's choice, math, "efficient", and the first two with the batch in
            another order.
  generate  greedy, with a key cache that grows by torch.cat: equal and left-padded prompts, and a long one. Each
            step's logits obey the 2x rule against float64; each token is the reference's, except for ties closer than
            SDPA's own error.
  speed     tokens per second, forward and backward, and of generation; both sides alternate, medians of rounds.

Writes real_models.json and real_models.txt to OUT. Exit code 0: all passed; 1: something failed; 3: no GPU or no
library.
With --tiny on a library for the emulator it runs without a GPU (seconds; nothing is timed).
"""

import argparse
import contextlib
import copy
import functools
import json
import os
import pathlib
import statistics
import sys
import time
import traceback

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before transformers is imported: nothing is downloaded

import torch
import torch.nn.functional as F
from kgen_torch import Kgen
from kgen_transformers import register
from model_shapes import Batch, model_of, shapes
from torch.nn.attention import SDPBackend, sdpa_kernel

RULE = 2.0


class Report:
    """Lines for a reader and rows for a program; knows whether all passed."""

    def __init__(self):
        self.rows, self.lines, self.failed = [], [], []

    def row(self, part, model, what, held, text, **figures):
        self.rows.append({"part": part, "model": model, "what": what, "held": held, **figures})
        if held is False:
            self.failed.append(f"{part}: {model}, {what}")
        self.say(f"{'ok  ' if held else 'FAIL' if held is False else '    '} {part:8} {model:12} {what:34} {text}")

    def say(self, line):
        self.lines.append(line)
        print(line, flush=True)


BACKENDS = {"math": SDPBackend.MATH, "efficient": SDPBackend.EFFICIENT_ATTENTION}


def use(model, implementation):
    """The model with that attention: kgen, SDPA as torch chooses, or one of SDPA's backends."""
    backend = BACKENDS.get(implementation)
    model.set_attn_implementation("sdpa" if backend is not None else implementation)
    return sdpa_kernel(backend) if backend is not None else contextlib.nullcontext()


def outcome(model, implementation, given, there, labels, loss_scale=1.0):
    """Logits of the valid tokens, loss of each, and gradients by name."""
    model.zero_grad(set_to_none=True)
    with use(model, implementation):
        logits = model(**given).logits[there]
        wide = logits if logits.dtype == torch.float64 else logits.float()
        losses = F.cross_entropy(wide, labels, ignore_index=-100, reduction="none")
        (losses.sum() / (labels >= 0).sum() * loss_scale).backward()
    gradients = {name: p.grad / loss_scale for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad(set_to_none=True)
    return {"logits": logits.detach(), "losses": losses.detach(), "gradients": gradients}


def errors(got, exact):
    """Largest and root mean square error against float64; NaN is infinite."""
    difference = (got.double() - exact).abs()
    if not bool(torch.isfinite(difference).all()):
        return {"max": float("inf"), "rms": float("inf")}
    return {"max": difference.max().item(), "rms": difference.square().mean().sqrt().item()}


def ratio(kgen, others, kinds=("max", "rms")):
    return max(kgen[kind] / max(1e-30, max(other[kind] for other in others)) for kind in kinds)


def compare(report, kgen, shape, device, dtype, seed):
    """Forward, loss and gradients of equal, padded and packed batches."""
    model = model_of(shape, device, dtype, seed)
    judge = copy.deepcopy(model).double()
    loss_scale = 1024.0 if dtype == torch.float16 else 1.0
    equal = Batch(shape, [shape.dense[1]] * shape.dense[0], device, seed)
    unequal = Batch(shape, shape.lengths, device, seed + 1)
    for batch, ways in ((equal, {"equal": equal.padded()}), (unequal, {"padded": unequal.padded(), "packed, cu_seqlens": unequal.packed(), "packed, position ids": unequal.packed(by_positions=True)})):
        given, there = batch.padded()
        exact = outcome(judge, "sdpa", given, there, batch.labels)
        peers = [outcome(model, name, given, there, batch.labels, loss_scale) for name in ("sdpa", "math")]
        for way, (own_given, own_there) in ways.items():
            before = dict(kgen.calls)
            own = outcome(model, "kgen", own_given, own_there, batch.labels, loss_scale)
            layers = shape.config.num_hidden_layers
            used = kgen.calls["kgen_fwd"] - before["kgen_fwd"] == layers == kgen.calls["kgen_bwd"] - before["kgen_bwd"]
            figures = {what: ratio(errors(own[what], exact[what]), [errors(peer[what], exact[what]) for peer in peers]) for what in ("logits", "losses")}
            worst, worst_name, over = judged_gradients(own, peers, exact)
            held = used and worst <= RULE and all(figure <= RULE for figure in figures.values())
            loss = {name: one["losses"].double().sum().item() / int((batch.labels >= 0).sum()) for name, one in (("kgen", own), ("SDPA", peers[0]), ("float64", exact))}
            report.row(
                "compare", shape.name, f"{str(dtype)[6:]}, {way}", held,
                f"error to SDPA's: logits {figures['logits']:.2f}, losses {figures['losses']:.2f}, gradients at most {worst:.2f} ({worst_name}); loss {loss['kgen']:.5f} {loss['SDPA']:.5f} {loss['float64']:.5f}"
                + ("" if used else f"; kgen was called {kgen.calls} after {before}, wanted {layers} more"),
                dtype=str(dtype)[6:], way=way, ratios=figures, gradient_ratio=worst, gradient_worst=worst_name, gradients_over=over, loss=loss,
                logits_error={"kgen": errors(own["logits"], exact["logits"]), "SDPA": errors(peers[0]["logits"], exact["logits"]), "math": errors(peers[1]["logits"], exact["logits"])},
            )


def judged_gradients(own, peers, exact):
    """The largest ratio of errors, where it occurs, and those that violate the rule: root mean squares of each parameter, and the largest error
    of any element of the model. (The largest of a few hundred elements alone is half chance.)"""
    unit = torch.finfo(own["logits"].dtype).eps / 2
    ours_all, theirs_all = 0.0, 0.0
    worst, worst_name, over = 0.0, "", []
    for name, reference in exact["gradients"].items():
        ours = errors(own["gradients"][name], reference)
        theirs = [errors(peer["gradients"][name], reference) for peer in peers]
        ours_all, theirs_all = max(ours_all, ours["max"]), max(theirs_all, *(peer["max"] for peer in theirs))
        # A gradient that is exactly zero mathematically, such as that of a key's bias, is measured against its peers;
        # any other may err by what rounding the result gives.
        theirs.append({"rms": unit * reference.square().mean().sqrt().item()})
        one = ratio(ours, theirs, ("rms",))
        if one > worst:
            worst, worst_name = one, name
        if one > RULE:
            over.append({"name": name, "ratio": one, "kgen": ours, "peers": theirs})
    whole = ratio({"max": ours_all}, [{"max": theirs_all}], ("max",))
    return (whole, "largest of all", over) if whole > worst else (worst, worst_name, over)


def training_curve(initial, shape, implementation, device, steps, order, seed):
    """The loss of each step; `order` rotates the sequences of a batch, which changes only roundings."""
    model = copy.deepcopy(initial)
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-4, betas=(0.9, 0.95), weight_decay=0.01, fused=device != "cpu")
    curve = []
    for step in range(steps):
        batch = training_batch(shape, device, seed + step).rotated(order)
        given, there = batch.packed() if not shape.causal and implementation == "kgen" else batch.padded()
        optimiser.zero_grad(set_to_none=True)
        with use(model, implementation):
            with torch.autocast(torch.device(device).type, torch.bfloat16):
                logits = model(**given).logits[there]
                loss = F.cross_entropy(logits.float(), batch.labels, ignore_index=-100)
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        curve.append(loss.item())
    return curve


@functools.cache
def training_batch(shape, device, seed):
    return Batch(shape, [shape.dense[1]] * shape.dense[0] if shape.causal else shape.lengths, device, seed)


def train(report, kgen, shape, device, seed, tiny):
    initial = model_of(shape, device, torch.float32, seed)
    initial.train()
    steps = 4 if tiny else 20
    ways = {"SDPA": ("sdpa", 0), "SDPA, math": ("math", 0), "SDPA, rotated": ("sdpa", 1), "SDPA, math, rotated": ("math", 1), "kgen": ("kgen", 0)}
    config = shape.config
    if not tiny and getattr(config, "num_key_value_heads", config.num_attention_heads) == config.num_attention_heads:  # it has no shared key heads
        ways["SDPA, efficient"] = ("efficient", 0)
    runs = {name: training_curve(initial, shape, implementation, device, steps, order, seed) for name, (implementation, order) in ways.items()}
    peers = [curve for name, curve in runs.items() if name != "kgen"]
    noise = max(max(values) - min(values) for values in zip(*peers))
    off = max(abs(own - statistics.mean(values)) for own, values in zip(runs["kgen"], zip(*peers)))
    fell = runs["kgen"][0] - runs["kgen"][-1]
    # On a CPU torch computes with P in fp32, which no kernel for tensor cores does: its noise says nothing there.
    held = (off <= 0.01 and fell > 0.02) if tiny else (off <= RULE * noise and fell > 0.3)  # NaN is neither
    report.row(
        "train", shape.name, f"{steps} steps, {'equal' if shape.causal else 'packed'}", held,
        f"loss {runs['kgen'][0]:.4f} to {runs['kgen'][-1]:.4f}; off SDPA's middle by {off:.2e} at most, SDPA's runs differ by {noise:.2e}",
        off=off, noise=noise, curves=runs,
    )


def generated(model, implementation, given, new):
    """Greedy tokens after the prompt, and each step's logits before any processing."""
    with torch.no_grad(), use(model, implementation):
        said = model.generate(
            **given, max_new_tokens=new, min_new_tokens=new, do_sample=False, use_cache=True, return_dict_in_generate=True, output_logits=True, pad_token_id=0
        )
    return said.sequences[:, given["input_ids"].shape[1] :], torch.stack(said.logits, 1)


def judged_sequence(judge, given, tokens):
    """Float64 logits for each new token, from one pass over prompt and answer."""
    ids = torch.cat([given["input_ids"], tokens], 1)
    there = torch.cat([given["attention_mask"], torch.ones_like(tokens)], 1)
    with torch.no_grad(), use(judge, "sdpa"):
        logits = judge(input_ids=ids, attention_mask=there, position_ids=(there.cumsum(1) - 1).clamp(min=0)).logits
    return logits[:, given["input_ids"].shape[1] - 1 : -1]


def generate(report, kgen, shape, device, seed, tiny):
    model = model_of(shape, device, torch.bfloat16, seed)
    judge = copy.deepcopy(model).double()
    prompts = [3, 9, 5] if tiny else [64, 7, 200, 33]
    long, new = (60, 6) if tiny else (900 if shape.config.max_position_embeddings < 4000 else 4000, 32)
    equal, unequal, one = (Batch(shape, lengths, device, seed + 7) for lengths in ([prompts[0]] * 4, prompts, [long]))
    for way, batch in (("equal prompts", equal), ("left-padded prompts", unequal), (f"prompt of {long}", one)):
        given, there = batch.padded(left=True)
        given = {"input_ids": given["input_ids"], "attention_mask": there.long()}
        said = {name: generated(model, name, given, new) for name in ("sdpa", "kgen")}
        exact = {name: judged_sequence(judge, given, tokens) for name, (tokens, _) in said.items()}
        err = {name: errors(said[name][1], exact[name]) for name in said}
        # How much lower the reference scores the chosen token than its best: beyond both errors it is not a tie.
        short = {name: (exact[name].max(-1).values - exact[name].gather(-1, tokens[..., None])[..., 0]).max().item() for name, (tokens, _) in said.items()}
        equal_tokens = int((said["sdpa"][0] == said["kgen"][0]).cumprod(1).sum())
        figure = ratio(err["kgen"], [err["sdpa"]])
        held = figure <= RULE and short["kgen"] <= 2 * RULE * err["sdpa"]["max"]
        report.row(
            "generate", shape.name, way, held,
            f"logits' error to SDPA's {figure:.2f}; tokens equal up to the first other one: {equal_tokens} of {said['kgen'][0].numel()}; least good choice {short['kgen']:.4f} (SDPA {short['sdpa']:.4f}) below the best, errors {err['kgen']['max']:.4f} and {err['sdpa']['max']:.4f}",
            ratio=figure, errors=err, short=short, equal_tokens=equal_tokens, tokens=said["kgen"][0].numel(),
        )


def timed(f):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    f()
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def speed(report, kgen, shape, device, seed, rounds):
    model = model_of(shape, device, torch.bfloat16, seed)
    size, length = shape.speed
    unequal = not shape.causal
    batch = Batch(shape, [(37 * i) % (length - 3) + 4 for i in range(size)] if unequal else [length] * size, device, seed)
    padded, packed = batch.padded(), batch.packed()

    def step(implementation):
        given, there = packed if unequal and implementation == "kgen" else padded
        model.zero_grad(set_to_none=True)
        with use(model, implementation):
            logits = model(**given).logits
            F.cross_entropy(logits[there].float(), batch.labels, ignore_index=-100).backward()

    tokens = batch.tokens
    alternate(report, shape, f"forward and backward, {size} x {'4 to ' if unequal else ''}{length}", step, tokens, rounds, "kgen packed, SDPA padded" if unequal else "")
    if shape.causal:
        prompt = min(256, length)
        prompts = Batch(shape, [prompt] * 8, device, seed)
        given, there = prompts.padded()
        given["attention_mask"] = there.long()
        new = 32
        alternate(report, shape, f"greedy generation, 8 x {new} after {prompt}", lambda name: generated(model, name, given, new), 8 * new, max(2, rounds // 3), "prefill included")


def alternate(report, shape, what, f, tokens, rounds, note):
    seconds = {"sdpa": [], "kgen": []}
    for name in seconds:
        timed(lambda: f(name))
    for r in range(rounds):
        for name in list(seconds) if r % 2 == 0 else list(seconds)[::-1]:
            seconds[name].append(timed(lambda: f(name)))
    rate = {name: tokens / statistics.median(values) for name, values in seconds.items()}
    report.row("speed", shape.name, what, None, f"{rate['kgen']:.0f} tokens/s, SDPA {rate['sdpa']:.0f}: {rate['kgen'] / rate['sdpa']:.3f} {note}", tokens_per_second=rate, seconds=seconds, note=note)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, type=pathlib.Path)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--parts", default="compare,train,generate,speed")
    parser.add_argument("--models", default="", help="only those whose name begins so")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=140.0, help="seconds after which no further part is begun, which is a failure")
    parser.add_argument("--tiny", action="store_true", help="small models, in host memory on a library for the emulator")
    args = parser.parse_args()
    parts = args.parts.split(",")
    if unknown := set(parts) - {"compare", "train", "generate", "speed"}:
        parser.error(f"unknown part `{', '.join(sorted(unknown))}`")
    if not args.library.is_file():
        print(f"`{args.library}` is not there: build it with `kgen build`", file=sys.stderr)
        return 3
    if not args.tiny and not torch.cuda.is_available():
        print("no GPU; --tiny runs on a library for the emulator", file=sys.stderr)
        return 3
    torch.backends.cuda.matmul.allow_tf32 = False
    device = "cpu" if args.tiny else "cuda"
    kgen = Kgen(args.library)
    register(kgen)
    report = Report()
    report.say(f"{torch.cuda.get_device_name() if device == 'cuda' else 'emulator'}, torch {torch.__version__}")
    begin = time.monotonic()
    seconds = {}
    for shape in shapes(args.tiny):
        if not shape.name.startswith(args.models):
            continue
        work = {
            "compare": [lambda d=dtype: compare(report, kgen, shape, device, d, args.seed) for dtype in ([torch.bfloat16, torch.float16] if shape.name.startswith("GPT") else [torch.bfloat16])],
            "train": [lambda: train(report, kgen, shape, device, args.seed, args.tiny)],
            "generate": [lambda: generate(report, kgen, shape, device, args.seed, args.tiny)] if shape.causal else [],
            "speed": [] if args.tiny else [lambda: speed(report, kgen, shape, device, args.seed, 9)],
        }
        for part in parts:
            for one in work[part]:
                since = time.monotonic()
                if since - begin > args.limit:
                    report.row(part, shape.name, "all", False, f"not begun: {args.limit:.0f} s were over")
                    continue
                try:
                    one()
                    if device == "cuda":
                        torch.cuda.empty_cache()
                except Exception as problem:  # what has been found so far is worth more than a trace alone
                    traceback.print_exc()
                    report.row(part, shape.name, "all", False, f"{type(problem).__name__}: {str(problem).strip().splitlines()[-1] if str(problem).strip() else ''}")
                seconds[f"{shape.name}, {part}"] = seconds.get(f"{shape.name}, {part}", 0) + time.monotonic() - since
    report.say(f"kgen was called {kgen.calls['kgen_fwd']} times forward and {kgen.calls['kgen_bwd']} times backward; {time.monotonic() - begin:.0f} s")
    report.say("all held" if not report.failed else "did not hold:\n  " + "\n  ".join(report.failed))
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "real_models.txt").write_text("\n".join(report.lines) + "\n")
    (args.out / "real_models.json").write_text(json.dumps({"machine": report.lines[0], "rule": RULE, "seed": args.seed, "seconds": seconds, "failed": report.failed, "rows": report.rows}, indent=1) + "\n")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
