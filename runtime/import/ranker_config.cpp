#include "runtime/import/ranker_config.hpp"

#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/checkpoint/weight_values.hpp"
#include "runtime/model/tensor_names.hpp"
#include "runtime/support/json/json_reader.hpp"
#include "runtime/support/text/ascii.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>
#include <array>

namespace troupe {

namespace {

namespace fs = std::filesystem;
using act = pooled_layer::activation;

act activation_named(const json::reader& config, const char* key, std::string name) {
  name = ascii_lower(name.substr(name.rfind('.') + 1)); // "torch.nn.modules.activation.Tanh"
  constexpr std::array known{std::pair("identity", act::none), std::pair("tanh", act::tanh),
                             std::pair("gelu", act::gelu), std::pair("silu", act::silu), std::pair("relu", act::relu)};
  const auto found = std::ranges::find(known, name, [](const auto& k) { return std::string_view(k.first); });
  if (found == known.end())
    throw failure(errc::unsupported,
                  config.label(key) + " is `" + name + "`, supported are identity, tanh, gelu, silu and relu");
  return found->second;
}

/// CrossEncoder's: a sigmoid for one label, unless another function is named, in newer folders by a file of its own.
score_scale scale_of(const json::reader& config, const std::string& activation) {
  auto name = activation.empty() ? config.string("sbert_ce_default_activation_function") : std::optional(activation);
  if (const auto own = config.object("sentence_transformers"); own && !name)
    name = own->string("activation_fn");
  if (!name)
    return score_scale::sigmoid;
  const auto last = name->substr(name->rfind('.') + 1);
  if (last == "Identity")
    return score_scale::none;
  if (last == "Sigmoid")
    return score_scale::sigmoid;
  throw failure(errc::unsupported, config.source() + ": scores of a `" + last + "` are not supported");
}

/// The stem that is there, "bert.pooler.dense" or "pooler.dense".
std::string stem_of(const checkpoint& tensors, std::initializer_list<const char*> stems) {
  for (const char* stem : stems)
    if (tensors.find(std::string(stem) + ".weight"))
      return stem;
  return *stems.begin();
}

/// A dense layer with an activation, perhaps a norm, then one output for each label.
struct classifier_shape {
  std::initializer_list<const char*> dense = {}; // none: no such layer
  act dense_act = act::none;
  const char* norm = nullptr;
  const char* labels = "classifier";
  float eps = 0;
};

std::shared_ptr<const pooled_head> load_classifier(const checkpoint& tensors, const classifier_shape& shape,
                                                   pooling how, std::size_t hidden, score_scale scale) {
  std::vector<pooled_layer> layers;
  if (shape.dense.size() > 0) {
    layers.push_back(read_pooled_layer(tensors, stem_of(tensors, shape.dense), hidden, hidden));
    layers.back().act = shape.dense_act;
    if (shape.norm)
      read_pooled_norm(tensors, shape.norm, shape.eps, layers.back());
  }
  layers.push_back(read_pooled_layer(tensors, shape.labels, 0, hidden));
  return std::make_shared<const pooled_head>(how, std::move(layers), scale);
}

} // namespace

head_loader read_classifier(const json::document& document, model_config& model, const std::string& activation) {
  const json::reader config(document);
  const auto listed = config.child("architectures");
  const auto names = listed ? listed->items() : std::vector<json::reader>{};
  if (names.empty() || !names.front().string().ends_with("ForSequenceClassification"))
    return {};
  const auto scale = scale_of(config, activation);
  const auto hidden = as_size(model.hidden);
  if (model.family == "bert")
    return [=](const checkpoint& tensors) {
      return load_classifier(tensors, {.dense = {"bert.pooler.dense", "pooler.dense"}, .dense_act = act::tanh},
                             pooling::cls, hidden, scale);
    };
  if (model.family == "roberta" || model.family == "xlm-roberta")
    return [=](const checkpoint& tensors) {
      return load_classifier(tensors,
                             {.dense = {"classifier.dense"}, .dense_act = act::tanh, .labels = "classifier.out_proj"},
                             pooling::cls, hidden, scale);
    };
  if (model.family == "modernbert") {
    const auto way = config.string("classifier_pooling").value_or("cls");
    if (way != "cls" && way != "mean")
      throw failure(errc::unsupported,
                    config.label("classifier_pooling") + " is `" + way + "`, supported are cls and mean");
    const auto how = way == "cls" ? pooling::cls : pooling::mean;
    const auto inner = activation_named(config, "classifier_activation",
                                        config.string("classifier_activation").value_or("gelu"));
    const float eps = model.norm_eps;
    return [=](const checkpoint& tensors) {
      return load_classifier(tensors, {.dense = {"head.dense"}, .dense_act = inner, .norm = "head.norm", .eps = eps},
                             how, hidden, scale);
    };
  }
  if (model.encoder)
    throw failure(errc::unsupported,
                  config.label("architectures") + " is `" + std::string(names.front().string()) +
                    "`, whose classification is not supported for the family `" + model.family + "`");
  model.headless = model.tied = true; // nothing is stored for a head
  return [=](const checkpoint& tensors) {
    return load_classifier(tensors, {.labels = "score"}, pooling::last, hidden, scale);
  };
}

std::shared_ptr<const pooled_head> load_dense(const std::vector<fs::path>& folders, pooling how, int hidden) {
  if (folders.empty())
    return nullptr;
  std::vector<pooled_layer> layers;
  auto inputs = as_size(hidden);
  for (const auto& folder : folders) {
    const auto document = json::document::load(folder / "config.json");
    const json::reader config(document);
    layers.push_back(read_pooled_layer(*open_safetensors(folder), "linear", 0, inputs));
    inputs = layers.back().outputs;
    layers.back().act = activation_named(config, "activation_function",
                                         config.string("activation_function").value_or("Tanh"));
  }
  return std::make_shared<const pooled_head>(how, std::move(layers));
}

std::shared_ptr<const pair_prompt> pair_prompt_of(const std::string& name, const model_config& model,
                                                  const tokenizer& tokens) {
  const auto lower = ascii_lower(name);
  if (model.family != "qwen3" || lower.find("reranker") == lower.npos || !tokens.id_of("yes") || !tokens.id_of("no"))
    return nullptr;
  return std::make_shared<const pair_prompt>(pair_prompt{
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    "provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n<Instruct>: Given a "
    "web "
    "search query, retrieve relevant passages that answer the query\n<Query>: ",
    "\n<Document>: ", "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"});
}

std::shared_ptr<const pooled_head> load_yes_no(const checkpoint& tensors, const model_config& model,
                                               const tokenizer& tokens) {
  const auto head = tensor_names(model).head();
  const auto& info = require_tensor(tensors, head);
  const auto format = *weight_format_of(info.type);
  const auto data = tensors.read(head.name);
  const auto cols = head.shape[1];
  const auto row = [&](token_id id) {
    std::vector<float> values(cols);
    to_floats(format, static_cast<const char*>(data.get()) + static_cast<std::size_t>(id) * row_bytes(format, cols),
              cols, values.data());
    return values;
  };
  const auto yes = row(*tokens.id_of("yes")), no = row(*tokens.id_of("no"));
  pooled_layer layer;
  layer.outputs = 1;
  layer.inputs = cols;
  for (std::size_t i = 0; i < cols; ++i)
    layer.weight.push_back(yes[i] - no[i]);
  return std::make_shared<const pooled_head>(pooling::last, std::vector{std::move(layer)}, score_scale::sigmoid);
}

} // namespace troupe
