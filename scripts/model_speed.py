"""Parts of scripts/real_models.py: tokens per second of prefill and of generation separately, with attention's share of
the time, and of training steps."""

import re
import statistics
import time

import torch
import torch._inductor.select_algorithm
import torch.nn.functional as F
from model_attention import use
from model_shapes import SDPA, Batch, initial_model, model_of
from transformers import DynamicCache, StaticCache


#: Matches names of kernels of kgen, FlashAttention, CUTLASS and cuDNN, and of those that merge splits of keys.
FUSED = re.compile("flash|fmha|sdpa|attention|combine<|lean_reduction", re.IGNORECASE)


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
        ms = {side: kernels_ms(device, lambda: prefill(side))["attention"] for side in sides[:2] if side in times}
        shares = {side: attention / 1e3 / statistics.median(times[side]) for side, attention in ms.items()}
        text = ", ".join(f"of {side} {share:.0%}" for side, share in shares.items())
        report.row("speed", shape.name, f"prefill {batch} x {length}", None, f"attention's share of the time: {text}", attention=shares)
    told(report, "speed", shape, f"generation {batch} x {new} after {length}", alternated(generation, sides, rounds), batch * new)


def compiled(report, shape, device, seed, batch, length, new, rounds, mode, what, await_turn=None):
    """Speed with torch.compile(mode=mode) of prefill or of generation (`what`). Compiled generation has a cache of
    fixed size, and compiles the steps after the prompt, as `generate` does; the other has a growing cache. `await_turn`
    is called once everything is compiled, before anything is timed."""
    # As in `model_of`, but without keeping a float32 copy: other processes may need the memory.
    model = initial_model.__wrapped__(shape, device, seed).to(torch.bfloat16)
    if device == "cuda":
        torch.cuda.empty_cache()
    ids = tokens_of(shape, device, seed, batch, length)
    compiler, caches, text = {}, {}, {}
    torch._inductor.select_algorithm.PRINT_AUTOTUNE = False  # pages of output

    def of(how):
        """The compiled model, a separate one for each attention."""
        if how not in compiler:
            compiler[how] = torch.compile(lambda **given: model(**given), mode=mode, dynamic=False)
        return compiler[how]

    def prefill(side, measure=timed):
        how, _, way = side.partition(", ")
        run = of(how) if way else model
        with torch.no_grad(), use(model, how):
            return measure(device, lambda: run(input_ids=ids, use_cache=False, logits_to_keep=1))

    def generation(side, logits=None, measure=timed):
        how, _, way = side.partition(", ")
        with torch.no_grad(), use(model, how):
            if not way:
                cache = DynamicCache(config=model.config)
            else:
                cache = caches.setdefault(how, StaticCache(config=model.config, max_cache_len=length + new))
                cache.reset()  # one cache for all rounds: a graph contains its address
            last = model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[:, -1]
            first = last.argmax(-1, keepdim=True)
            if logits is not None:
                logits.append(last)

            def run():
                later = decode(of(how) if way else model, first, cache, length, new, logits)
                text[side] = torch.cat([first, later], 1)

            return measure(device, run)

    peer = sides_of(shape)[1]
    sides = ["kgen", "kgen, compiled", peer, f"{peer}, compiled"]
    f, title, tokens = (
        (prefill, f"prefill {batch} x {length}", batch * length)
        if what == "prefill"
        else (generation, f"generation {batch} x {new} after {length}", batch * new)
    )
    try:
        # A compiled model is traced in the first call and captured in the second; by the third both are done.
        times = alternated(f, sides, rounds, 3, await_turn)
        if without := [side for side in sides if side not in times]:
            report.row("compile", shape.name, title, None, f"out of memory: {'; '.join(without)}", without=without)
        told(report, "compile", shape, title, times, tokens)
        if device == "cuda":
            device_times(report, shape, title, f, [side for side in sides if side in times])
        if what == "generation":
            agreement(report, shape, generation, text)
    finally:
        torch._dynamo.reset()


def device_times(report, shape, title, f, sides):
    """One row: the GPU's milliseconds in one call of each side, and the part in attention. The rest of the wall time is
    the host's, or gaps between kernels."""
    found = {side: f(side, measure=kernels_ms) for side in sides}
    text = ", ".join(f"{side} {ms['all']:.2f} ms ({ms['attention']:.2f} in attention)" for side, ms in found.items())
    report.row("compile", shape.name, title, None, f"GPU busy: {text}", device_ms=found)


def agreement(report, shape, generation, text):
    """One row: the number of tokens for which each side's text is kgen's, and how close to a tie kgen's logits were
    where the texts diverge."""
    logits = []
    generation("kgen", logits)  # once more, untimed: keeping logits in a timed round would cost memory there
    own, logits = text["kgen"], torch.stack(logits, 1)
    same = {side: int((text[side] == own).cumprod(1).sum()) for side in text if side != "kgen"}
    others = {side: first_others(own, logits, text[side]) for side in same}
    of_all = ", ".join(f"{side}'s for {same[side]}{gap_told(others[side])}" for side in same)
    words = f"of {own.numel()} kgen's are, up to the first other, {of_all}"
    report.row("compile", shape.name, "tokens", None, words, same=same, first_others=others)


