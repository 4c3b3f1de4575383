"""Parts of scripts/real_models.py: tokens per second of prefill and of generation apart, with attention's share of the
time, and of training steps."""

import re
import statistics
import time

import torch
import torch._inductor.select_algorithm
import torch.nn.functional as F
from model_attention import use
from model_shapes import SDPA, Batch, model_of
from transformers import DynamicCache, StaticCache


#: In the names of kgen's kernels, FlashAttention's, CUTLASS' and cuDNN's.
FUSED = re.compile("flash|fmha|sdpa|attention", re.IGNORECASE)


def sides_of(shape):
    """The attention implementations that are timed."""
    return ["kgen", "sdpa", "eager"] if shape.peers is SDPA else ["kgen", "eager"]


def speed(report, shape, device, seed, batch, length, new, rounds):
    """Prefill of `batch` prompts of `length` tokens, and generation of `new` tokens after them."""
    model = model_of(shape, device, torch.bfloat16, seed)
    ids = tokens_of(shape, device, seed, batch, length)

    def prefill(side):
        with torch.no_grad(), use(model, side):
            return timed(device, lambda: model(input_ids=ids, use_cache=False, logits_to_keep=1))

    def generation(side):
        with torch.no_grad(), use(model, side):
            cache = DynamicCache(config=model.config)
            first = model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[:, -1:].argmax(-1)
            return timed(device, lambda: decode(model, first, cache, length, new))

    sides = sides_of(shape)
    times = alternated(prefill, sides, rounds)
    told(report, "speed", shape, f"prefill {batch} x {length}", times, batch * length)
    if device == "cuda":
        shares = {side: attention_ms(lambda: prefill(side)) / 1e3 / statistics.median(times[side]) for side in sides[:2] if side in times}
        text = ", ".join(f"of {side} {share:.0%}" for side, share in shares.items())
        report.row("speed", shape.name, f"prefill {batch} x {length}", None, f"attention's share of the time: {text}", attention=shares)
    told(report, "speed", shape, f"generation {batch} x {new} after {length}", alternated(generation, sides, rounds), batch * new)


def compiled(report, shape, device, seed, batch, length, new, rounds, mode, what):
    """The same with torch.compile(mode=mode), `what` of the two. Compiled generation has a cache of fixed size, and
    compiles the steps after the prompt, as `generate` does; the other has one that grows."""
    model = model_of(shape, device, torch.bfloat16, seed)
    ids = tokens_of(shape, device, seed, batch, length)
    compiler, caches, text = {}, {}, {}
    torch._inductor.select_algorithm.PRINT_AUTOTUNE = False  # pages of it

    def of(how):
        """The compiled model, another one for each attention."""
        if how not in compiler:
            compiler[how] = torch.compile(lambda **given: model(**given), mode=mode, dynamic=False)
        return compiler[how]

    def prefill(side):
        how, _, way = side.partition(", ")
        run = of(how) if way else model
        with torch.no_grad(), use(model, how):
            return timed(device, lambda: run(input_ids=ids, use_cache=False, logits_to_keep=1))

    def generation(side):
        how, _, way = side.partition(", ")
        with torch.no_grad(), use(model, how):
            if not way:
                cache = DynamicCache(config=model.config)
            else:
                cache = caches.setdefault(how, StaticCache(config=model.config, max_cache_len=length + new))
                cache.reset()  # one cache for all rounds: a graph knows its address
            first = model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[:, -1:].argmax(-1)

            def run():
                text[side] = decode(of(how) if way else model, first, cache, length, new)

            return timed(device, run)

    peer = sides_of(shape)[1]
    sides = ["kgen", "kgen, compiled", peer, f"{peer}, compiled"]
    try:
        # A compiled model is traced in the first call, captured in the second, and in the third both have ended.
        if what == "prefill":
            told(report, "compile", shape, f"prefill {batch} x {length}", alternated(prefill, sides, rounds, 3), batch * length)
        else:
            times = alternated(generation, sides, rounds, 3)
            told(report, "compile", shape, f"generation {batch} x {new} after {length}", times, batch * new)
            same = {side: int((text[side] == text["kgen"]).cumprod(1).sum()) for side in text if side != "kgen"}
            of_all = ", ".join(f"{side}'s for {count}" for side, count in same.items())
            report.row("compile", shape.name, "tokens", None, f"of {batch * new} kgen's are, up to the first other, {of_all}", same=same)
    finally:
        torch._dynamo.reset()


def steps(report, shape, device, seed, batch, length, rounds):
    """Forward and backward passes; of an encoder unequal sequences, which kgen has packed."""
    model = model_of(shape, device, torch.bfloat16, seed)
    lengths = [length] * batch if shape.causal else [(37 * i) % (length - 3) + 4 for i in range(batch)]
    some = Batch(shape, lengths, device, seed)
    padded, packed = some.padded(), some.packed()

    def step(side):
        given, there = packed if not shape.causal and side == "kgen" else padded
        model.zero_grad(set_to_none=True)

        def run():
            F.cross_entropy(model(**given).logits[there].float(), some.labels, ignore_index=-100).backward()

        with use(model, side):
            return timed(device, run)

    what = f"step {batch} x {length}" if shape.causal else f"step {batch} x 4 to {length}, kgen packed, others padded"
    told(report, "steps", shape, what, alternated(step, sides_of(shape), rounds), some.tokens)


def tokens_of(shape, device, seed, batch, length):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(shape.config.vocab_size, (batch, length), generator=generator).to(device)


def decode(run, first, cache, length, new):
    """`new` tokens after `first`, (batch, new); nothing waits for the device."""
    token, tokens = first, []
    positions = torch.arange(length, length + new, device=first.device).unsqueeze(0)
    for step in range(new):
        torch.compiler.cudagraph_mark_step_begin()
        said = run(input_ids=token, past_key_values=cache, position_ids=positions[:, step : step + 1], use_cache=True)
        token = said.logits[:, -1:].argmax(-1)
        tokens.append(token)
    return torch.cat(tokens, 1)


def attention_ms(f):
    """Milliseconds of the device in fused attention kernels, by their names."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        f()
    kernels = profile.key_averages()
    return sum(kernel.self_device_time_total for kernel in kernels if FUSED.search(kernel.key)) / 1e3


def timed(device, f):
    """Seconds of `f`, the device's work included."""
    finish = torch.cuda.synchronize if device == "cuda" else lambda: None
    finish()
    begin = time.perf_counter()
    f()
    finish()
    return time.perf_counter() - begin


def alternated(f, sides, rounds, before=1):
    """Seconds of each side by round, in turn and turned about, after calls `before` them; a side that memory does not
    suffice for has none."""
    seconds = {side: [] for side in sides}
    for side in sides:
        try:
            for _ in range(before):
                f(side)
        except torch.OutOfMemoryError:
            del seconds[side]
            torch.cuda.empty_cache()
    for r in range(rounds):
        for side in list(seconds)[:: 1 if r % 2 == 0 else -1]:
            seconds[side].append(f(side))
    return seconds


def told(report, part, shape, what, seconds, tokens):
    """One row; none without rounds."""
    if not all(seconds.values()):
        return
    rate = {side: tokens / statistics.median(values) for side, values in seconds.items()}
    others = [f"{side} {value:.0f} ({rate['kgen'] / value:.3f})" for side, value in rate.items() if side != "kgen"]
    text = f"kgen {rate['kgen']:.0f} tokens/s; kgen's to that of {', '.join(others)}"
    report.row(part, shape.name, what, None, text, tokens_per_second=rate, seconds=seconds)
