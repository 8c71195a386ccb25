#include "runtime/import/gguf/gguf_layout.hpp"

#include "runtime/import/gguf/gguf_architectures.hpp"
#include "runtime/import/gguf/gguf_names.hpp"
#include "runtime/model/families/lineages.hpp"
#include "runtime/model/rope.hpp"
#include "runtime/model/tensor_names.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

namespace troupe {

namespace {

using row_list = std::vector<std::uint32_t>;

row_order shared_rows(row_list rows) { return std::make_shared<const row_list>(std::move(rows)); }

row_order range_of(std::size_t first, std::size_t count) {
  row_list rows(count);
  std::iota(rows.begin(), rows.end(), static_cast<std::uint32_t>(first));
  return shared_rows(std::move(rows));
}

/// Rows of heads in the order of kernels: which one stands where in the file, whose order is `there`.
row_order restored(std::size_t rows, const row_list& there) {
  if (there.empty())
    return nullptr;
  row_list order(rows);
  for (std::size_t row = 0; row < rows; ++row)
    order[row / there.size() * there.size() + there[row % there.size()]] = static_cast<std::uint32_t>(row);
  return shared_rows(std::move(order));
}

/// Rows of heads of values, `width` each, behind `before` others: first those of each head of keys, then the second of
/// each.
row_order in_turns(const recurrent_config& r, std::size_t width, std::size_t before = 0) {
  const auto heads = as_size(r.heads), keys = as_size(r.key_heads), each = heads / keys;
  row_list rows(before + heads * width);
  std::iota(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(before), 0U);
  for (std::size_t i = 0; i < heads; ++i)
    for (std::size_t w = 0; w < width; ++w)
      rows[before + i * width + w] = static_cast<std::uint32_t>(before + (i % keys * each + i / keys) * width + w);
  return shared_rows(std::move(rows));
}

constexpr std::string_view layer_prefix = "model.layers.";

int layer_of(const std::string& name) { return std::stoi(name.substr(layer_prefix.size())); }

/// gguf_names says where tensors are; here is what becomes of their values and rows.
class layout {
public:
  /// `stored`: a file that is read, which shows what is fused in it; null: it is written.
  layout(const model_config& model, bool of_gguf, const checkpoint* stored = nullptr)
    : model_(model),
      forms_(gguf_architecture_of_family(model.family).forms),
      of_gguf_(of_gguf),
      names_(model),
      wanted_(tensor_names(model).all()) {
    std::erase_if(wanted_, [&](const wanted_tensor& wanted) {
      return wanted.name.find(".mlp.act_fn.") != wanted.name.npos || // these are keys
        (stored && is_of_whole_latent(wanted.name, *stored));
    });
    for (const auto& [name, shape] : wanted_)
      shapes_.emplace(name, shape);
    if (stored)
      assume_forms(*stored);
    for (const auto& wanted : wanted_)
      add(wanted, !stored);
    if (!stored)
      add_copies();
  }

  std::vector<laid_out_tensor> tensors() && { return std::move(tensors_); }

  /// The reverse: of which tensors of the file presented ones are made.
  arrangement reversed() const {
    arrangement how;
    constexpr auto less = [](const row_order& a, const row_order& b) { return *a < *b; };
    std::set<row_order, decltype(less)> known; // layers are alike
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const auto& tensor = tensors_[i];
      const auto [slices, length] = extents_[i];
      const auto stored = names_.in_folder(tensor.name);
      const auto present = [&](const std::string& name, std::size_t first, row_order rows, float factor) {
        const auto& shape = shapes_.at(name);
        if (!rows && shape[0] < length)
          rows = range_of(first % length, shape[0]);
        const bool varies = name.find(".recurrent.") != name.npos; // in dimensions of 1
        if (!rows && slices == 0 && factor == 1 && stored == name && tensor.shape == shape && !varies)
          return;
        auto& part = how.tensors[name];
        part.name = stored;
        part.slices = slices;
        part.slice = slices > 0 ? first / length : 0;
        part.as_vector = shape.size() == 1;
        part.as_row = shape.size() == 2 && shape[0] == 1;
        part.factor = 1 / factor;
        part.of_rows = rows ? length : 0;
        if (rows)
          part.rows = *known.insert(std::move(rows)).first;
      };
      std::map<std::string, row_list> mixed; // rows in the file, by presented tensors
      std::size_t at = 0;
      for (const auto& part : tensor.parts) {
        const auto rows = shapes_.at(part.name)[0];
        if (!part.rows) {
          present(part.name, at, nullptr, part.factor);
          at += rows;
          continue;
        }
        auto& places = mixed[part.name];
        places.resize(rows);
        for (const auto row : *part.rows)
          places[row] = static_cast<std::uint32_t>(at++);
      }
      for (auto& [name, places] : mixed)
        present(name, 0, shared_rows(std::move(places)), 1);
    }
    return how;
  }

private:
  using part = laid_out_tensor::part;

