"""Writes what the packages hqq and auto-round save, for quantised_packages_test.cpp: below packages small matrices, each
with the values that the package itself computes from it (`NAME.expected`), below quantised a folder of each, and
packages/models.json with some weights of these and their logits after a few tokens. Needs torch, transformers 5, hqq 0.2
and auto-round 0.16. Usage:

    python make_package_folders.py
"""

import copy
import importlib.machinery
import json
import shutil
import sys
import tempfile
from pathlib import Path
from unittest.mock import MagicMock

import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

texts = sys.modules["datasets"] = MagicMock()  # auto-round imports it for calibration, which is not needed here
texts.__spec__, texts.__version__ = importlib.machinery.ModuleSpec("datasets", None), "4.0.0"

from auto_round import AutoRound  # noqa: E402
from auto_round.experimental.qmodules.mx import MXFP4QuantLinear, MXFP8QuantLinear  # noqa: E402
from auto_round.experimental.qmodules.nvfp4 import NVFP4QuantLinear  # noqa: E402
from auto_round.export.export_to_awq.utils import WQLinear_GEMM  # noqa: E402
from auto_round.schemes import QuantizationScheme  # noqa: E402
from auto_round_extension.torch import qlinear_torch, qlinear_torch_zp  # noqa: E402
from hqq.core.quantize import BaseQuantizeConfig, HQQLinear  # noqa: E402

OUTPUTS, INPUTS = 32, 64


def linear(seed, outputs, inputs, bias=False):
    torch.manual_seed(seed)
    layer = torch.nn.Linear(inputs, outputs, bias=bias)
    layer.weight.data = torch.randn(outputs, inputs) * 0.05
    return layer


def add_hqq(to, name, seed, bits, group, axis=1, dtype=torch.float16, outputs=OUTPUTS, inputs=INPUTS, bias=False, **more):
    layer = linear(seed, outputs, inputs, bias)
    config = BaseQuantizeConfig(nbits=bits, group_size=group, axis=axis, **more)
    quantised = HQQLinear(layer, config, compute_dtype=dtype, device="cpu")
    for key, value in quantised.state_dict().items():
        to[f"{name}.{key}"] = value.data.contiguous() if isinstance(value, torch.nn.Parameter) else value.contiguous()
    to[f"{name}.expected"] = quantised.dequantize().contiguous()


def hqq_matrices():
    to = {}
    for i, bits in enumerate((8, 6, 4, 3, 2, 1.58, 1)):
        label = str(bits).replace(".", "_")
        add_hqq(to, f"inputs{label}", i, bits, 32)
        add_hqq(to, f"outputs{label}", 20 + i, bits, 32, axis=0)
    add_hqq(to, "bf16", 40, 4, 32, dtype=torch.bfloat16, bias=True)
    add_hqq(to, "bf16wide", 41, 8, 32, dtype=torch.bfloat16)
    add_hqq(to, "f32", 42, 4, 32, dtype=torch.float32)
    add_hqq(to, "asfloat", 43, 4, 64, view_as_float=True)
    add_hqq(to, "asfloat3", 44, 3, 64, view_as_float=True)
    add_hqq(to, "whole", 45, 4, None)
    add_hqq(to, "small", 46, 4, 8)
    add_hqq(to, "across", 47, 4, 64, outputs=8, inputs=96)  # groups that end in other rows than they begin in
    add_hqq(to, "padded", 48, 3, 32, outputs=7)  # 14 groups in words of ten
    return to


def integers(layer, bits, group, symmetric):
    """Scales and zero points [outputs, groups] as AutoRound has them; symmetric ones are one number."""
    weights = layer.weight.data
    groups = weights.reshape(weights.shape[0], -1, group)
    most = 2**bits - 1
    if symmetric:
        scales = groups.abs().amax(-1) * 2 / most
        zeros = 2 ** (bits - 1)
    else:
        low, high = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
        scales = (high - low) / most
        zeros = torch.round(-low / scales).clamp(1, most)
    return scales.half().float(), zeros


