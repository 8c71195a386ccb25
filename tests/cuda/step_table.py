#!/usr/bin/env python3
"""Reckons what the rows of a step cost on a GPU: bytes, operations and launches of a prompt read in steps, as a table.

    step_table.py                       # llama-8b with 4-bit weights, a prompt of 8192 tokens, an H100
    step_table.py --bits 16 --prompt 32768

Each product takes the longer of its bytes and its operations. Quantised weights are expanded to bf16 once per step:
their codes are read, bf16 is written and read again. Nothing here is measured; it says which terms a number of rows
divides by. The scheduler measures the rest (runtime/scheduling/cost/step_budget.hpp).
"""
import argparse


def reckon(a, rows):
    """(milliseconds of expansion, products, attention, launches) of the whole prompt."""
    steps = -(-a.prompt // rows)
    weights = a.layers * (a.hidden * (a.heads + 2 * a.kv_heads) * a.head_dim + a.heads * a.head_dim * a.hidden
                          + 3 * a.hidden * a.inner)
    expand = products = attention = 0.0
    for step in range(steps):
        n = min(rows, a.prompt - step * rows)
        if a.bits < 16:
            expand += weights * (a.bits / 8 + 2) / a.bandwidth
        products += max(weights * 2 / a.bandwidth, 2 * weights * n / (a.rate * a.share))
        pairs = n * step * rows + n * (n + 1) / 2
        attention += a.layers * a.heads * 4 * a.head_dim * pairs / (a.rate * a.attention_share)
    launches = steps * a.layers * a.launches * a.launch
    return [1e3 * x for x in (expand, products, attention, launches)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default, what in (
            ("prompt", 8192, "tokens"), ("layers", 32, ""), ("hidden", 4096, ""), ("inner", 14336, ""), ("heads", 32, ""),
            ("kv-heads", 8, ""), ("head-dim", 128, ""), ("bits", 4.5, "per weight; 16: bf16, not expanded"),
            ("bandwidth", 3.35e12, "bytes per second"), ("rate", 990e12, "bf16 operations per second"),
            ("share", 0.6, "of it that products reach"), ("attention-share", 0.35, "of it that attention reaches"),
            ("launches", 12, "per layer"), ("launch", 2.5e-6, "seconds each")):
        parser.add_argument("--" + name, type=type(default), default=default, help=what + " (%(default)s)")
    a = parser.parse_args()
    print("| rows | steps | expansion, ms | products | attention | launches | sum |\n|---|---|---|---|---|---|---|")
    for rows in (256, 512, 1024, 2048, 4096, 8192):
        parts = reckon(a, rows)
        print(f"| {rows} | {-(-a.prompt // rows)} | " + " | ".join(f"{x:.0f}" for x in (*parts, sum(parts))) + " |")


if __name__ == "__main__":
    main()
