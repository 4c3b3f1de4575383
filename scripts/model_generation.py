"""A part of scripts/real_models.py: greedy generation with a KV cache, compared with the peer and float64."""

import copy

import torch
from model_attention import RULE, errors, ratio, use
from model_shapes import Batch, model_of
from transformers import DynamicCache


def generate(report, shape, device, seed, new, tiny):
    """Greedy generation of `new` tokens from equal, left-padded and long prompts; reports one row for each."""
    model = model_of(shape, device, torch.bfloat16, seed)
    judge = copy.deepcopy(model).double()
    prompts = [3, 9, 5] if tiny else [64, 7, 200, 33]
    equal, unequal, one = (Batch(shape, lengths, device, seed + 7) for lengths in ([prompts[0]] * 4, prompts, [shape.long]))
    for way, batch in (("equal prompts", equal), ("left-padded prompts", unequal), (f"prompt of {shape.long}", one)):
        given, _ = batch.padded(left=True)
        mask = given.get("attention_mask", torch.ones_like(given["input_ids"]))
        compared(report, shape, way, model, judge, {"input_ids": given["input_ids"], "attention_mask": mask}, new)


def compared(report, shape, way, model, judge, given, new):
    """One row. The two rules:

    * logits have at most twice the error of the peer's, each side against float64 of its own text;
    * in the peer's text, passed step by step, kgen's best token is the peer's if the peer's two best logits are
      further apart than the largest errors of both sides' logits in bf16 against float64.
    """
    peer, how = next(iter(shape.peers.items()))
    tokens, logits = zip(*(generated(model, name, given, new) for name in (how, "kgen")))
    exact = [judged(judge, shape.judge, given, text) for text in tokens]
    error = [errors(found, right) for found, right in zip(logits, exact)]
    forced = decoded(model, "kgen", given, tokens[0])
    error_forced = errors(forced, exact[0])

    best = logits[0].topk(2, dim=-1).values
    gap = best[..., 0] - best[..., 1]
    other = forced.argmax(-1) != tokens[0]
    spacing = 2.0 ** (torch.floor(torch.log2(best[..., 0].abs().clamp(min=1e-30))) - 7)  # for bf16
    rounding = error[0]["max"] + error_forced["max"]
    widest = gap[other].max().item() if bool(other.any()) else 0.0
    counts = {
        "positions": other.numel(),
        "equal": int((~other).sum()),
        "other_beyond_a_bf16_spacing": int((other & (gap > spacing)).sum()),
        "other_beyond_rounding": int((other & (gap > rounding)).sum()),
        "further_apart_than_rounding": int((gap > rounding).sum()),
        "equal_up_to_the_first_other": int((tokens[0] == tokens[1]).cumprod(1).sum()),
    }
    figures = [ratio(error[1], error[:1]), ratio(error_forced, error[:1])]
    held = all(figure <= RULE for figure in figures) and counts["other_beyond_rounding"] == 0
    report.row(
        "generate", shape.name, way, held,
        f"logits' error to {peer}'s {max(figures):.2f}; best token {peer}'s at {counts['equal']} of {other.numel()} positions of its text, the others "
        f"within {widest:.4f} of a tie ({counts['other_beyond_a_bf16_spacing']} beyond one bf16 spacing; rounding is {rounding:.4f}); "
        f"free text equal up to token {counts['equal_up_to_the_first_other']} of {tokens[1].numel()}",
        ratios=figures, errors={peer: error[0], "kgen": error[1], "kgen, forced": error_forced}, widest_gap=widest, rounding=rounding, **counts,
    )  # fmt: skip


def generated(model, implementation, given, new):
    """Greedy tokens after the prompt from `generate`, and each step's logits before any processing."""
    with torch.no_grad(), use(model, implementation):
        said = model.generate(
            **given, max_new_tokens=new, min_new_tokens=new, do_sample=False, use_cache=True, return_dict_in_generate=True,
            output_logits=True, pad_token_id=0,
        )  # fmt: skip
    return said.sequences[:, given["input_ids"].shape[1] :], torch.stack(said.logits, 1)


def decoded(model, implementation, given, tokens):
    """The logits from which each of `tokens` is chosen, with a cache, given the other tokens."""
    ids, mask = given["input_ids"], given["attention_mask"]
    cache, logits = DynamicCache(config=model.config), []
    with torch.no_grad(), use(model, implementation):
        for step in range(tokens.shape[1]):
            if step > 0:
                ids = tokens[:, step - 1 : step]
                mask = torch.cat([mask, torch.ones_like(ids)], 1)
            positions = (mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
            said = model(
                input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True, logits_to_keep=1
            )  # fmt: skip
            logits.append(said.logits[:, -1].float())
    return torch.stack(logits, 1)


def judged(judge, implementation, given, tokens):
    """Float64 logits for each new token, from one pass over prompt and answer."""
    ids = torch.cat([given["input_ids"], tokens], 1)
    there = torch.cat([given["attention_mask"], torch.ones_like(tokens)], 1)
    with torch.no_grad(), use(judge, implementation):
        positions = (there.cumsum(1) - 1).clamp(min=0)
        kept = tokens.shape[1] + 1
        logits = judge(input_ids=ids, attention_mask=there, position_ids=positions, logits_to_keep=kept).logits
    return logits[:, :-1]
