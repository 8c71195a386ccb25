#!/usr/bin/env python3
"""Measures transformers on a GPU, for comparison with `troupe bench model --device cuda:0` on the same shape.

    tests/bench/transformers_bench.py --shape llama-8b --prompt 8192 --generate 64 --batch 1,64 --context 1024

Weights are random and in bf16, attention is SDPA with a static cache. Decode steps are replayed as a CUDA graph that
includes argmax, so that no Python runs within a step. Prints one line of JSON per figure: tokens/s, the median over
--repeat. Prefill is one prompt of --prompt tokens; decode starts with --context tokens in each sequence. --device cpu
runs the same without a graph, to try the script. Needs PyTorch and transformers.
"""

import argparse
import json
import statistics
import time

import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

SHAPES = {  # layers, hidden, heads, K/V heads, feed-forward, vocabulary, tied; same as in `troupe bench model`
    "llama-135m": (30, 576, 9, 3, 1536, 49152, True),
    "llama-1b": (16, 2048, 32, 8, 8192, 50257, True),
    "llama-8b": (32, 4096, 32, 8, 14336, 128256, False),
}


class Model:
    def __init__(self, shape, device):
        layers, hidden, heads, kv_heads, ffn, vocab, tied = SHAPES[shape]
        self.config = LlamaConfig(num_hidden_layers=layers, hidden_size=hidden, num_attention_heads=heads,
                                  num_key_value_heads=kv_heads, intermediate_size=ffn, vocab_size=vocab,
                                  max_position_embeddings=131072, tie_word_embeddings=tied,
                                  attn_implementation="sdpa")
        default = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)
        with torch.device(device):
            self.model = LlamaForCausalLM(self.config).eval()
        torch.set_default_dtype(default)
        self.device = torch.device(device)

    def ids(self, batch, tokens):
        return torch.randint(0, self.config.vocab_size, (batch, tokens), device=self.device)

    def forward(self, cache, ids, positions):
        """Returns the most likely next token of each sequence. ids: [batch, tokens]; positions: [tokens]."""
        logits = self.model(ids, past_key_values=cache, use_cache=True, cache_position=positions,
                            position_ids=positions.unsqueeze(0), logits_to_keep=1).logits
        return logits[:, -1].argmax(-1, keepdim=True)

    def synchronise(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def prefill(self, tokens):
        """Returns the seconds that one prompt takes."""
        cache = StaticCache(config=self.config, max_cache_len=tokens)
        ids, positions = self.ids(1, tokens), torch.arange(tokens, device=self.device)
        self.forward(cache, ids, positions)  # allocates
        cache.reset()
        self.synchronise()
        begin = time.perf_counter()
        self.forward(cache, ids, positions)
        self.synchronise()
        return time.perf_counter() - begin

    def decode(self, batch, context, generate, repeat):
        """Returns the seconds per step, one value per repetition."""
        cache = StaticCache(config=self.config, max_cache_len=context + generate + 8)
        chunk = max(1, min(context, 8192 // batch))
        for first in range(0, context, chunk):
            last = min(context, first + chunk)
            self.forward(cache, self.ids(batch, last - first), torch.arange(first, last, device=self.device))
        ids = self.ids(batch, 1)
        position = torch.tensor([context], device=self.device)

        def step():
            ids.copy_(self.forward(cache, ids, position))
            position.add_(1)

        replay = step
        if self.device.type == "cuda":
            aside = torch.cuda.Stream()
            with torch.cuda.stream(aside):
                for _ in range(3):
                    step()
            torch.cuda.current_stream().wait_stream(aside)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                step()
            replay = graph.replay
        seconds = []
        for _ in range(repeat):
            position.fill_(context)
            self.synchronise()
            begin = time.perf_counter()
            for _ in range(generate):
                replay()
            self.synchronise()
            seconds.append((time.perf_counter() - begin) / generate)
        return seconds


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--shape", choices=SHAPES, default="llama-8b")
    arguments.add_argument("--device", default="cuda:0")
    arguments.add_argument("--prompt", type=int, default=8192)
    arguments.add_argument("--generate", type=int, default=64)
    arguments.add_argument("--context", type=int, default=1024)
    arguments.add_argument("--batch", default="1", help="batch sizes, separated by commas")
    arguments.add_argument("--repeat", type=int, default=5)
    options = arguments.parse_args()
    where = {"shape": options.shape, "torch": torch.__version__, "transformers": transformers.__version__,
             "device": torch.cuda.get_device_name(options.device) if options.device != "cpu" else "cpu"}
    with torch.inference_mode():
        model = Model(options.shape, options.device)
        seconds = statistics.median(model.prefill(options.prompt) for _ in range(options.repeat))
        print(json.dumps(where | {"prompt": options.prompt, "prefill_tps": options.prompt / seconds}), flush=True)
        for batch in map(int, options.batch.split(",")):
            seconds = statistics.median(model.decode(batch, options.context, options.generate, options.repeat))
            print(json.dumps(where | {"batch": batch, "context": options.context, "decode_tps": batch / seconds}), flush=True)


if __name__ == "__main__":
    main()