def add_auto_round(to, kind, name, seed, bits, group, symmetric, inputs=INPUTS):
    layer = linear(seed, OUTPUTS, inputs)
    scales, zeros = integers(layer, bits, group, symmetric)
    if kind == "awq":
        packed = WQLinear_GEMM.from_linear(
            layer, bits, group, scales=scales.t().contiguous(), zeros=zeros if symmetric else zeros.t().contiguous()
        )
    else:
        module = qlinear_torch_zp if kind == "less-one" else qlinear_torch
        packed = module.QuantLinear(bits, group, inputs, OUTPUTS, bias=False, g_idx=kind == "gptqmodel")
        packed.device = "cpu"
        packed.pack(layer, scales, zeros, None, device="cpu")
    for key, value in packed.state_dict().items():
        to[f"{name}.{key}"] = value.contiguous()
    half = torch.eye(inputs, dtype=torch.float16)  # multiplying with it leaves the weights
    to[f"{name}.expected"] = packed(half).reshape(inputs, OUTPUTS).t().contiguous()


def auto_round_matrices(kind):
    to = {}
    for i, bits in enumerate({"awq": (4, 5, 6, 7), "gptqmodel": (4, 8)}.get(kind, (2, 3, 4, 5, 6, 7, 8))):
        for symmetric in (True, False):
            name = f"{'symmetric' if symmetric else 'asymmetric'}{bits}"
            add_auto_round(to, kind, name, 10 * i + symmetric, bits, 32, symmetric)
    add_auto_round(to, kind, "whole4", 90, 4, INPUTS, False)
    if kind != "awq":
        add_auto_round(to, kind, "small4", 91, 4, 16, True)
        add_auto_round(to, kind, "whole8", 92, 8, INPUTS, True)
    return to


def tiny_llama():
    torch.manual_seed(7)
    config = LlamaConfig(
        hidden_size=128, intermediate_size=160, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
        head_dim=64, vocab_size=64, max_position_embeddings=128, rms_norm_eps=1e-5, eos_token_id=0, bos_token_id=None,
    )  # fmt: skip
    config.architectures = ["LlamaForCausalLM"]
    model = LlamaForCausalLM(config).half()
    for parameter in model.parameters():
        if parameter.dim() == 2:
            parameter.data = torch.randn(parameter.shape).half() * 0.1
    return model


def write_config(folder, config, quantisation):
    kept = ("architectures", "model_type", "hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size",
            "num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps", "max_position_embeddings",
            "rope_parameters", "tie_word_embeddings", "hidden_act", "eos_token_id")  # fmt: skip
    values = {key: config[key] for key in kept} | {"quantization_config": quantisation}
    (folder / "config.json").write_text(json.dumps(values, indent=1) + "\n")


def expectations(model, weights):
    """Some weights of each quantised matrix, and the logits of a model that has them."""
    model = copy.deepcopy(model).float().eval()
    state = model.state_dict()
    for name, values in weights.items():
        state[name + ".weight"] = values.float()
    model.load_state_dict(state)
    ids = torch.randint(0, 64, (20,)).tolist()
    samples = {}
    for name, values in weights.items():
        rows, columns = torch.randint(0, values.shape[0], (24,)), torch.randint(0, values.shape[1], (24,))
        samples[name + ".weight"] = [[r, c, values[r, c].item()] for r, c in zip(rows.tolist(), columns.tolist())]
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, -1].tolist()
    return {"samples": samples, "ids": ids, "logits": logits}


def write_hqq_model(folder):
    """As transformers 4 saved it; version 5 no longer quantises."""
    model = tiny_llama()
    layer = model.model.layers[0]
    rules = {
        "self_attn.q_proj": {"nbits": 4, "group_size": 64}, "self_attn.k_proj": {"nbits": 8, "group_size": 64},
        "self_attn.v_proj": {"nbits": 3, "group_size": 64}, "self_attn.o_proj": {"nbits": 2, "group_size": 16, "axis": 0},
        "mlp.gate_proj": {"nbits": 4, "group_size": 64, "view_as_float": True}, "mlp.up_proj": {"nbits": 1, "group_size": 32},
    }  # fmt: skip
    quantisation = {tag: BaseQuantizeConfig(**rule) for tag, rule in rules.items()}
    state, weights = {name: value.contiguous() for name, value in model.state_dict().items()}, {}
    for tag, config in quantisation.items():
        name = f"model.layers.0.{tag}"
        quantised = HQQLinear(copy.deepcopy(layer.get_submodule(tag)), config, compute_dtype=torch.float16, device="cpu")
        del state[name + ".weight"]
        state |= {f"{name}.{key}": value.data.contiguous() for key, value in quantised.state_dict().items()}
        weights[name] = quantised.dequantize()
    save_file(state, folder / "model.safetensors")
    write_config(folder, model.config.to_dict(),
                 {"quant_method": "hqq", "quant_config": quantisation, "skip_modules": ["lm_head"]})  # fmt: skip
    return expectations(model, weights)


