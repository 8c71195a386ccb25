#include "runtime/model/measuring/input_observer.hpp"

#include "runtime/model/gram_layers.hpp"
#include "runtime/model/measuring/forwarding_backend.hpp"
#include "runtime/model/precision.hpp"
#include "runtime/model/recurrent_layers.hpp"
#include "runtime/model/tensor_names.hpp"
#include "runtime/support/error.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <unordered_map>

namespace troupe {

namespace {

using kernels::dtype;
using kernels::matrix;
using kernels::tensor;

/// A backend that shows the inputs of products before it has another compute them.
class observing_backend final : public forwarding_products {
public:
  using names = std::unordered_map<const matrix*, std::vector<std::string>>;

  observing_backend(kernels::backend& inner, const names& known, const input_fn& seen)
    : forwarding_products(inner), names_(known), seen_(seen) {}

  void linear(const tensor& out, const tensor& in, const matrix& w, const float* bias, kernels::store how) override {
    show(w, in);
    inner_.linear(out, in, w, bias, how);
  }
  void linear_silu_gate(const tensor& out, const tensor& in, const matrix& w, const float* bias) override {
    show(w, in);
    inner_.linear_silu_gate(out, in, w, bias);
  }
  void linear_activated(const tensor& out, const tensor& in, const matrix& w, const kernels::activation& act,
                        bool gated, const float* bias) override {
    show(w, in);
    inner_.linear_activated(out, in, w, act, gated, bias);
  }
  void linear_plus(const tensor& out, const tensor& in, const matrix& w, const float* bias, kernels::store how,
                   std::span<const kernels::row_group> groups) override {
    show(w, in);
    forwarding_products::linear_plus(out, in, w, bias, how, groups);
  }
  void linear_activated_plus(const tensor& out, const tensor& in, const matrix& w, const kernels::activation& act,
                             bool gated, const float* bias, std::span<const kernels::row_group> groups) override {
    show(w, in);
    forwarding_products::linear_activated_plus(out, in, w, act, gated, bias, groups);
  }
  void grouped_activated(const tensor& out, const tensor& in, std::span<const kernels::row_group> groups,
                         const kernels::activation& act, bool gated) override {
    for (const auto& group : groups)
      show(*group.w, in, group.rows);
    inner_.grouped_activated(out, in, groups, act, gated);
  }
  void grouped_sum(const tensor& to, const tensor& in, std::span<const kernels::row_group> groups,
                   kernels::store how) override {
    std::vector<std::int32_t> rows;
    std::int32_t next = 0;
    for (const auto& group : groups) { // whose rows follow each other in `in`
      rows.resize(group.rows.size());
      std::iota(rows.begin(), rows.end(), next);
      next += static_cast<std::int32_t>(rows.size());
      show(*group.w, in, rows);
    }
    inner_.grouped_sum(to, in, groups, how);
  }

private:
  void show(const matrix& w, const tensor& in) {
    const auto found = names_.find(&w);
    if (found == names_.end())
      return;
    std::vector<std::int32_t> rows(in.rows);
    std::iota(rows.begin(), rows.end(), 0);
    show_rows(found->second, in, rows);
  }

  void show(const matrix& w, const tensor& in, std::span<const std::int32_t> rows) {
    if (const auto found = names_.find(&w); found != names_.end() && !rows.empty())
      show_rows(found->second, in, rows);
  }

  void show_rows(const std::vector<std::string>& names, const tensor& in, std::span<const std::int32_t> rows) {
    values_.resize(rows.size() * in.cols);
    const auto size = kernels::size_of(in.type);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const auto* from = static_cast<const char*>(in.data) + static_cast<std::size_t>(rows[r]) * in.stride * size;
      float* to = &values_[r * in.cols];
      if (in.type == dtype::f32) {
        std::memcpy(to, from, in.cols * size);
        continue;
      }
      for (std::size_t i = 0; i < in.cols; ++i) { // bf16: nothing else is computed in
        std::uint16_t half = 0;
        std::memcpy(&half, from + i * size, size);
        to[i] = std::bit_cast<float>(std::uint32_t(half) << 16);
      }
    }
    seen_({names, values_, rows.size(), in.cols});
  }

