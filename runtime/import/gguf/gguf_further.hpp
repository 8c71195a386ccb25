// Further architectures of GGUF files, in llama.cpp's conventions: encoders, Gemma 3n and 4, Apertus,
// SmallThinker. Part of
// gguf_architectures.
#pragma once

#include "runtime/checkpoint/arranged_checkpoint.hpp"
#include "runtime/import/gguf/gguf_keys.hpp"
#include "runtime/import/ranker_config.hpp"
#include "runtime/model/model_config.hpp"

#include <memory>

namespace troupe {

void describe_bert(const architecture_keys&, model_config&);
void describe_jina_bert(const architecture_keys&, model_config&);
void describe_nomic_bert(const architecture_keys&, model_config&);
void describe_modern_bert(const architecture_keys&, model_config&);
void describe_gemma3n(const architecture_keys&, model_config&);
void describe_gemma4(const architecture_keys&, model_config&);
void describe_apertus(const architecture_keys&, model_config&);
void describe_smallthinker(const architecture_keys&, model_config&);

/// Of an encoder with a head for classification (`cls.output`), which scores texts; empty for others.
head_loader gguf_classifier(const gguf_file& file, const model_config& model);

/// Apertus' activations, which files have among their metadata, as tensors; others as they are.
std::unique_ptr<const checkpoint> with_activations(std::unique_ptr<const checkpoint> stored, const gguf_file& file,
                                                   const model_config& model);

} // namespace troupe