  struct extent {
    std::size_t slices = 0; // matrices in a tensor; 0: it is one
    std::size_t length = 0; // rows of each
  };

  bool is(gguf_architecture::form what) const { return (forms_ & what) != 0; }

  /// Whether multipliers become part of the weights.
  bool scales() const { return is(gguf_architecture::scaled) && !of_gguf_; }

  void assume_forms(const checkpoint& stored) {
    const auto* up = stored.find("model.layers.0.mlp.up_proj.weight");
    const bool fused_up = model_.gated && !stored.find("model.layers.0.mlp.gate_proj.weight") && up &&
      up->shape.size() == 2 && up->shape[0] == 2 * as_size(model_.ffn);
    const bool fused_qkv = !model_.recurrent && stored.find("blk.0.attn_qkv.weight");
    for (int i = 0; i < model_.layers; ++i) {
      const auto blk = "blk." + std::to_string(i) + ".";
      names_.assume(i, gguf_architecture::fused_qkv,
                    fused_qkv && !stored.find("model.layers." + std::to_string(i) + ".self_attn.q_proj.weight"));
      names_.assume(i, gguf_architecture::fused_up, fused_up);
      names_.assume(i, gguf_architecture::fused_experts, stored.find(blk + "ffn_gate_up_exps.weight"));
      names_.assume(i, gguf_architecture::fused_rates, stored.find(blk + "ssm_ba.weight"));
    }
  }

  /// Whether it is made of the matrix of keys and values of latents, which some files have whole.
  static bool is_of_whole_latent(const std::string& name, const checkpoint& stored) {
    const auto at = name.find("latent_");
    return at != name.npos && stored.find(name.substr(0, at) + "kv_b_proj.weight");
  }

  void add(const wanted_tensor& wanted, bool writes) {
    const auto place = names_.place_of(wanted.name);
    const bool sliced = place.slice >= 0;
    const auto [known, added] = places_.try_emplace(place.name, tensors_.size());
    if (added) {
      extents_.emplace_back();
      auto& shape = tensors_.emplace_back(laid_out_tensor{place.name, wanted.shape, {}}).shape;
      if (sliced)
        shape.insert(shape.begin(), 0);
    }
    auto& tensor = tensors_[known->second];
    auto& [slices, length] = extents_[known->second];
    if (sliced)
      tensor.shape[0] = slices = as_size(place.slice) + 1;
    for (auto& part : parts_of(wanted, writes)) {
      if (place.slice <= 0)
        tensor.shape[sliced ? 1 : 0] = length += part.rows ? part.rows->size() : wanted.shape[0];
      tensor.parts.push_back(std::move(part));
    }
    if (place.how == gguf_storage::rows && wanted.name.ends_with(".self_attn.q_proj.weight"))
      if (const int layer = layer_of(wanted.name); !model_.has_kv(layer)) // whose k and v are there, but not read
        length += 2 * as_size(model_.kv_heads_of(layer)) * as_size(model_.head_dim_of(layer));
    const auto& r = model_.recurrent;
    const auto dim = as_size(model_.head_dim), groups_of_rows = as_size(r.key_heads);
    auto& shape = tensor.shape;
    switch (place.how) {
      using enum gguf_storage;
      case whole:
      case rows: break;
      case turns:
        take_turns(tensor.parts,
                   wanted.name.find(".recurrent.") == wanted.name.npos ? dim : as_size(r.heads / r.key_heads));
        break;
      case vector: shape = {shape.back()}; break;
      case heads: shape = {shape[0] / dim, dim}; break;
      case groups: shape = {groups_of_rows, shape[0] / groups_of_rows}; break;
      case column: shape = {shape[0], 1}; break;
      case inner_column: shape = {1, 1, shape[0], 1}; break;
      case inner_channels: shape = {1, shape[0], 1, shape[1]}; break;
    }
  }

