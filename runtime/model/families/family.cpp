#include "runtime/model/families/family.hpp"

#include "runtime/model/families/lineages.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>
#include <iterator>

namespace troupe {

namespace {

#define TROUPE_ADDRESS(name) &families::name##_family,
constexpr const family* list[] = {TROUPE_FAMILIES(TROUPE_ADDRESS)};
#undef TROUPE_ADDRESS

/// `rows` of heads of `order.size()` each, with each head in `order`.
row_order reordered(const row_order& rows, std::size_t count, const std::vector<std::uint32_t>& order) {
  std::vector<std::uint32_t> result(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto from = i / order.size() * order.size() + order[i % order.size()];
    result[i] = rows ? rows->at(from) : static_cast<std::uint32_t>(from);
  }
  return std::make_shared<const std::vector<std::uint32_t>>(std::move(result));
}

/// Adds the order of rows that rotating parts of heads, or neighbours, asks for.
void arrange_rotation(const model_config& model, arrangement& to) {
  if (model.latent || model.compressed || model.positions != position_type::rotary)
    return;
  std::map<std::pair<row_order, std::pair<std::size_t, bool>>, row_order> known; // layers of a kind are alike
  const auto reorder = [&](const std::string& name, std::size_t rows, const std::vector<std::uint32_t>& order,
                           bool local) {
    auto& part = to.tensors[name];
    if (part.name.empty()) {
      part.name = name;
      part.of_rows = rows;
    }
    auto& done = known[{part.rows, {rows, local}}];
    part.rows = done ? done : done = reordered(part.rows, rows, order);
  };
  for (int layer = 0; layer < model.layers; ++layer) {
    const auto order = rotated_order(model.rope_of(layer), model.head_dim_of(layer));
    if (!model.parts_of(layer).attention || order.empty())
      continue;
    const bool local = model.slides(layer);
    const auto dim = as_size(model.head_dim_of(layer));
    const auto prefix = "model.layers." + std::to_string(layer) + ".self_attn.";
    for (const auto& [name, heads] :
         {std::pair("q", model.heads_of(layer)), std::pair("k", model.kv_heads_of(layer))}) {
      const auto rows = as_size(heads) * dim;
      reorder(prefix + name + "_proj.weight", rows, order, local);
      if (model.qkv_bias)
        reorder(prefix + name + "_proj.bias", rows, order, local);
      if (model.qk_norm)
        reorder(prefix + name + "_norm.weight", model.qk_norm_whole ? rows : dim, order, local);
    }
  }
}

} // namespace

std::span<const family* const> all_families() { return list; }

const family* find_family(std::string_view name) {
  const auto* const* found = std::ranges::find(list, name, &family::name);
  return found == std::end(list) ? nullptr : *found;
}

bool gguf_has_pairs(std::string_view architecture) {
  for (const auto* each : list)
    for (const auto& one : each->gguf)
      if (!one.name.empty() && one.name == architecture)
        return one.is(gguf_architecture::pairs) && !one.is(gguf_architecture::latent);
  return false;
}

bool has_trait(const model_config& model, family::trait trait) {
  const auto* family = find_family(model.family);
  return family && family->is(trait);
}

void apply_traits(const family& of, model_config& model) {
  model.norm = of.is(family::layer_norm) ? norm_type::layer : norm_type::rms;
  model.norm_bias = of.is(family::layer_norm);
  model.parallel = model.shared_norm = of.is(family::shared_norm);
  model.norms = of.is(family::norms_both) ? norm_place::both
    : of.is(family::norms_after)          ? norm_place::after
    : of.is(family::norms_sums)           ? norm_place::sum
                                          : norm_place::before;
  model.qk_norm_whole = of.is(family::normed_whole);
  model.qk_norm_behind = of.is(family::normed_behind);
  model.qk_norm = of.is(family::normed_heads) || model.qk_norm_whole || model.qk_norm_behind;
  model.gated = !of.is(family::ungated);
  model.experts.scores = of.is(family::sigmoid) ? router_scores::sigmoid
    : of.is(family::chosen)                     ? router_scores::chosen
                                                : router_scores::softmax;
  model.experts.renormalise = of.is(family::renormalises);
}

const family& family_of(const json::reader& config) {
  const auto type = config.string("model_type");
  if (!type)
    throw failure(errc::bad_file, config.label("model_type") + " is missing");
  if (const auto* found = find_family(*type))
    return *found;
  std::string known;
  for (const auto* family : list)
    known += (known.empty() ? "" : ", ") + std::string(family->name);
  throw failure(errc::unsupported, config.label("model_type") + " is `" + *type + "`, supported are " + known);
}

std::unique_ptr<const checkpoint> arrange_tensors(std::unique_ptr<const checkpoint> stored, const model_config& model) {
  arrangement how;
  if (const auto* family = find_family(model.family); family && family->arrange)
    family->arrange(model, *stored, how);
  arrange_rotation(model, how);
  return arrange(std::move(stored), how);
}

} // namespace troupe
