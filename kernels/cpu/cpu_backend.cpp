#include "kernels/cpu/cpu_backend.hpp"

#include "kernels/activation_sparsity.hpp"
#include "kernels/block_transfer.hpp"
#include "kernels/cpu/attention.hpp"
#include "kernels/cpu/chosen_attention.hpp"
#include "kernels/cpu/dispatch.hpp"
#include "kernels/cpu/entry_making.hpp"
#include "kernels/cpu/gaussian_rows.hpp"
#include "kernels/cpu/grouped_linear.hpp"
#include "kernels/cpu/kv_memory.hpp"
#include "kernels/cpu/linear.hpp"
#include "kernels/cpu/low_rank.hpp"
#include "kernels/cpu/memory.hpp"
#include "kernels/cpu/packed_matrix.hpp"
#include "kernels/cpu/packed_rows.hpp"
#include "kernels/cpu/recurrent.hpp"
#include "kernels/cpu/spread_convolution.hpp"
#include "kernels/cpu/tensor_rows.hpp"
#include "kernels/cpu/thread_pool.hpp"
#include "kernels/formats/bf16.hpp"
#include "kernels/formats/weight_groups.hpp"
#include "kernels/gaussian_gates.hpp"
#include "kernels/gram_ops.hpp"
#include "kernels/sparse_attention.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace troupe::kernels {