  /// `each` rows of the first of two parts, then of the second, and so on.
  void take_turns(std::vector<part>& parts, std::size_t each) const {
    if (parts.size() < 2)
      return;
    const auto both = std::exchange(parts, {});
    for (std::size_t first = 0; first < shapes_.at(both[0].name)[0]; first += each)
      for (const auto& whole : both) {
        row_list rows(each);
        for (std::size_t i = 0; i < each; ++i)
          rows[i] = whole.rows ? (*whole.rows)[first + i] : static_cast<std::uint32_t>(first + i);
        parts.push_back({.name = whole.name, .rows = shared_rows(std::move(rows))});
      }
  }

  std::vector<part> parts_of(const wanted_tensor& wanted, bool writes) const {
    const auto& r = model_.recurrent;
    const bool outer = !wanted.name.starts_with(layer_prefix);
    const auto rest = outer ? wanted.name : wanted.name.substr(wanted.name.find('.', layer_prefix.size()) + 1);
    part whole{.name = wanted.name,
               .rows = order_of(rest, wanted, outer ? 0 : layer_of(wanted.name)),
               .factor = factor_of(rest)};
    if (rest == "model.position_embeddings.weight" && model_.encoder && writes) // those that are used
      whole.rows = range_of(model_.position_offset, as_size(model_.max_context));
    if (rest == "model.embed_tokens_per_layer.weight" && model_.layer_input_rows > 0 && writes) {
      row_list rows(as_size(model_.vocab)); // a row for every token: those beyond the table have its first
      std::iota(rows.begin(), rows.begin() + std::min(model_.layer_input_rows, model_.vocab), 0U);
      whole.rows = shared_rows(std::move(rows));
    }
    whole.negated_exponential = rest == "recurrent.decay" && r.log_decay;
    if (rest == "recurrent.out_proj.weight" && turns_values())
      whole.columns = in_turns(r, as_size(r.value_dim));
    if (rest != "recurrent.conv_proj.weight" || r.type != recurrent_type::ssd)
      return {whole};
    std::vector<part> parts;
    std::size_t first = 0;
    for (const auto& [rows, factor] :
         {std::pair(r.inner(), r.x_scale), std::pair(r.keys(), r.b_scale), std::pair(r.keys(), r.c_scale)}) {
      parts.push_back({.name = wanted.name, .rows = range_of(first, as_size(rows)), .factor = factor});
      first += as_size(rows);
    }
    return parts;
  }

  float factor_of(std::string_view rest) const {
    const auto& r = model_.recurrent;
    const auto root = [](int n) { return std::sqrt(static_cast<float>(n)); };
    const float scores = model_.attention_scale; // part of the keys
    const std::tuple<std::string_view, bool, float> factors[] = {
      {"mlp.gate_norm.weight", true, root(model_.hidden)},
      {"recurrent.gate_proj.weight", true, r.gate_scale},
      {"recurrent.rate_proj.weight", true, r.rate_scale},
      {"recurrent.out_proj.weight", true, r.out_scale},
      {"model.embed_tokens.weight", scales(), model_.embedding_scale},
      {"lm_head.weight", scales(), model_.logit_scale},
      {"self_attn.k_proj.weight", scales() && scores != 0, scores * root(model_.head_dim)},
      {"self_attn.o_proj.weight", scales(), r.attention_scale}};
    for (const auto& [name, holds, factor] : factors)
      if (name == rest && holds)
        return factor;
    return 1;
  }

  /// Whether heads of values change places.
  bool turns_values() const {
    const auto& r = model_.recurrent;
    return is(gguf_architecture::values_in_turns) && r.heads != r.key_heads && !of_gguf_ && !r.in_turns;
  }