def save_auto_round(folder, rules, **scheme):
    """Saves a model, and returns it as it was, without a layer's quantised weights, and what is stored."""
    model = tiny_llama()
    original = copy.deepcopy(model)
    with tempfile.TemporaryDirectory() as place:
        rounding = AutoRound(model, tokenizer=MagicMock(), iters=0, disable_opt_rtn=True, layer_config=rules, **scheme)
        rounding.quantize_and_save(place, format="auto_round")
        (saved,) = Path(place).glob("**/model.safetensors")
        shutil.copyfile(saved, folder / "model.safetensors")
        config = json.loads((saved.parent / "config.json").read_text())
    config["eos_token_id"] = 0
    write_config(folder, config | {"architectures": ["LlamaForCausalLM"]}, config["quantization_config"])
    stored = load_file(folder / "model.safetensors")
    for name, value in stored.items():
        if name in original.state_dict() and value.dtype.itemsize > 1:
            original.state_dict()[name].copy_(value)
    return original, stored


def write_auto_round_model(folder):
    rules = {
        "v_proj": {"bits": 8},
        "self_attn.o_proj": {"bits": 2, "group_size": 16, "sym": False},
        "model.layers.0.mlp.up_proj": {"bits": 16},
        "mlp.down_proj": {"bits": 3, "group_size": 128},  # 160 inputs: the second group has 32
    }
    original, stored = save_auto_round(folder, rules, bits=4, group_size=32, sym=True)
    weights = {}
    for name in [name.removesuffix(".qweight") for name in stored if name.endswith(".qweight")]:
        codes, zeros, scales = (stored[f"{name}.{part}"] for part in ("qweight", "qzeros", "scales"))
        bits = zeros.shape[1] * 32 // scales.shape[1]
        inputs = codes.shape[0] * 32 // bits
        group = {2: 16, 3: 128}.get(bits, 32)
        layer = qlinear_torch_zp.QuantLinear(bits, group, inputs, scales.shape[1], bias=False)
        layer.qweight, layer.qzeros, layer.scales = codes, zeros, scales
        if inputs % group != 0:  # which the package's own product cannot do
            layer.scales = scales.repeat_interleave(group, 0)[:inputs]
            layer.qzeros, layer.group_size = zeros.repeat_interleave(group, 0)[:inputs], 1
        weights[name] = layer(torch.eye(inputs, dtype=torch.float16)).t()
    return expectations(original, weights)


def write_auto_round_floats(folder):
    rules = {
        "v_proj": {"bits": 8},
        "self_attn.o_proj": {"group_size": 16, "data_type": "nv_fp"},
        "model.layers.0.mlp.up_proj": {"bits": 16, "data_type": "fp"},
    }
    original, stored = save_auto_round(folder, rules, scheme="MXFP4", act_bits=16)
    weights = {}
    for name in [name.removesuffix(".weight_scale") for name in stored if name.endswith(".weight_scale")]:
        nv, wide = f"{name}.weight_global_scale" in stored, f"{name}.weight" in stored
        group = 16 if nv else 32
        codes = stored[f"{name}.weight" if wide else f"{name}.weight_packed"]
        kind = NVFP4QuantLinear if nv else MXFP8QuantLinear if wide else MXFP4QuantLinear
        layer = kind(codes.shape[1] * (1 if wide else 2), codes.shape[0],
                     QuantizationScheme(group_size=group, act_group_size=group), dtype=torch.float32)  # fmt: skip
        layer.load_state_dict({key: stored.get(f"{name}.{key}", value) for key, value in layer.state_dict().items()})
        weights[name] = layer.dequant_weight_online()
    return expectations(original, weights)


def main():
    data = Path(__file__).parent
    made = {"hqq": hqq_matrices()}
    made |= {f"auto-round-{kind}": auto_round_matrices(kind) for kind in ("less-one", "as-they-are", "gptqmodel", "awq")}
    for name, tensors in made.items():
        (data / "packages" / name).mkdir(parents=True, exist_ok=True)
        save_file(tensors, data / "packages" / name / "model.safetensors")
    models = {}
    writers = {
        "hqq-mixed": write_hqq_model,
        "auto-round-mixed": write_auto_round_model,
        "auto-round-floats": write_auto_round_floats,
    }
    for name, write in writers.items():
        folder = data / "quantised" / name
        folder.mkdir(parents=True, exist_ok=True)
        models[name] = write(folder)
    (data / "packages" / "models.json").write_text(json.dumps(models) + "\n")


main()
