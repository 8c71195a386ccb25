"""Writes quantised/deepseek-v4-fp4, a folder as DeepSeek publishes V4: experts in fp4 (two E2M1 codes in a byte of int8, a
power of two for each 32 inputs), other matrices of layers in fp8 with powers of two for blocks, names without "model.".
It is made of two layers of families/deepseek-v4. expected.json has weights by the publishers' formula, and the logits of
transformers with all of them in f32. Needs torch and transformers 5.24. Usage:

    python make_fp4_experts.py
"""

import json
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

LAYERS, WIDTH, BLOCK = 2, 64, 32
VALUES = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0])
IN_FP8 = ("wq_a", "wq_b", "wkv", "wo_a", "wo_b", "w1", "w2", "w3")


def power_above(values, most):
    """The least power of two by which values are to be divided, so that none is beyond `most`."""
    return torch.exp2(torch.ceil(torch.log2(values.clamp(min=1e-30) / most)))


def quantise_fp4(weight):
    groups = weight.float().unflatten(1, (-1, BLOCK))
    scale = power_above(groups.abs().amax(-1), 6)
    codes = (groups / scale.unsqueeze(-1)).unsqueeze(-1).sub(VALUES).abs().argmin(-1).flatten(1)
    packed = codes[:, 0::2] | codes[:, 1::2] << 4
    return packed.to(torch.uint8).view(torch.int8), scale.to(torch.float8_e8m0fnu)


def expand_fp4(packed, scale):
    """The publishers' formula."""
    codes = packed.view(torch.uint8).long()
    values = torch.stack([VALUES[codes & 15], VALUES[codes >> 4]], -1).flatten(1)
    return values * scale.float().repeat_interleave(BLOCK, 1)


def quantise_fp8(weight):
    rows, cols = (size // BLOCK for size in weight.shape)
    blocks = weight.float().reshape(rows, BLOCK, cols, BLOCK)
    scale = power_above(blocks.abs().amax((1, 3)), 448)
    codes = (blocks / scale[:, None, :, None]).reshape(weight.shape).to(torch.float8_e4m3fn)
    return codes, scale.to(torch.float8_e8m0fnu)


def expand_fp8(codes, scale):
    return codes.float() * scale.float().repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)


def widened(name, weight):
    """MLPs have widths of whole groups."""
    if ".w2." in name:
        return torch.cat([weight, 0.1 * torch.randn(weight.shape[0], WIDTH - weight.shape[1]).bfloat16()], 1)
    return torch.cat([weight, 0.1 * torch.randn(WIDTH - weight.shape[0], weight.shape[1]).bfloat16()])


def main():
    data = Path(__file__).parent
    torch.manual_seed(1)
    stored, plain, samples = {}, {}, {}
    for name, weight in load_file(data / "families/deepseek-v4/model.safetensors").items():
        parts = name.removeprefix("model.").split(".")
        if parts[0] == "layers" and int(parts[1]) >= LAYERS:
            continue
        kind = parts[-2]
        name = {"embed_tokens.weight": "embed.weight", "hc_head.hc_fn": "hc_head_fn", "hc_head.hc_base": "hc_head_base",
                "hc_head.hc_scale": "hc_head_scale"}.get(".".join(parts), ".".join(parts))
        if kind in ("w1", "w2", "w3"):
            weight = widened(name, weight)
        if ".experts." in name or (kind in IN_FP8 and ".compressor." not in name):
            quantise, expand = (quantise_fp4, expand_fp4) if ".experts." in name else (quantise_fp8, expand_fp8)
            codes, scale = quantise(weight)
            stored[name], stored[name.removesuffix("weight") + "scale"] = codes, scale
            weight = expand(codes, scale)
            some = torch.randint(0, weight.numel(), (8,)).tolist()
            samples[name] = [[i // weight.shape[1], i % weight.shape[1], weight.flatten()[i].item()] for i in some]
        else:
            stored[name] = weight
        plain[name] = weight if weight.dtype == torch.int64 else weight.float()
    config = json.loads((data / "families/deepseek-v4/config.json").read_text())
    config |= {"num_hidden_layers": LAYERS, "layer_types": config["layer_types"][:LAYERS], "moe_intermediate_size": WIDTH,
               "mlp_layer_types": config["mlp_layer_types"][:LAYERS], "sliding_window": 16, "index_topk": 8}
    with tempfile.TemporaryDirectory() as place:
        save_file(plain, Path(place) / "model.safetensors", metadata={"format": "pt"})
        (Path(place) / "config.json").write_text(json.dumps(config | {"dtype": "float32"}))
        model, about = AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32, attn_implementation="eager",
                                                            output_loading_info=True)
        assert not about["missing_keys"] and not about["unexpected_keys"] and not about["mismatched_keys"], about
        ids = torch.randint(0, config["vocab_size"], (60,)).tolist()
        with torch.no_grad():
            logits = model.eval()(torch.tensor([ids]), use_cache=False).logits[0, -1].tolist()
    folder = data / "quantised/deepseek-v4-fp4"
    folder.mkdir(exist_ok=True)
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    config |= {"expert_dtype": "fp4",
               "quantization_config": {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
                                       "scale_fmt": "ue8m0", "weight_block_size": [BLOCK, BLOCK]}}
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    expected = {"samples": samples, "ids": ids, "logits": [round(x, 6) for x in logits]}
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")


if __name__ == "__main__":
    main()
