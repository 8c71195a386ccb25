// Heads over pooled states that checkpoints bring: the layers of a sentence encoder behind its pooling, and classifiers
// that score texts or pairs of them (rerankers). Called by open_model and when a model is opened.
#pragma once

#include "runtime/model/model_config.hpp"
#include "runtime/model/pooled_head.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace troupe {

/// Makes a head of the tensors of a model, as they are presented. Throws failure naming what is missing or unsupported.
using head_loader = std::function<std::shared_ptr<const pooled_head>(const checkpoint& tensors)>;

/// The head of a model for classification, by its `architectures`; empty for others. Such a model has no output head,
/// which `model` then says. `activation`: of one label's score; empty: as `config` says.
head_loader read_classifier(const json::document& config, model_config& model, const std::string& activation = {});

/// The layers of sentence-transformers' Dense modules in these folders; null if there are none.
std::shared_ptr<const pooled_head> load_dense(const std::vector<std::filesystem::path>& folders, pooling how,
                                              int hidden);

/// How a text model is asked whether a document answers a query, by "yes" or "no".
struct pair_prompt {
  std::string before, between, behind; // of query and document
};

/// Qwen 3's rerankers, which are models for text by their configuration: recognised by their names. Null otherwise.
std::shared_ptr<const pair_prompt> pair_prompt_of(const std::string& name, const model_config& model,
                                                  const tokenizer& tokens);

/// The score of such a prompt's last state: how much likelier `yes` is than `no`.
std::shared_ptr<const pooled_head> load_yes_no(const checkpoint& tensors, const model_config& model,
                                               const tokenizer& tokens);

} // namespace troupe