  row_order order_of(std::string_view rest, const wanted_tensor& wanted, int layer) const {
    const auto rows = wanted.shape[0];
    const auto& latent = model_.latent;
    const auto begins = [&](std::string_view with) { return rest.starts_with(with); };
    if (begins("recurrent.") && turns_values()) {
      const auto& r = model_.recurrent;
      if (begins("recurrent.norm.") || begins("recurrent.out_proj."))
        return nullptr;
      const bool mixed = begins("recurrent.conv"); // keys and values
      return in_turns(r, mixed || begins("recurrent.gate_proj.") ? as_size(r.value_dim) : 1,
                      mixed ? 2 * as_size(r.keys()) : 0);
    }
    if (latent) {
      const bool queries = begins(latent.q_rank > 0 ? "self_attn.q_b_proj." : "self_attn.q_proj.");
      if (!queries && !begins("self_attn.kv_a_proj_with_mqa."))
        return nullptr;
      return restored(rows,
                      *families::rotated_last(1, as_size(queries ? latent.plain : latent.kv_rank),
                                              as_size(latent.rotated), model_.rope.interleaved));
    }
    if (model_.positions != position_type::rotary || !(begins("self_attn.q_") || begins("self_attn.k_")))
      return nullptr;
    auto rope = model_.rope_of(layer);
    if (!of_gguf_ || is(gguf_architecture::halves))
      rope.interleaved = is(gguf_architecture::pairs);
    return restored(rows, rotated_order(rope, model_.head_dim_of(layer)));
  }

  /// What files have twice.
  void add_copies() {
    if (scales() && model_.tied && model_.embedding_scale != model_.logit_scale) {
      const auto head = tensor_names(model_).embedding();
      tensors_.push_back({"output.weight", head.shape, {{.name = head.name, .factor = model_.logit_scale}}});
    }
    // K and V of layers that read those of others, which llama.cpp asks for and does not use.
    for (int i = 0; model_.altup && i < model_.layers; ++i)
      for (const char* stem : {"k_proj.weight", "v_proj.weight", "k_norm.weight"}) {
        const auto name = [&](int layer) { return "model.layers." + std::to_string(layer) + ".self_attn." + stem; };
        const auto from = name(model_.kv_layer_of(i));
        if (!model_.has_kv(i))
          tensors_.push_back({names_.in_file(name(i)), shapes_.at(from), {{.name = from}}});
      }
  }

  const model_config& model_;
  std::uint64_t forms_;
  bool of_gguf_;
  gguf_names names_;
  std::vector<wanted_tensor> wanted_;
  std::map<std::string, std::vector<std::size_t>, std::less<>> shapes_;
  std::vector<laid_out_tensor> tensors_;
  std::vector<extent> extents_;                            // of each
  std::map<std::string, std::size_t, std::less<>> places_; // and where it is
};

} // namespace

std::vector<laid_out_tensor> gguf_layout(const model_config& model, bool of_gguf) {
  return layout(model, of_gguf).tensors();
}

std::unique_ptr<const checkpoint> arrange_gguf(std::unique_ptr<const checkpoint> stored, const model_config& model) {
  auto how = layout(model, true, stored.get()).reversed();
  if (model.latent) { // some files have the matrix that makes keys and values whole, as folders do
    arrangement whole;
    families::arrange_latent_attention(model, whole);
    for (auto& [name, part] : whole.tensors)
      if (part.name.ends_with(".kv_b_proj.weight") && stored->find(part.name))
        how.tensors.emplace(name, std::move(part));
  }
  for (int i = 0; model.layer_scales && i < model.layers; ++i) { // of Gemma 4, where V may be K
    const auto stem = "model.layers." + std::to_string(i) + ".self_attn.";
    const auto k = stem + "k_proj.weight", v = stem + "v_proj.weight";
    if (!model.slides(i) && stored->find(k) && !stored->find(v))
      how.tensors[k].name = how.tensors[v].name = k;
  }
  return arrange(std::move(stored), how);
}

} // namespace troupe