namespace {

class cpu_backend : public backend,
                    public storable_matrices,
                    public low_rank_products,
                    public activation_sparsity,
                    public gaussian_gates,
                    public block_transfer,
                    public recurrent_ops,
                    public gram_ops,
                    public sparse_attention,
                    public distance_attention,
                    public compressed_attention {
public:
  explicit cpu_backend(const cpu_options& options)
    : isa_(options.target),
      kernels_(find_target(options.target)),
      shared_pool_(options.pool ? options.pool
                                : std::make_shared<thread_pool>(options.threads, options.cores, !options.led)),
      pool_(*shared_pool_),
      linear_(kernels_, pool_, options.cache),
      grouped_(kernels_, pool_, options.cache),
      low_rank_(kernels_, pool_),
      attention_(kernels_, pool_),
      chosen_(kernels_, pool_),
      entries_(kernels_, pool_),
      recurrence_(options.target, pool_) {}

  std::string description() const override {
    const int threads = pool_.size();
    return "cpu, " + std::string(to_string(isa_)) + ", " + std::to_string(threads) +
      (threads == 1 ? " thread" : " threads");
  }

  const storable_matrices* storable() const override { return this; }

  buffer allocate(std::size_t bytes) override { return allocate_zeroed(bytes); }

  buffer upload(std::span<const float> values) override {
    auto copy = allocate_zeroed(values.size_bytes());
    if (!values.empty())
      std::memcpy(copy.get(), values.data(), values.size_bytes());
    return copy;
  }

  std::unique_ptr<kv_cache> make_kv_cache(const kv_shape& shape) override {
    return std::make_unique<cpu_kv_cache>(shape);
  }

  std::unique_ptr<matrix> pack(std::span<const stored_matrix> stacked, dtype compute, quantization how) override {
    return pack_stack(stacked, compute, how, false, kernels_, pool_, weight_memory_);
  }

  std::unique_ptr<matrix> pack_gate_up(const stored_matrix& gate, const stored_matrix& up, dtype compute,
                                       quantization how) override {
    const stored_matrix both[] = {gate, up};
    return pack_stack(both, compute, how, true, kernels_, pool_, weight_memory_);
  }

  std::size_t packed_bytes(std::span<const stored_matrix> stacked, dtype compute, quantization how,
                           bool gated) const override {
    return shape_stack(stacked, compute, how, gated, kernels_)->bytes;
  }

  /// Counts the scratch of products, and of attention over what is chosen or compressed. The states of other attention
  /// take a few MB at most and are left out.
  std::size_t scratch_bytes(const planned_steps& steps) const override {
    return linear_scratch_bytes(kernels_, linear_.cache(), pool_.size(), steps) + chosen_.scratch_bytes(steps) +
      entries_.scratch_bytes(steps);
  }

  isa instruction_set() const override { return isa_; }
  int layout_version() const override { return packed_layout_version; }
  thread_pool& pool() const override { return pool_; }

  std::vector<std::span<const std::byte>> bytes_of(const matrix& packed) const override {
    return bytes_of_stack(packed);
  }

  std::unique_ptr<matrix> restore(std::span<const stored_matrix> stacked, dtype compute, quantization how, bool gated,
                                  const buffer& bytes) const override {
    return restore_stack(stacked, compute, how, gated, kernels_, bytes);
  }

  std::unique_ptr<matrix> load_table(const stored_matrix& table) override {
    auto loaded = std::make_unique<host_table>();
    loaded->outputs = table.rows;
    loaded->inputs = table.cols;
    expect(table.cols % block_inputs(table.format) == 0, "load_table: the columns must fill the format's blocks");
    loaded->bytes = table.rows * row_bytes(table.format, table.cols);
    loaded->stored = table;
    return loaded;
  }

  bool gives_table(const stored_matrix& m, dtype compute, quantization how) const override {
    return is_kept_exactly(m, *shape_matrices({&m, 1}, compute, how, false, kernels_));
  }

  std::unique_ptr<matrix> table_of(const matrix& packed) const override {
    auto table = std::make_unique<packed_table>();
    table->from = &dynamic_cast<const packed_matrix&>(packed);
    table->outputs = packed.outputs;
    table->inputs = packed.inputs;
    return table;
  }

  void embed(const tensor& out, const matrix& table, const std::int32_t* tokens) override {
    if (const auto* packed = dynamic_cast<const packed_table*>(&table)) {
      expect(out.type == dtype::f32 && out.cols == table.inputs, "embed: out must be f32 with the table's columns");
      for_rows(pool_, out.rows, [&](std::size_t r) {
        expand_packed_row(*packed->from, static_cast<std::size_t>(tokens[r]), 0, out.cols, row_of<float>(out, r));
      });
      return;
    }
    const auto& stored = dynamic_cast<const host_table&>(table).stored;
    expect(out.type == dtype::f32 && out.cols == stored.cols, "embed: out must be f32 with the table's columns");
    for_rows(pool_, out.rows,
             [&](std::size_t r) { expand_row(stored, tokens[r], 0, stored.cols, row_of<float>(out, r)); });
  }

  void rms_norm(const tensor& out, const tensor& x, const float* weight, float eps, const std::int32_t* rows) override {
    expect(x.type == dtype::f32 && out.type != dtype::f16 && out.cols == x.cols,
           "rms_norm: x must be f32, out f32 or bf16 of the same columns");
    const norm_op op{weight, nullptr, eps, x.cols, out.type == dtype::bf16};
    for_rows(pool_, out.rows, [&](std::size_t i) {
      kernels_.rms_norm(op, row_of(out, i), row_of<float>(x, rows != nullptr ? rows[i] : i));
    });
  }

  bool has_family_ops() const override { return true; }

  void layer_norm(const tensor& out, const tensor& x, const float* weight, const float* bias, float eps,
                  const std::int32_t* rows) override {
    expect(x.type == dtype::f32 && out.type != dtype::f16 && out.cols == x.cols,
           "layer_norm: x must be f32, out f32 or bf16 of the same columns");
    const norm_op op{weight, bias, eps, x.cols, out.type == dtype::bf16};
    for_rows(pool_, out.rows, [&](std::size_t i) {
      kernels_.layer_norm(op, row_of(out, i), row_of<float>(x, rows != nullptr ? rows[i] : i));
    });
  }

  void scale(const tensor& x, float factor, float soft_cap) override {
    expect(x.type == dtype::f32, "scale: the tensor must be f32");
    for_rows(pool_, x.rows, [&](std::size_t r) {
      if (factor == 0)
        std::fill_n(row_of<float>(x, r), x.cols, 0.0f);
      else
        kernels_.scale(row_of<float>(x, r), x.cols, factor, soft_cap);
    });
  }

  void clamp(const tensor& x, float limit) override {
    expect(x.type == dtype::f32, "clamp: the tensor must be f32");
    for_rows(pool_, x.rows, [&](std::size_t r) {
      for (float& value : std::span(row_of<float>(x, r), x.cols))
        value = std::clamp(value, -limit, limit);
    });
  }

  void add_rows(const tensor& to, const tensor& x, float factor, const std::int32_t* rows,
                const float* factors) override {
    expect(to.type == dtype::f32 && x.type == dtype::f32 && to.cols == x.cols,
           "add_rows: both must be f32 of the same columns");
    for_rows(pool_, x.rows, [&](std::size_t i) {
      kernels_.add_scaled(row_of<float>(to, rows != nullptr ? rows[i] : i), row_of<float>(x, i), x.cols,
                          factors != nullptr ? factor * factors[i] : factor);
    });
  }

  void multiply_rows(const tensor& to, const tensor& x) override {
    expect(to.type != dtype::f16 && x.type == dtype::f32 && to.rows == x.rows && to.cols == x.cols,
           "multiply_rows: both must be of one shape, f32 times f32 or bf16");
    for_rows(pool_, x.rows, [&](std::size_t i) {
      const float* factors = row_of<float>(x, i);
      for (std::size_t c = 0; c < x.cols; ++c)
        if (to.type == dtype::f32)
          row_of<float>(to, i)[c] *= factors[c];
        else
          row_of<std::uint16_t>(to, i)[c] = to_bf16(
            std::bit_cast<float>(std::uint32_t{row_of<std::uint16_t>(to, i)[c]} << 16) * factors[c]);
    });
  }

  void mean_squares(float* to, const tensor& x) override {
    expect(x.type == dtype::f32, "mean_squares: the tensor must be f32");
    for_rows(pool_, x.rows, [&](std::size_t r) { to[r] = mean_square(row_of<float>(x, r), x.cols); });
  }

  void gate_gaussian(const tensor& out, const tensor& gate, const tensor& up, float deviations) override {
    expect(gate.type == dtype::f32 && up.type == dtype::f32 && gate.cols == up.cols && out.cols == gate.cols &&
             out.rows == gate.rows && out.type != dtype::f16,
           "gate_gaussian: gate and up must be f32, out of their shape");
    for_rows(pool_, out.rows, [&](std::size_t r) {
      auto* gates = row_of<float>(gate, r);
      auto* to = out.type == dtype::f32 ? row_of<float>(out, r) : gates;
      gate_gaussian_row(to, gates, row_of<float>(up, r), out.cols, deviations);
      if (out.type != dtype::f32)
        kernels_.narrow(row_of<std::uint16_t>(out, r), gates, out.cols);
    });
  }

  void gather_rows(const tensor& to, const tensor& from, const std::int32_t* rows) override {
    const bool narrow = to.type == dtype::bf16 && from.type == dtype::f32;
    expect(to.cols == from.cols && (narrow || to.type == from.type),
           "gather_rows: both must be of the same columns, and of the same type or f32 into bf16");
    for_rows(pool_, to.rows, [&](std::size_t i) {
      const std::size_t r = rows != nullptr ? rows[i] : i;
      if (narrow)
        kernels_.narrow(row_of<std::uint16_t>(to, i), row_of<float>(from, r), to.cols);
      else
        std::memcpy(row_of(to, i), row_of(from, r), to.cols * size_of(to.type));
    });
  }

  void embed_add(const tensor& to, const matrix& table, const std::int32_t* rows) override {
    const auto& stored = dynamic_cast<const host_table&>(table).stored;
    expect(to.type == dtype::f32 && to.cols == stored.cols, "embed_add: to must be f32 with the table's columns");
    for_rows(pool_, to.rows, [&](std::size_t r) {
      alignas(64) float values[256];
      for (std::size_t first = 0; first < stored.cols; first += std::size(values)) {
        const auto n = std::min(std::size(values), stored.cols - first);
        expand_row(stored, rows[r], first, n, values);
        kernels_.add_scaled(row_of<float>(to, r) + first, values, n, 1);
      }
    });
  }

  void linear(const tensor& out, const tensor& in, const matrix& w, const float* bias, store how) override {
    linear_plus(out, in, w, bias, how, {});
  }

  std::unique_ptr<const matrix> pack_low_rank(std::span<const low_rank_pair> pairs, std::size_t inputs,
                                              std::size_t outputs, dtype compute, bool) override {
    return pack_low_rank_pairs(pairs, inputs, outputs, compute);
  }

  void linear_plus(const tensor& out, const tensor& in, const matrix& w, const float* bias, store how,
                   std::span<const row_group> groups) override {
    const auto* addends = low_rank_.prepare(in, w.outputs, groups);
    if (const auto* stack = dynamic_cast<const matrix_stack*>(&w)) {
      expect(out.type == dtype::f32 && out.cols == w.outputs, "linear: out must be f32 [rows of in, outputs]");
      tensor part = out;
      std::size_t first = 0;
      for (const auto& weights : stack->parts) {
        part.cols = weights->outputs;
        linear_.run(part, in, *weights, bias, how, {}, addends, first);
        first += part.cols;
        part.data = static_cast<float*>(part.data) + part.cols;
        if (bias != nullptr)
          bias += part.cols;
      }
      return;
    }
    const auto& weights = dynamic_cast<const packed_matrix&>(w);
    expect(!weights.gated && out.type == dtype::f32, "linear: the weights must be packed by pack(), out must be f32");
    linear_.run(out, in, weights, bias, how, {}, addends);
  }

  void linear_silu_gate(const tensor& out, const tensor& in, const matrix& gate_up, const float* bias) override {
    linear_activated(out, in, gate_up, {activation_type::silu}, true, bias);
  }

  void linear_activated(const tensor& out, const tensor& in, const matrix& w, const activation& act, bool gated,
                        const float* bias) override {
    linear_activated_plus(out, in, w, act, gated, bias, {});
  }

  void linear_activated_plus(const tensor& out, const tensor& in, const matrix& w, const activation& act, bool gated,
                             const float* bias, std::span<const row_group> groups) override {
    const auto& weights = dynamic_cast<const packed_matrix&>(w);
    expect(weights.gated == gated && out.type == in.type,
           "linear_activated: the weights must be packed for it, out must be of the type of in");
    const auto* addends = low_rank_.prepare(in, gated ? 2 * w.outputs : w.outputs, groups);
    linear_.run(out, in, weights, bias, store::set, act, addends);
  }

  bool skips_zeros(const matrix& w) const override {
    const auto parts = parts_of(w);
    return parts.size() == 1 && !parts.front()->quantised() && !parts.front()->pruned;
  }

  void drop_smallest(const tensor& x, float share, const matrix& w) override {
    expect(skips_zeros(w), "drop_smallest: products with these weights skip nothing");
    linear_.drop_smallest(x, share, *parts_of(w).front());
  }

  std::size_t skipped_bytes() const override { return linear_.skipped_bytes(); }
  std::size_t unread_values() const override { return attention_.unread_bytes(); }

  void grouped_activated(const tensor& out, const tensor& in, std::span<const row_group> groups, const activation& act,
                         bool gated) override {
    grouped_.activated(out, in, groups, act, gated);
  }

  void grouped_sum(const tensor& to, const tensor& in, std::span<const row_group> groups, store how) override {
    grouped_.sum(to, in, groups, how);
  }

  void rope_write_kv(const tensor& qkv, int heads, const head_norm& norm, const rope_rows& rope, kv_cache& cache,
                     int layer, const batch& step) override {
    attention_.rope_write_kv(qkv, heads, norm, rope, dynamic_cast<const cpu_kv_cache&>(cache).layer(layer), step);
  }

  void attention(const tensor& out, const tensor& qkv, int heads, float scale, int window, const kv_cache& cache,
                 int layer, const batch& step) override {
    shaped_attention(out, qkv, heads, {scale, window}, cache, layer, step);
  }

  void shaped_attention(const tensor& out, const tensor& qkv, int heads, const attention_scores& scores,
                        const kv_cache& cache, int layer, const batch& step) override {
    attention_.run(out, qkv, heads, scores, dynamic_cast<const cpu_kv_cache&>(cache).layer(layer), step);
  }

  void attend_by_distance(const tensor& out, const tensor& qkv, int heads, const attention_scores& scores,
                          const distance_scores& distances, const kv_cache& cache, int layer,
                          const batch& step) override {
    attention_.run(out, qkv, heads, scores, dynamic_cast<const cpu_kv_cache&>(cache).layer(layer), step, &distances);
  }

  void choose_positions(position_choice& to, const tensor& queries, const tensor& weights, int heads,
                        const kv_cache& cache, int layer, const batch& step) override {
    chosen_.choose(to, queries, weights, heads, dynamic_cast<const cpu_kv_cache&>(cache).layer(layer), step);
  }

  void attend_chosen(const tensor& out, const tensor& qkv, int heads, const attention_scores& scores,
                     const position_choice& chosen, const kv_cache& cache, int layer, const batch& step) override {
    const auto keys = dynamic_cast<const cpu_kv_cache&>(cache).layer(layer);
    rows_before_choice(step, chosen.most, before_choice_);
    if (!before_choice_.empty())
      attention_.run(out, qkv, heads, scores, keys, {before_choice_, step.block_tables});
    chosen_.attend(out, qkv, heads, scores, chosen, keys, step);
  }

  void make_entries(const entry_making& how, kv_cache& cache, int from, int to, const batch& step) override {
    const auto& memory = dynamic_cast<const cpu_kv_cache&>(cache);
    entries_.make(how, memory.layer(from), memory.layer(to), step);
  }

  void choose_entries(position_choice& to, const tensor& queries, const tensor& weights, int heads, int rate,
                      const kv_cache& cache, int layer, const batch& step) override {
    chosen_.choose(to, queries, weights, heads, dynamic_cast<const cpu_kv_cache&>(cache).layer(layer), step, rate);
  }

  void attend_entries(const tensor& out, const tensor& q, int heads, const attention_scores& scores,
                      const entry_view& seen, const kv_cache& cache, const batch& step) override {
    const auto& memory = dynamic_cast<const cpu_kv_cache&>(cache);
    const auto entries = memory.layer(seen.entries < 0 ? seen.tokens : seen.entries);
    chosen_.attend_entries(out, q, heads, scores, seen, memory.layer(seen.tokens),
                           seen.entries < 0 ? nullptr : &entries, step);
  }

  void undo_rotation(const tensor& out, const tensor& x, int heads, int pairs, const float* angles,
                     const batch& step) override {
    entries_.undo_rotation(out, x, heads, pairs, angles, step);
  }

  void copy_blocks(kv_cache& cache, std::span<const block_copy> copies) override {
    dynamic_cast<cpu_kv_cache&>(cache).copy(copies, pool_);
  }

  void copy_tokens(kv_cache& cache, int layer, std::span<const token_copy> copies) override {
    dynamic_cast<cpu_kv_cache&>(cache).copy_tokens(layer, copies, pool_);
  }

  void export_blocks(const kv_cache& cache, std::span<const block_export> blocks) override {
    dynamic_cast<const cpu_kv_cache&>(cache).export_blocks(blocks, pool_);
  }

  void import_blocks(kv_cache& cache, std::span<const block_import> blocks) override {
    dynamic_cast<cpu_kv_cache&>(cache).import_blocks(blocks, pool_);
  }

  std::unique_ptr<state_cache> make_state_cache(const state_shape& shape) override {
    return std::make_unique<cpu_state_cache>(shape);
  }

  void convolve(const tensor& out, const tensor& in, const convolution& how, state_cache& states, int layer) override {
    recurrence_.convolve(out, in, how, dynamic_cast<cpu_state_cache&>(states), layer);
  }

  void recur(const tensor& out, const tensor& in, const tensor& rates, const tensor& betas, const recurrence& how,
             state_cache& states, int layer) override {
    recurrence_.recur(out, in, rates, betas, how, dynamic_cast<cpu_state_cache&>(states), layer);
  }

  void gate(const tensor& out, const tensor& x, const tensor& gate, const gated_rows& how) override {
    recurrence_.gate(out, x, gate, how);
  }

  void multiply(const tensor& out, const tensor& a, const tensor& b) override { recurrence_.multiply(out, a, b); }

  void recall_tokens(std::int32_t* to, const std::int32_t* tokens, std::size_t rows, state_cache& states,
                     int index) override {
    kernels::recall_tokens(to, tokens, rows, dynamic_cast<cpu_state_cache&>(states), index, pool_);
  }

  void convolve_spread(const tensor& out, const tensor& in, const convolution& how, state_cache& states,
                       int index) override {
    kernels::convolve_spread(out, in, how, dynamic_cast<cpu_state_cache&>(states), index, pool_);
  }

  void take_agreed(const tensor& out, const tensor& a, const tensor& b, const tensor& value, float scale) override {
    kernels::take_agreed(out, a, b, value, scale, pool_);
  }

  void copy_states(state_cache& states, std::span<const state_copy> copies) override {
    dynamic_cast<cpu_state_cache&>(states).copy(copies, pool_);
  }

  void export_states(const state_cache& states, std::span<const state_export> out) override {
    dynamic_cast<const cpu_state_cache&>(states).copy_out(out, pool_);
  }

  void import_states(state_cache& states, std::span<const state_import> in) override {
    dynamic_cast<cpu_state_cache&>(states).copy_in(in, pool_);
  }

  void download(float* to, const tensor& from) override {
    expect(from.type == dtype::f32, "download: the tensor must be f32");
    for (std::size_t r = 0; r < from.rows; ++r)
      std::memcpy(to + r * from.cols, row_of<float>(from, r), from.cols * sizeof(float));
  }

private:
  /// `n` columns of row `index` of a table as f32; 256 are whole blocks of any format.
  void expand_row(const stored_matrix& table, std::size_t index, std::size_t first, std::size_t n, float* to) const {
    const auto* from = static_cast<const char*>(table.row(index));
    if (is_float(table.format))
      kernels_.widen(exact_kind(dtype_of(table.format)), to, from + first * size_of(dtype_of(table.format)), n);
    else
      expand(table.format, from, first, n, to);
  }

  isa isa_;
  const target& kernels_;
  const std::shared_ptr<thread_pool> shared_pool_;
  thread_pool& pool_;
  weight_memory weight_memory_;
  cpu_linear linear_;
  cpu_grouped_linear grouped_;
  cpu_low_rank low_rank_;
  cpu_attention attention_;
  chosen_attention chosen_;
  entry_maker entries_;
  std::vector<sequence_rows> before_choice_;
  cpu_recurrence recurrence_;
};

} // namespace

std::unique_ptr<backend> make_cpu_backend(const cpu_options& options) { return std::make_unique<cpu_backend>(options); }

} // namespace troupe::kernels
