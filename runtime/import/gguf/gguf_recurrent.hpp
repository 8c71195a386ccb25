// Architectures of GGUF files with recurrent layers, in llama.cpp's conventions: what their metadata says.
// Part of gguf_architectures.
#pragma once

#include "runtime/import/gguf/gguf_keys.hpp"
#include "runtime/model/model_config.hpp"

namespace troupe {

void describe_qwen3next(const architecture_keys&, model_config&);
void describe_qwen35(const architecture_keys&, model_config&);
void describe_qwen35moe(const architecture_keys&, model_config&);
void describe_lfm2(const architecture_keys&, model_config&);
void describe_lfm2moe(const architecture_keys&, model_config&);
void describe_granite_hybrid(const architecture_keys&, model_config&);
void describe_nemotron_h(const architecture_keys&, model_config&);
void describe_falcon_h1(const architecture_keys&, model_config&);
void describe_kimi_linear(const architecture_keys&, model_config&);
void describe_mamba2(const architecture_keys&, model_config&);

} // namespace troupe
