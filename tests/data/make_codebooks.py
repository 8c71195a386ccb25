#!/usr/bin/env python3
"""Prints the codebooks of kernels/formats/codebooks.cpp, and the checksums of weight_groups_test.cpp.

    python3 -m pip install gguf
    python3 tests/data/make_codebooks.py

A codebook is a sorted list of numbers, whose digits are the levels of an entry's weights, the first the lowest one. A
character says how much larger than the one before a number is: '#' by 1 to '}' by 91; '~' adds 91 to the next.
"""
import argparse

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T, dequantize, quants

KINDS = (T.IQ1_S, T.IQ1_M, T.IQ2_XXS, T.IQ2_XS, T.IQ2_S, T.IQ3_XXS, T.IQ3_S, T.TQ1_0, T.TQ2_0, T.NVFP4)


def steps(kind):
    """The codebook of a type as characters."""
    quant = getattr(quants, kind.name)
    quant.init_grid()
    levels = np.searchsorted(quant.grid_map, quant.grid.reshape(quant.grid_shape))
    numbers = levels @ len(quant.grid_map) ** np.arange(quant.grid_shape[1])
    text = ""
    for step in np.diff(numbers, prepend=-1):
        assert step > 0
        text += "~" * ((step - 1) // 91) + chr(ord("#") + (step - 1) % 91)
    return text


def checksum(kind, count=2048):
    """FNV-1a of the weights of `count` blocks of bytes from a generator, with f16 fields that are numbers."""
    size = GGML_QUANT_SIZES[kind][1]
    state, bytes_ = 1, np.empty(count * size, np.uint8)
    for i in range(len(bytes_)):
        state = (state * 1664525 + 1013904223) % 2**32
        bytes_[i] = state >> 24
    blocks = bytes_.reshape(count, size)
    high = {T.IQ1_M: 55, T.TQ1_0: 53, T.TQ2_0: 65}.get(kind, 1)  # the byte with the scale's exponent
    if kind != T.NVFP4:
        blocks[:, high] &= 0xBF  # below 2
    value = 0x811C9DC5
    for byte in dequantize(blocks, kind).astype("<f4").tobytes():
        value = (value ^ byte) * 0x01000193 % 2**32
    return value


def main():
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for kind in (T.IQ1_S, T.IQ2_XXS, T.IQ2_XS, T.IQ2_S, T.IQ3_XXS, T.IQ3_S):
        text = steps(kind)
        print(kind.name, *(text[i : i + 118] for i in range(0, len(text), 118)), sep="\n")
    for kind in KINDS:
        print(f"{{weight_format::{kind.name.lower()}, {checksum(kind)}u}},")


if __name__ == "__main__":
    main()
