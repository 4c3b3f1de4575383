"""Simulates how evenly orders of work occupy the blocks of Hopper's forward kernels: no GPU.

    python3 benches/work_order.py

A block takes TILE_US for a tile of queries and STEP_US for each tile of keys that it sees under a causal mask. For each
batch and order the time of the last block is printed as a multiple of the mean: 1 is perfect.

fixed    kernels without pages (templates/attention/hopper/work_order.tera): a grid as if all sequences were as
         long as the longest, dealt out in groups of heads, forwards and backwards alternately
list     kernels that read pages, without a work counter: only tiles that have rows, dealt out in the same way
counter  the same with a work counter: a block that is done takes the next tile (hopper/work_queue.tera)
"""

import heapq
import random

BLOCKS = 132
TILE_US, STEP_US = 1.5, 0.75
L2_FOR_KEYS = 17 << 20
TILES = {64: (192, 96), 128: (128, 128)}  # queries and keys of a tile, by head dim


def item_us(length, tile, m, n):
    """Time of tile number `tile`, counted from the last query; None if it has no rows."""
    from_end = tile * m
    return TILE_US + STEP_US * -(-(length - from_end) // n) if from_end < length else None


def imbalance(heads, tiles):
    """`imbalance` of kgen/work_groups.cuh."""
    items = heads * tiles
    rounds = -(-items // BLOCKS)
    last = items - (rounds - 1) * BLOCKS
    if rounds % 2:
        return last * 1024 // heads + 1024
    return 0 if last == BLOCKS else abs((BLOCKS - last) * 1024 // heads - 1024)


def heads_a_group(heads, tiles, bytes_a_head):
    """`heads_a_group` of kgen/work_groups.cuh."""
    if heads * tiles <= BLOCKS:
        return heads
    if tiles < BLOCKS // 4:
        two_rounds = 2 * BLOCKS // tiles
        return min(two_rounds if two_rounds * bytes_a_head <= L2_FOR_KEYS else BLOCKS // tiles, heads)
    most = min(BLOCKS // 8, heads)

    def of_all(count):
        last = heads % count
        return imbalance(count, tiles) * (heads // count) + (imbalance(last, tiles) if last else 0)

    return min(range(most, (most - 1) // 2, -1), key=of_all)


def fixed(lengths, heads, heads_k, head_dim):
    m, n = TILES[head_dim]
    busy, tiles, all_heads = [0.0] * BLOCKS, -(-max(lengths) // m), heads * len(lengths)
    group = heads_a_group(all_heads, tiles, 4 * head_dim * max(lengths) * heads_k // heads)
    for number, first in enumerate(range(0, all_heads, group)):
        count = min(group, all_heads - first)
        for item in range(count * tiles):
            turn, block = divmod(item, BLOCKS)
            if (turn + number) % 2:
                block = BLOCKS - 1 - block
            busy[block] += item_us(lengths[(first + item % count) // heads], item // count, m, n) or 0
    return busy


def items(lengths, heads, head_dim):
    m, n = TILES[head_dim]
    return [item_us(length, tile, m, n) for length in lengths for tile in range(-(-length // m)) for _ in range(heads)]


def from_list(lengths, heads, _, head_dim):
    busy = [0.0] * BLOCKS
    for number, us in enumerate(items(lengths, heads, head_dim)):
        turn, block = divmod(number, BLOCKS)
        busy[BLOCKS - 1 - block if turn % 2 else block] += us
    return busy


def by_counter(lengths, heads, _, head_dim):
    busy = [0.0] * BLOCKS
    for us in items(lengths, heads, head_dim):
        heapq.heapreplace(busy, busy[0] + us)
    return busy


def main():
    random.seed(1)

    def some(count, low, high):
        return [random.randint(low, high) for _ in range(count)]

    batches = {
        "8192 + 30 of 64..512": [8192, *some(30, 64, 512)],
        "15 of 64..512 + 8192 + 15": [*some(15, 64, 512), 8192, *some(15, 64, 512)],
        "30 of 64..512 + 8192": [*some(30, 64, 512), 8192],
        "64 of 300..700": some(64, 300, 700),
        "12 of 1..6000": some(12, 1, 6000),
        "16 of 4096": [4096] * 16,
    }
    print(f"{'batch':28} {'head dim':>8} {'heads':>6} {'fixed':>7} {'list':>7} {'counter':>8}")
    for name, lengths in batches.items():
        for head_dim in TILES:
            for heads, heads_k in ((32, 8), (16, 16), (12, 12)):
                orders = [order(lengths, heads, heads_k, head_dim) for order in (fixed, from_list, by_counter)]
                evenness = [max(busy) * BLOCKS / sum(busy) for busy in orders]
                times = "{:7.3f} {:7.3f} {:8.3f}".format(*evenness)
                print(f"{name:28} {head_dim:8} {heads:3}/{heads_k:<2} {times}")


if __name__ == "__main__":
    main()
