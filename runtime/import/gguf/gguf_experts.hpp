// Mixtures of experts in GGUF files, in llama.cpp's conventions: what metadata says of them. Part of
// gguf_architectures.
#pragma once

#include "runtime/import/gguf/gguf_keys.hpp"
#include "runtime/model/model_config.hpp"

namespace troupe {

/// Their number and sizes.
void describe_experts(const architecture_keys& keys, model_config& model);

/// With what later architectures say of them: a shared one, how scores are made, corrected and scaled.
void describe_routed_experts(const architecture_keys& keys, model_config& model, bool renormalise);

/// DeepSeek V2, V3 and R1, Kimi K2.
void describe_deepseek2(const architecture_keys& keys, model_config& model);

} // namespace troupe