def first_others(own, logits, tokens):
    """Distinguishes a tie from an error where the text `tokens` diverges from the text `own`, both (batch, new + 1),
    for the first time in each sequence: from the `logits` of `own`, (batch, new + 1, vocabulary), the largest gap between
    the best token and the one in `tokens`, in units of the spacing of bf16 numbers near the best logit. None if the
    texts are equal. After the first difference the logits of a sequence cannot be compared with the other text."""
    at = (tokens == own).cumprod(1).sum(1)
    sequences = (at < own.shape[1]).nonzero().squeeze(1)
    if len(sequences) == 0:
        return None
    steps = at[sequences]
    there = logits[sequences, steps].float()
    best = there.amax(1)
    gap = best - there.gather(1, tokens[sequences, steps].unsqueeze(1)).squeeze(1)
    spacing = 2.0 ** (torch.floor(torch.log2(best.abs().clamp(min=1e-30))) - 7)
    worst = int((gap / spacing).argmax())
    return {
        "sequences": len(sequences),
        "spacings": (gap / spacing)[worst].item(),
        "gap": gap[worst].item(),
        "bf16_spacing": spacing[worst].item(),
        "sequence": int(sequences[worst]),
        "token": int(steps[worst]),
    }


def gap_told(other):
    if other is None:
        return ""
    return f" (first others within {other['spacings']:.1f} bf16 spacings of kgen's best)"


def steps(report, shape, device, seed, batch, length, rounds):
    """Forward and backward passes; for an encoder unequal sequences, packed for kgen."""
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


def decode(run, first, cache, length, new, logits=None):
    """`new` tokens after `first`, (batch, new), without synchronisation. `logits` is a list that receives each step's,
    (batch, vocabulary)."""
    token, tokens = first, []
    positions = torch.arange(length, length + new, device=first.device).unsqueeze(0)
    for step in range(new):
        torch.compiler.cudagraph_mark_step_begin()
        said = run(input_ids=token, past_key_values=cache, position_ids=positions[:, step : step + 1], use_cache=True)
        token = said.logits[:, -1:].argmax(-1)
        tokens.append(token)
        if logits is not None:
            logits.append(said.logits[:, -1])
    return torch.cat(tokens, 1)


def kernels_ms(device, f):
    """Milliseconds in which the device runs a kernel or copy of `f`: in total (`all`), in fused `attention` kernels,
    recognised by name, and for each of the ten `longest`, over all launches. Overlapping kernels count once, since
    one that starts early (programmatic dependent launch) waits for the previous one."""
    torch.cuda.synchronize(device)  # earlier work does not belong to `f`
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        f()
    spans = {}
    for event in profile.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            spans.setdefault(event.name, []).append((event.time_range.start, event.time_range.end))
    ms = {name: covered(of_name) / 1e3 for name, of_name in spans.items()}
    fused = covered(span for name, of_name in spans.items() if FUSED.search(name) for span in of_name) / 1e3
    longest = sorted(ms, key=ms.get, reverse=True)[:10]
    everything = covered(span for of_name in spans.values() for span in of_name) / 1e3
    return {"all": everything, "attention": fused, "longest": {name[:100]: ms[name] for name in longest}}


def covered(spans):
    """The length of the union of intervals (start, end)."""
    length, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        length += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return length


def timed(device, f):
    """Seconds of `f`, including the device's work."""
    finish = torch.cuda.synchronize if device == "cuda" else lambda: None
    finish()
    begin = time.perf_counter()
    f()
    finish()
    return time.perf_counter() - begin


def alternated(f, sides, rounds, before=1, await_turn=None):
    """Seconds of each side by round, in alternating order, after `before` warm-up calls; a side that runs out of memory
    has none. `await_turn` is called between the two."""
    seconds = {side: [] for side in sides}
    for side in sides:
        try:
            for _ in range(before):
                f(side)
        except torch.OutOfMemoryError:
            del seconds[side]
            torch.cuda.empty_cache()
    if await_turn is not None:
        await_turn()
    for r in range(rounds):
        for side in list(seconds)[:: 1 if r % 2 == 0 else -1]:
            seconds[side].append(f(side))
    return seconds


def told(report, part, shape, what, seconds, tokens):
    """Reports one row."""
    rate = {side: tokens / statistics.median(values) for side, values in seconds.items()}
    others = [f"{side} {value:.0f} ({rate['kgen'] / value:.3f})" for side, value in rate.items() if side != "kgen"]
    text = f"kgen {rate['kgen']:.0f} tokens/s; kgen's to that of {', '.join(others)}"
    report.row(part, shape.name, what, None, text, tokens_per_second=rate, seconds=seconds)
