#include "runtime/model/families/lineages.hpp"
#include "runtime/model/tensor_names.hpp"
#include "runtime/support/types.hpp"

namespace troupe::families {

namespace {

row_order counted(std::size_t first, std::size_t count, std::size_t step) {
  std::vector<std::uint32_t> rows(count);
  for (std::size_t i = 0; i < count; ++i)
    rows[i] = static_cast<std::uint32_t>(first + i * step);
  return std::make_shared<const std::vector<std::uint32_t>>(std::move(rows));
}

} // namespace

tensor_arranger::tensor_arranger(const model_config& model, arrangement& to, std::string stored_layers)
  : model_(model), to_(to), stored_layers_(std::move(stored_layers)) {
  if (stored_layers_ != "model.layers.")
    to_.prefixes.emplace_back(stored_layers_, "model.layers.");
}

std::string tensor_arranger::presented(int layer, std::string_view rest) const {
  return "model.layers." + std::to_string(layer) + "." + std::string(rest);
}

std::string tensor_arranger::stored(int layer, std::string_view rest) const {
  return stored_layers_ + std::to_string(layer) + "." + std::string(rest);
}

row_order tensor_arranger::rows(std::size_t first, std::size_t count, std::size_t step) {
  auto& known = ranges_[{first, {count, step}}];
  return known ? known : known = counted(first, count, step);
}

void tensor_arranger::repeat_gates(int layer, const std::string& from) {
  const auto heads = as_size(model_.heads_of(layer)), dim = as_size(model_.value_dim_of(layer));
  auto& repeated = gates_[model_.slides(layer) ? 1 : 0];
  if (!repeated) {
    std::vector<std::uint32_t> rows;
    for (std::size_t i = 0; i < heads * dim; ++i)
      rows.push_back(static_cast<std::uint32_t>(i / dim));
    repeated = std::make_shared<const std::vector<std::uint32_t>>(std::move(rows));
  }
  add(layer, "self_attn.attn_gate.weight",
      {.name = stored(layer, from + ".weight"), .rows = repeated, .of_rows = heads});
}

void tensor_arranger::both(const std::string& stem, const std::string& stored, const stored_part& how) {
  auto weight = how, bias = how;
  weight.name = stored + ".weight";
  bias.name = stored + ".bias";
  bias.transposed = false;
  to_.tensors[stem + ".weight"] = std::move(weight);
  to_.tensors[stem + ".bias"] = std::move(bias);
}

void tensor_arranger::rename(std::string_view stem, std::string_view stored) {
  both(std::string(stem), std::string(stored), {});
}

void tensor_arranger::rename(int layer, std::string_view stem, std::string_view from) {
  both(presented(layer, stem), stored(layer, from), {});
}

void tensor_arranger::transpose(int layer, std::string_view stem, std::string_view from) {
  stored_part how;
  how.transposed = true;
  both(presented(layer, stem), stored(layer, from), how);
}

void tensor_arranger::split_qkv(int layer, std::string_view from, fusion how, bool transposed) {
  const auto dim = as_size(model_.head_dim), q = as_size(model_.heads) * dim, kv = as_size(model_.kv_heads) * dim;
  if (!fused_[0]) {
    if (how == fusion::stacked) {
      fused_[0] = rows(0, q);
      fused_[1] = rows(q, kv);
      fused_[2] = rows(q + kv, kv);
    } else {
      std::vector<std::uint32_t> parts[3];
      const auto per_group = as_size(model_.heads / model_.kv_heads);
      std::uint32_t row = 0;
      for (int group = 0; group < model_.kv_heads; ++group)
        for (std::size_t head = 0; head < per_group + 2; ++head)
          for (std::size_t d = 0; d < dim; ++d)
            parts[head < per_group ? 0 : head == per_group ? 1 : 2].push_back(row++);
      for (int i = 0; i < 3; ++i)
        fused_[i] = std::make_shared<const std::vector<std::uint32_t>>(std::move(parts[i]));
    }
  }
  constexpr const char* names[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"};
  for (int i = 0; i < 3; ++i) {
    stored_part part;
    part.transposed = transposed;
    part.rows = fused_[i];
    part.of_rows = q + 2 * kv;
    both(presented(layer, names[i]), stored(layer, from), part);
  }
}

void tensor_arranger::split_gate_up(int layer, std::string_view from) {
  const auto ffn = as_size(model_.ffn);
  stored_part part;
  part.of_rows = 2 * ffn;
  part.rows = rows(0, ffn);
  both(presented(layer, "mlp.gate_proj"), stored(layer, from), part);
  part.rows = rows(ffn, ffn);
  both(presented(layer, "mlp.up_proj"), stored(layer, from), part);
}

void tensor_arranger::split_experts(int layer, const std::string& gate_up, const std::string& down, bool transposed) {
  const auto count = as_size(model_.experts.count), ffn = as_size(model_.experts.ffn);
  for (std::size_t e = 0; e < count; ++e) {
    const auto stem = "mlp.experts." + std::to_string(e) + ".";
    const auto part = [&](const std::string& from, row_order which) {
      stored_part result{stored(layer, from), count, e};
      result.transposed = transposed;
      result.of_rows = which ? 2 * ffn : 0;
      result.rows = std::move(which);
      return result;
    };
    add(layer, stem + "gate_proj.weight", part(gate_up, rows(0, ffn)));
    add(layer, stem + "up_proj.weight", part(gate_up, rows(ffn, ffn)));
    add(layer, stem + "down_proj.weight", part(down, nullptr));
  }
}

void tensor_arranger::rename_shared_experts(int layer, const std::string& stored) {
  for (const std::string name : {"gate_proj", "up_proj", "down_proj"})
    rename(layer, "mlp.shared_expert." + name, stored + "." + name);
}

void tensor_arranger::add(int layer, const std::string& name, stored_part part) {
  to_.tensors[presented(layer, name)] = std::move(part);
}

void tensor_arranger::take(int layer, const std::string& name, const std::string& from, row_order rows,
                           std::size_t of_rows) {
  stored_part part;
  part.name = stored(layer, from);
  part.of_rows = rows && of_rows == 0 ? rows->size() : of_rows;
  part.rows = std::move(rows);
  add(layer, name, std::move(part));
}

void tensor_arranger::shift_norms(float offset) {
  const tensor_names names(model_);
  for (const auto& name : names.norms()) {
    auto& part = to_.tensors[name];
    if (part.name.empty())
      part.name = name;
    part.offset = offset;
  }
}

row_order in_each_head(const std::vector<std::uint32_t>& order, int heads, int first) {
  if (order.empty())
    return nullptr;
  std::vector<std::uint32_t> rows;
  for (int head = 0; head < heads; ++head)
    for (const auto row : order)
      rows.push_back(static_cast<std::uint32_t>(first) + static_cast<std::uint32_t>(head * order.size()) + row);
  return std::make_shared<const std::vector<std::uint32_t>>(std::move(rows));
}

} // namespace troupe::families
