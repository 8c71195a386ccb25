"""Decode rate of transformers with a static cache and a compiled step, for an 8-billion-parameter model of random weights
in bf16: the shape of troupe's synthetic:llama-8b."""
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

config = LlamaConfig(hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
                     num_key_value_heads=8, vocab_size=128256, max_position_embeddings=8192)
context, steps = 1024, 32
torch.set_default_dtype(torch.bfloat16)
with torch.device("cuda"), torch.no_grad():
    model = LlamaForCausalLM(config).eval()
    step = torch.compile(lambda **inputs: model(**inputs).logits, mode="reduce-overhead", fullgraph=True)
    for batch in (1, 64):
        cache = StaticCache(config=config, max_batch_size=batch, max_cache_len=context + 2 * steps, device="cuda",
                            dtype=torch.bfloat16)
        prompt = torch.randint(0, config.vocab_size, (batch, 1))

        def decode(first, count):
            for position in range(first, first + count):
                step(input_ids=prompt, past_key_values=cache, cache_position=torch.tensor([position]),
                     position_ids=torch.full((batch, 1), position))
            torch.cuda.synchronize()

        decode(context, 8)
        begin = time.perf_counter()
        decode(context + 8, steps)
        seconds = time.perf_counter() - begin
        print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}: batch {batch}, context {context}: "
              f"{1e3 * seconds / steps:.2f} ms per step, {batch * steps / seconds:.0f} tokens per second")