  const names& names_;
  const input_fn& seen_;
  std::vector<float> values_;
};

std::vector<std::string> names_of(const std::vector<wanted_tensor>& tensors) {
  std::vector<std::string> result;
  for (const auto& t : tensors)
    result.push_back(t.name);
  return result;
}

/// The matrices of all layers by what they are packed in.
observing_backend::names matrices_of(const model_weights& weights) {
  observing_backend::names result;
  const tensor_names names(weights.config);
  const auto add = [&](const auto& w, const std::vector<wanted_tensor>& tensors) {
    if (w)
      result.emplace(w.get(), names_of(tensors));
  };
  const auto part = weights.config.part();
  for (int i = part.first; i < part.end; ++i) {
    const auto& layer = weights.layer(i);
    add(layer.qkv, names.qkv(i));
    add(layer.o, names.o(i));
    if (layer.block)
      add(layer.block->output, {names.block_output(i)});
    if (layer.latent && layer.latent->q)
      add(layer.latent->q, {names.latent_q(i)});
    if (layer.compressed) {
      const auto& compressed = *layer.compressed;
      add(compressed.q, {names.compressed_q(i)});
      for (std::size_t g = 0; g < compressed.groups.size(); ++g)
        add(compressed.groups[g], {names.compressed_group(i, static_cast<int>(g))});
      const auto made = [&](const entry_weights& of, const std::vector<wanted_tensor>& stored) {
        if (of.made)
          add(of.made, {stored[0], stored[1]});
      };
      if (compressed.entries.made)
        made(compressed.entries, names.entries(i));
      if (compressed.index_entries.made)
        made(compressed.index_entries, names.index_entries(i));
    }
    if (layer.indexer) {
      add(layer.indexer->q, {names.index_q(i)});
      if (layer.indexer->key)
        add(layer.indexer->key, {names.index_key(i)});
    }
    if (layer.grams) {
      const gram_tensors grams(weights.config, i);
      add(layer.grams->key, {grams.key()});
      add(layer.grams->value, {grams.value()});
    }
    if (layer.recurrent) {
      const recurrent_tensors recurrent(weights.config, i);
      add(layer.recurrent->in, recurrent.in());
      add(layer.recurrent->rate_up, {recurrent.rate_up()});
      add(layer.recurrent->gate_up, {recurrent.gate_up()});
      add(layer.recurrent->parts, {recurrent.parts()});
      add(layer.recurrent->out, {recurrent.out()});
    }
    add(layer.mlp.gate_up, names.gate_up(i));
    add(layer.mlp.down, names.down(i));
    if (!layer.mixture)
      continue;
    const auto& mixture = *layer.mixture;
    add(mixture.router, {names.router(i)});
    for (std::size_t e = 0; e < mixture.experts.size(); ++e) {
      add(mixture.experts[e].gate_up, names.expert_gate_up(i, static_cast<int>(e)));
      add(mixture.experts[e].down, names.expert_down(i, static_cast<int>(e)));
    }
    if (mixture.shared.down) {
      add(mixture.shared.gate_up, names.shared_gate_up(i));
      add(mixture.shared.down, names.shared_down(i));
    }
  }
  return result;
}

} // namespace

std::size_t observed_tokens(std::size_t tokens, int context) {
  const auto window = static_cast<std::size_t>(context);
  const auto rest = tokens % window;
  return tokens < window || 2 * rest >= window ? tokens : tokens - rest;
}

void observe_inputs(const std::shared_ptr<const model_weights>& weights, kernels::backend& backend,
                    std::span<const token_id> tokens, int context, int rows, token_id first, const input_fn& seen,
                    const progress_fn& progress) {
  if (tokens.empty())
    throw failure(errc::bad_request, "a calibration text must have a token at least");
  const auto known = matrices_of(*weights);
  observing_backend observed(backend, known, seen);
  decoder graph(weights, observed, rows, context);
  const auto blocks = static_cast<std::size_t>((context + kernels::block_tokens - 1) / kernels::block_tokens);
  const auto cache = observed.make_kv_cache(kv_shape_of(weights->config, weights->compute, blocks));
  std::vector<std::int32_t> table(blocks);
  std::iota(table.begin(), table.end(), 0);
  const auto all = observed_tokens(tokens.size(), context);
  std::vector<token_id> window;
  for (std::size_t begin = 0; begin < all; begin += window.size()) {
    const auto length = std::min(all - begin, static_cast<std::size_t>(context));
    window.assign(tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                  tokens.begin() + static_cast<std::ptrdiff_t>(begin + length));
    if (first >= 0)
      window[0] = first;
    for (std::size_t at = 0; at < length; at += static_cast<std::size_t>(rows)) {
      const auto count = std::min(length - at, static_cast<std::size_t>(rows));
      const kernels::sequence_rows step{.rows = static_cast<std::int32_t>(count),
                                        .first_position = static_cast<std::int32_t>(at),
                                        .length = static_cast<std::int32_t>(length)};
      graph.forward(std::span<const token_id>(window).subspan(at, count), {{&step, 1}, table}, {}, *cache, {});
      if (progress)
        progress(begin + at + count, all);
    }
  }
}

} // namespace troupe
