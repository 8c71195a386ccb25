#include "runtime/import/ranker_config.hpp"

#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/checkpoint/weight_values.hpp"
#include "runtime/model/families/family.hpp"
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

/// A dense layer with an activation, perhaps a norm, then one output for each label.
std::shared_ptr<const pooled_head> load_classifier(const checkpoint& tensors, const classifier_form& form, act inner,
                                                   pooling how, const model_config& model, score_scale scale) {
  const auto hidden = as_size(model.hidden);
  std::vector<pooled_layer> layers;
  if (const char* const* dense = form.dense; dense[0]) {
    const bool other = dense[1] && !tensors.find(std::string(dense[0]) + ".weight") &&
      tensors.find(std::string(dense[1]) + ".weight");
    layers.push_back(read_pooled_layer(tensors, dense[other ? 1 : 0], hidden, hidden));
    layers.back().act = inner;
    if (form.norm)
      read_pooled_norm(tensors, form.norm, model.norm_eps, layers.back());
  }
  layers.push_back(read_pooled_layer(tensors, form.labels, 0, hidden));
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
  const auto* family = find_family(model.family);
  auto form = family ? family->classifier : classifier_form();
  auto inner = act::tanh;
  auto how = pooling::cls;
  if (form.norm) {
    const auto way = config.string("classifier_pooling").value_or("cls");
    if (way != "cls" && way != "mean")
      throw failure(errc::unsupported,
                    config.label("classifier_pooling") + " is `" + way + "`, supported are cls and mean");
    how = way == "cls" ? pooling::cls : pooling::mean;
    inner = activation_named(config, "classifier_activation", config.string("classifier_activation").value_or("gelu"));
  }
  if (model.encoder && !form.dense[0])
    throw failure(errc::unsupported,
                  config.label("architectures") + " is `" + std::string(names.front().string()) +
                    "`, whose classification is not supported for the family `" + model.family + "`");
  if (!model.encoder) {
    model.headless = model.tied = true; // nothing is stored for a head
    form.labels = "score";
    how = pooling::last;
  }
  return [=](const checkpoint& tensors) { return load_classifier(tensors, form, inner, how, model, scale); };
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
  if (!has_trait(model, family::ranks_by_answer) || lower.find("reranker") == lower.npos || !tokens.id_of("yes") ||
      !tokens.id_of("no"))
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
