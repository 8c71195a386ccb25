"""Measures PyTorch's flash attention on the shape of troupe_cuda_bench's prefill attention, for comparison."""
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

tokens, heads, kv_heads, dim = 8192, 32, 8, 128
q = torch.randn(1, heads, tokens, dim, device="cuda", dtype=torch.bfloat16)
k, v = (torch.randn(1, kv_heads, tokens, dim, device="cuda", dtype=torch.bfloat16) for _ in range(2))
k, v = (x.repeat_interleave(heads // kv_heads, dim=1) for x in (k, v))
times = []
with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
    for i in range(23):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e-3)
median = sorted(times[3:])[10]
operations = 4 * heads * dim * tokens * (tokens + 1) / 2
print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}: {median * 1e3:.2f} ms, {operations / median / 1e12:.0f} TFLOP/s")
