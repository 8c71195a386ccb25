#include "runtime/import/gguf/gguf_pooling.hpp"

#include "runtime/import/gguf/gguf_architectures.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>
#include <array>

namespace troupe {

namespace {

using act = pooled_layer::activation;

constexpr int mean_pooling = 1, cls_pooling = 2, last_pooling = 3, rank_pooling = 4; // llama.cpp's numbers

constexpr std::string_view normalise_key = "troupe.embeddings.normalise", refusal_key = "troupe.embeddings.refusal",
                           prompts_key = "troupe.embeddings.prompts", texts_key = "troupe.embeddings.prompt_texts",
                           usual_key = "troupe.embeddings.usual_prompt", head_key = "troupe.head",
                           head_pooling_key = "troupe.head.pooling", activations_key = "troupe.head.activations",
                           epsilons_key = "troupe.head.norm_epsilons", scale_key = "troupe.head.scale";

constexpr std::array head_poolings{std::pair(std::string_view("mean"), pooling::mean),
                                   std::pair(std::string_view("cls"), pooling::cls),
                                   std::pair(std::string_view("last"), pooling::last)};
constexpr std::array head_activations{
  std::pair(std::string_view("none"), act::none), std::pair(std::string_view("tanh"), act::tanh),
  std::pair(std::string_view("gelu"), act::gelu), std::pair(std::string_view("silu"), act::silu),
  std::pair(std::string_view("relu"), act::relu)};

template <class Names, class Value>
std::string known_name(const Names& names, Value value) {
  const auto found = std::ranges::find(names, value, [](const auto& pair) { return pair.second; });
  return found == names.end() ? std::string() : std::string(found->first);
}

template <class Names>
auto known_value(const gguf_metadata& metadata, std::string_view key, const Names& names, std::string_view name) {
  const auto found = std::ranges::find(names, name, [](const auto& pair) { return pair.first; });
  if (found == names.end())
    throw failure(errc::unsupported, metadata.label(key) + " is " + shown(name) + ", which is not known");
  return found->second;
}

int pooling_number(pooling how) {
  return how == pooling::mean ? mean_pooling : how == pooling::cls ? cls_pooling : last_pooling;
}

void add_pooled_layer(std::vector<further_tensor>& to, const std::string& stem, const pooled_layer& layer) {
  to.push_back({stem + ".weight", {layer.outputs, layer.inputs}, layer.weight});
  if (!layer.bias.empty())
    to.push_back({stem + ".bias", {layer.outputs}, layer.bias});
}

void add_pooled_norm(std::vector<further_tensor>& to, const std::string& stem, const pooled_layer& layer) {
  if (!layer.norm.empty())
    to.push_back({stem + ".weight", {layer.outputs}, layer.norm});
  if (!layer.norm_bias.empty())
    to.push_back({stem + ".bias", {layer.outputs}, layer.norm_bias});
}

/// In Troupe's own form: any layers, as they are.
std::vector<further_tensor> describe_own_head(gguf_writer& to, const pooled_head& head, bool scores) {
  std::vector<further_tensor> tensors;
  std::vector<std::string> acts;
  std::vector<float> epsilons;
  for (std::size_t i = 0; i < head.layers().size(); ++i) {
    const auto& layer = head.layers()[i];
    const auto stem = "head." + std::to_string(i);
    add_pooled_layer(tensors, stem, layer);
    add_pooled_norm(tensors, stem + ".norm", layer);
    acts.push_back(known_name(head_activations, layer.act));
    epsilons.push_back(layer.norm_eps);
  }
  to.add(head_key, scores ? "scores" : "embeddings");
  to.add(head_pooling_key, known_name(head_poolings, head.how()));
  to.add(activations_key, acts);
  to.add(epsilons_key, epsilons);
  to.add(scale_key, head.scale() == score_scale::sigmoid ? "sigmoid" : "none");
  return tensors;
}

std::shared_ptr<const pooled_head> read_own_head(const gguf_metadata& metadata, const checkpoint& tensors, int hidden) {
  const auto acts = metadata.strings(activations_key).value_or(std::vector<std::string_view>{});
  const auto epsilons = metadata.floats(epsilons_key).value_or(std::vector<float>{});
  if (acts.empty() || acts.size() != epsilons.size())
    throw failure(errc::bad_file,
                  metadata.label(activations_key) + " and " + shown(epsilons_key) +
                    " must have an element for each layer of the head");
  std::vector<pooled_layer> layers;
  auto inputs = as_size(hidden);
  for (std::size_t i = 0; i < acts.size(); ++i) {
    const auto stem = "head." + std::to_string(i);
    layers.push_back(read_pooled_layer(tensors, stem, 0, inputs));
    layers.back().act = known_value(metadata, activations_key, head_activations, acts[i]);
    if (tensors.find(stem + ".norm.weight"))
      read_pooled_norm(tensors, stem + ".norm", epsilons[i], layers.back());
    inputs = layers.back().outputs;
  }
  const auto how = known_value(metadata, head_pooling_key, head_poolings,
                               metadata.string(head_pooling_key).value_or(""));
  const bool scaled = metadata.string(scale_key).value_or("none") == "sigmoid";
  return std::make_shared<const pooled_head>(how, std::move(layers), scaled ? score_scale::sigmoid : score_scale::none);
}

/// A classifier as llama.cpp has it: BERT's reads the first state, ModernBERT's one that its key names.
std::vector<further_tensor> describe_classifier(gguf_writer& to, const std::string& architecture,
                                                const pooled_head& head, const model_config& config) {
  const auto& layers = head.layers();
  const bool modern = architecture == "modern-bert";
  const bool fits = layers.size() == 2 && config.encoder && layers[1].act == act::none && layers[1].norm.empty() &&
    (modern
       ? layers[0].act == act::gelu && !layers[0].norm.empty() && layers[0].norm_eps == config.norm_eps
       : architecture == "bert" && layers[0].act == act::tanh && layers[0].norm.empty() && head.how() == pooling::cls);
  if (!fits)
    throw failure(errc::unsupported, "GGUF cannot say how a `" + config.family + "` model scores texts");
  std::vector<further_tensor> tensors;
  add_pooled_layer(tensors, "cls", layers[0]);
  add_pooled_norm(tensors, "cls.norm", layers[0]);
  add_pooled_layer(tensors, "cls.output", layers[1]);
  if (modern)
    to.add(architecture + ".classifier.pooling_type", static_cast<std::uint32_t>(pooling_number(head.how())));
  std::vector<std::string> labels;
  for (std::size_t i = 0; i < head.outputs(); ++i)
    labels.push_back("LABEL_" + std::to_string(i));
  to.add(architecture + ".classifier.output_labels", labels);
  if (head.scale() != score_scale::sigmoid)
    to.add(scale_key, "none");
  return tensors;
}

/// Dense layers of sentence encoders, of which llama.cpp has EmbeddingGemma's two.
std::vector<further_tensor> describe_dense(gguf_writer& to, const std::string& architecture, const pooled_head& head) {
  const auto& layers = head.layers();
  const bool plain = std::ranges::all_of(
    layers, [](const pooled_layer& l) { return l.act == act::none && l.bias.empty() && l.norm.empty(); });
  if (architecture != "gemma-embedding" || layers.size() != 2 || !plain)
    throw failure(errc::unsupported, "GGUF cannot say which layers are behind the pooling");
  std::vector<further_tensor> tensors;
  for (std::size_t i = 0; i < 2; ++i) {
    const auto stem = "dense_" + std::to_string(i + 2);
    add_pooled_layer(tensors, stem, layers[i]);
    to.add(architecture + "." + stem + "_feat_in", static_cast<std::uint32_t>(layers[i].inputs));
    to.add(architecture + "." + stem + "_feat_out", static_cast<std::uint32_t>(layers[i].outputs));
  }
  return tensors;
}

std::shared_ptr<const pooled_head> read_dense_layers(const checkpoint& tensors, pooling how, int hidden) {
  if (!tensors.find("dense_2.weight"))
    return nullptr;
  std::vector<pooled_layer> layers;
  auto inputs = as_size(hidden);
  for (const char* stem : {"dense_2", "dense_3"}) {
    if (!tensors.find(std::string(stem) + ".weight"))
      continue;
    layers.push_back(read_pooled_layer(tensors, stem, 0, inputs));
    inputs = layers.back().outputs;
  }
  return std::make_shared<const pooled_head>(how, std::move(layers));
}

/// An encoder's head for classification, which scores texts; empty for others. ModernBERT's reads the mean of all states
/// unless a key says otherwise, the others' the first.
head_loader gguf_classifier(const gguf_file& file, const model_config& model) {
  if (!model.encoder || !file.tensors().contains("cls.output.weight"))
    return {};
  const bool dense = file.tensors().contains("cls.weight"), normed = file.tensors().contains("cls.norm.weight"),
             modern = model.skips_first_norm,
             scaled = file.metadata().string("troupe.head.scale").value_or("sigmoid") == "sigmoid";
  const architecture_keys keys(file, gguf_architecture_of(file).name);
  const auto how = modern && keys.integer("classifier.pooling_type", 0, 16).value_or(1) == 1 ? pooling::mean
                                                                                             : pooling::cls;
  return [=, hidden = as_size(model.hidden), eps = model.norm_eps](const checkpoint& tensors) {
    std::vector<pooled_layer> layers;
    if (dense) {
      layers.push_back(read_pooled_layer(tensors, "cls", hidden, hidden));
      layers.back().act = modern ? pooled_layer::activation::gelu : pooled_layer::activation::tanh;
      if (normed)
        read_pooled_norm(tensors, "cls.norm", eps, layers.back());
    }
    layers.push_back(read_pooled_layer(tensors, "cls.output", 0, hidden));
    return std::make_shared<const pooled_head>(how, std::move(layers),
                                               scaled ? score_scale::sigmoid : score_scale::none);
  };
}

/// llama.cpp's key for models that make embeddings; it normalises them.
embedding_style read_pooling_style(const gguf_file& file) {
  const auto& metadata = file.metadata();
  const architecture_keys keys(file, gguf_architecture_of(file).name);
  embedding_style style;
  switch (const int found = keys.integer("pooling_type", -1, 1 << 16).value_or(-1)) {
    case -1: break;
    case mean_pooling: style.how = pooling::mean; break;
    case cls_pooling: style.how = pooling::cls; break;
    case last_pooling: style.how = pooling::last; break;
    default: return {pooling::none, false, "its pooling_type " + std::to_string(found) + " is not supported"};
  }
  style.normalise = metadata.boolean(normalise_key).value_or(true);
  if (const auto why = metadata.string(refusal_key))
    return {pooling::none, false, std::string(*why)};
  const auto names = metadata.strings(prompts_key).value_or(std::vector<std::string_view>{}),
             texts = metadata.strings(texts_key).value_or(std::vector<std::string_view>{});
  if (names.size() != texts.size())
    throw failure(errc::bad_file,
                  metadata.label(prompts_key) + " has " + std::to_string(names.size()) + " elements, and " +
                    shown(texts_key) + " " + std::to_string(texts.size()) + ": they must be as many");
  for (std::size_t i = 0; i < names.size(); ++i)
    style.prompts.push_back({std::string(names[i]), std::string(texts[i])});
  style.usual_prompt = std::string(metadata.string(usual_key).value_or(""));
  if (!style.usual_prompt.empty() &&
      std::ranges::find(style.prompts, style.usual_prompt, &text_prompt::name) == style.prompts.end())
    throw failure(errc::bad_file, metadata.label(usual_key) + " is not one of " + shown(prompts_key));
  return style;
}

} // namespace

std::vector<further_tensor> describe_pooling(gguf_writer& to, std::string_view of, bool own,
                                             const model_source& source) {
  const std::string architecture(of);
  const auto& style = source.embeddings;
  const auto pooling_type = [&](int type) { to.add(architecture + ".pooling_type", static_cast<std::uint32_t>(type)); };
  if (source.load_ranker) {
    pooling_type(rank_pooling);
    const auto head = source.load_ranker(*source.tensors);
    return own ? describe_own_head(to, *head, true) : describe_classifier(to, architecture, *head, source.config);
  }
  const embedding_style usual;
  if (style.how != pooling::none && (source.config.encoder || style.how != usual.how))
    pooling_type(pooling_number(style.how));
  if (!style.refusal.empty())
    to.add(refusal_key, style.refusal);
  else if (!style.normalise)
    to.add(normalise_key, false);
  if (!style.prompts.empty()) {
    std::vector<std::string> names, texts;
    for (const auto& prompt : style.prompts) {
      names.push_back(prompt.name);
      texts.push_back(prompt.text);
    }
    to.add(prompts_key, names);
    to.add(texts_key, texts);
    if (!style.usual_prompt.empty())
      to.add(usual_key, style.usual_prompt);
  }
  if (!source.dense)
    return {};
  return own ? describe_own_head(to, *source.dense, false) : describe_dense(to, architecture, *source.dense);
}

gguf_pooled read_gguf_pooling(const std::shared_ptr<const gguf_file>& file, const model_config& model,
                              const checkpoint& tensors) {
  const auto& metadata = file->metadata();
  gguf_pooled result{read_pooling_style(*file), gguf_classifier(*file, model), nullptr};
  const auto head = metadata.string(head_key);
  if (head == "scores") {
    read_own_head(metadata, tensors, model.hidden); // refuses what is damaged now
    result.load_ranker = [file, hidden = model.hidden](const checkpoint& from) {
      return read_own_head(file->metadata(), from, hidden);
    };
  } else if (head == "embeddings") {
    result.dense = read_own_head(metadata, tensors, model.hidden);
  } else {
    result.dense = read_dense_layers(tensors, result.embeddings.how, model.hidden);
  }
  if (result.load_ranker)
    result.embeddings = {
      .how = pooling::none, .normalise = false, .refusal = "it is for classification, and scores texts"};
  return result;
}

} // namespace troupe
