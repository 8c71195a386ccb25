#include "kernels/cuda/cuda_backend.hpp"

#include "kernels/cuda/attention_layers.hpp"
#include "kernels/cuda/compressed_layers.hpp"
#include "kernels/cuda/device/family_rows.hpp"
#include "kernels/cuda/device/rope.hpp"
#include "kernels/cuda/device/rows.hpp"
#include "kernels/cuda/expect.hpp"
#include "kernels/cuda/grouped_products.hpp"
#include "kernels/cuda/indexer_layers.hpp"
#include "kernels/cuda/kv_memory.hpp"
#include "kernels/cuda/linear_layers.hpp"
#include "kernels/cuda/low_rank_layers.hpp"
#include "kernels/cuda/recurrent_layers.hpp"
#include "kernels/cuda/scratch_plan.hpp"
#include "kernels/cuda/step_memory.hpp"
#include "kernels/cuda/weight_packing.hpp"
#include "kernels/gaussian_gates.hpp"
#include "kernels/gram_ops.hpp"
#include "kernels/planned_steps.hpp"

#include <algorithm>

namespace troupe::kernels::cuda {

namespace {

constexpr int most_states_of_a_decoder = 4;

class backend_on_device final : public cuda_backend,
                                public recurrent_ops,
                                public gram_ops,
                                public gaussian_gates,
                                public sparse_attention,
                                public compressed_attention,
                                public distance_attention {
public:
  explicit backend_on_device(const cuda_options& options)
    : options_(options), info_(selected(options.device)), linear_(stream_, options, info_) {}

  std::string description() const override {
    return "cuda:" + std::to_string(options_.device) + ", " + info_.name + ", compute capability " +
      std::to_string(info_.major) + "." + std::to_string(info_.minor) + ", " +
      (options_.deterministic ? "deterministic" : linear_.library());
  }

  const stream& queue() const override { return stream_; }
  const stream& copy_queue() const override { return copies_stream_; }

  void stage(const step_inputs& inputs) override { step_.stage(copies_stream_, stream_, inputs); }
  void begin_step(const std::int32_t* slot_tokens) override { step_.begin(stream_, slot_tokens); }
  std::vector<std::uint64_t> launch_shape() const override { return step_.launch_shape(); }
  std::uint64_t memory_moves() const override {
    return step_.growths() + attention_.growths() + linear_.growths() + grouped_.growths() + indices_.growths() +
      factors_.growths() + indexer_.growths() + compressed_.growths() + low_rank_.growths();
  }

  bool deterministic() const override { return options_.deterministic; }

  std::vector<const softmax_counts*> softmax() const override {
    return attention_.counts() ? std::vector{attention_.counts()} : std::vector<const softmax_counts*>();
  }

  // A thread that loads has several backends, each of a device of its own.
  buffer allocate(std::size_t bytes) override {
    use_own();
    return cuda::allocate(bytes);
  }

  buffer upload(std::span<const float> values) override {
    use_own();
    auto copy = cuda::allocate(values.size_bytes());
    if (!values.empty())
      copy_to_device(stream_, copy.get(), values.data(), values.size_bytes());
    stream_.synchronise();
    return copy;
  }

  std::unique_ptr<kv_cache> make_kv_cache(const kv_shape& shape) override {
    use_own();
    expect(shape.layers > 0 && shape.kv_heads > 0, "a KV cache needs layers and heads");
    for (int i = 0; i < shape.layers; ++i)
      expect(shape.layer(i).dim > 0 && shape.layer(i).dim % 2 == 0 && shape.layer(i).dim <= most_head_dim,
             "the CUDA backend's attention takes an even head_dim of at most 640");
    return std::make_unique<device_kv_cache>(shape);
  }

  std::unique_ptr<matrix> pack(std::span<const stored_matrix> stacked, dtype compute, quantization how) override {
    use_own();
    return known(pack_weights(weights_upload_, stacked, compute, how, false));
  }

  std::unique_ptr<matrix> pack_gate_up(const stored_matrix& gate, const stored_matrix& up, dtype compute,
                                       quantization how) override {
    use_own();
    const stored_matrix both[] = {gate, up};
    return known(pack_weights(weights_upload_, both, compute, how, true));
  }

  std::size_t packed_bytes(std::span<const stored_matrix> stacked, dtype compute, quantization how,
                           bool gated) const override {
    return plan_weights(stacked, compute, how, gated)->bytes;
  }

  std::unique_ptr<matrix> load_table(const stored_matrix& table) override {
    use_own();
    return pack_table(weights_upload_, table);
  }

  std::size_t table_bytes(const stored_matrix& table) const override { return plan_table(table)->bytes; }

  std::size_t scratch_bytes(const planned_steps& steps) const override {
    return cuda::scratch_bytes(steps, linear_.has_library(), options_.expanded_memory);
  }

  void embed(const tensor& out, const matrix& table, const std::int32_t* tokens) override {
    look_up(out, table, step_.tokens(stream_, tokens, out.rows), store::set);
  }

  void look_up(const tensor& out, const matrix& table, const std::int32_t* tokens, store how) {
    const auto& from = dynamic_cast<const device_table&>(table);
    expect(out.type == dtype::f32 && out.cols == from.inputs, "embed: out must be f32 with the table's columns");
    embed_params p;
    p.add = how == store::add;
    p.out = static_cast<float*>(out.data);
    p.out_stride = out.stride;
    p.table = from.data.get();
    p.type = from.type;
    p.grouped = from.grouped;
    p.cols = out.cols;
    p.tokens = tokens;
    p.rows = out.rows;
    cuda::embed(stream_, p);
  }

  void rms_norm(const tensor& out, const tensor& x, const float* weight, float eps, const std::int32_t* rows) override {
    expect(x.type == dtype::f32 && out.type != dtype::f16 && out.cols == x.cols,
           "rms_norm: x must be f32, out f32 or bf16 of the same columns");
    rms_norm_params p;
    p.out = out.data;
    p.out_type = out.type;
    p.out_stride = out.stride;
    p.x = static_cast<const float*>(x.data);
    p.x_stride = x.stride;
    p.weight = weight;
    p.eps = eps;
    p.cols = x.cols;
    p.gather = rows != nullptr ? step_.gathered(stream_, rows, out.rows) : nullptr;
    p.rows = out.rows;
    cuda::rms_norm(stream_, p);
  }

  void linear(const tensor& out, const tensor& in, const matrix& w, const float* bias, store how) override {
    const auto& weights = dynamic_cast<const device_matrix&>(w);
    expect(!weights.gated && out.type == dtype::f32, "linear: the weights must be packed by pack(), out must be f32");
    linear_.run(out, in, weights, bias, how);
  }

  void linear_silu_gate(const tensor& out, const tensor& in, const matrix& gate_up, const float* bias) override {
    const auto& weights = dynamic_cast<const device_matrix&>(gate_up);
    expect(weights.gated && out.type == in.type,
           "linear_silu_gate: the weights must be packed by pack_gate_up(), out must be of the type of in");
    constexpr activation silu{activation_type::silu};
    linear_.run(out, in, weights, bias, store::set, &silu);
  }

  void rope_write_kv(const tensor& qkv, int heads, const head_norm& norm, const rope_rows& rope, kv_cache& cache,
                     int layer, const batch& rows) override {
    const auto& memory = dynamic_cast<const device_kv_cache&>(cache);
    step_.enter(stream_, rows);
    rope_params p;
    p.qkv = static_cast<float*>(qkv.data);
    p.stride = qkv.stride;
    p.heads = heads;
    p.q_norm = norm.q;
    p.k_norm = norm.k;
    p.eps = norm.eps;
    p.norm_behind = norm.behind;
    p.queries_only = qkv.cols == static_cast<std::size_t>(heads * cache.shape.layer(layer).dim);
    p.rope = rope;
    p.cache = memory.layer(layer);
    p.places = step_.places();
    p.tables = step_.tables();
    p.rows = step_.rows();
    cuda::rope_write_kv(stream_, p);
  }

  void attention(const tensor& out, const tensor& qkv, int heads, float scale, int window, const kv_cache& cache,
                 int layer, const batch& rows) override {
    shaped_attention(out, qkv, heads, {scale, window}, cache, layer, rows);
  }

  void shaped_attention(const tensor& out, const tensor& qkv, int heads, const attention_scores& scores,
                        const kv_cache& cache, int layer, const batch& rows) override {
    attention_.attend(out, qkv, heads, scores, dynamic_cast<const device_kv_cache&>(cache), layer, rows);
  }

  void attend_by_distance(const tensor& out, const tensor& qkv, int heads, const attention_scores& scores,
                          const distance_scores& distances, const kv_cache& cache, int layer,
                          const batch& rows) override {
    attention_.attend(out, qkv, heads, scores, dynamic_cast<const device_kv_cache&>(cache), layer, rows, nullptr,
                      &distances);
  }

  void choose_positions(position_choice& to, const tensor& queries, const tensor& weights, int heads,
                        const kv_cache& cache, int layer, const batch& rows) override {
    indexer_.choose(to, queries, weights, heads, dynamic_cast<const device_kv_cache&>(cache), layer, rows);
  }

  void attend_chosen(const tensor& out, const tensor& qkv, int heads, const attention_scores& scores,
                     const position_choice& chosen, const kv_cache& cache, int layer, const batch& rows) override {
    attention_.attend(out, qkv, heads, scores, dynamic_cast<const device_kv_cache&>(cache), layer, rows, &chosen);
  }

  void make_entries(const entry_making& how, kv_cache& cache, int from, int to, const batch& rows) override {
    compressed_.make_entries(how, dynamic_cast<const device_kv_cache&>(cache), from, to, rows);
  }

  void choose_entries(position_choice& to, const tensor& queries, const tensor& weights, int heads, int rate,
                      const kv_cache& cache, int layer, const batch& rows) override {
    indexer_.choose(to, queries, weights, heads, dynamic_cast<const device_kv_cache&>(cache), layer, rows, rate);
  }

  void attend_entries(const tensor& out, const tensor& q, int heads, const attention_scores& scores,
                      const entry_view& seen, const kv_cache& cache, const batch& rows) override {
    attention_.attend_entries(out, q, heads, scores, seen, dynamic_cast<const device_kv_cache&>(cache), rows);
  }

  void undo_rotation(const tensor& out, const tensor& x, int heads, int pairs, const float* angles,
                     const batch& rows) override {
    compressed_.undo_rotation(out, x, heads, pairs, angles, rows);
  }

  bool has_family_ops() const override { return true; }

  void layer_norm(const tensor& out, const tensor& x, const float* weight, const float* bias, float eps,
                  const std::int32_t* rows) override {
    expect(x.type == dtype::f32 && out.type != dtype::f16 && out.cols == x.cols,
           "layer_norm: x must be f32, out f32 or bf16 of the same columns");
    cuda::layer_norm(stream_,
                     {out.data, out.type, out.stride, static_cast<const float*>(x.data), x.stride, weight, bias, eps,
                      x.cols, rows != nullptr ? step_.gathered(stream_, rows, out.rows) : nullptr, out.rows});
  }

  void linear_activated(const tensor& out, const tensor& in, const matrix& w, const activation& act, bool gated,
                        const float* bias) override {
    activate(out, in, w, act, gated, bias, 0);
  }

  void linear_biased(const tensor& out, const tensor& in, const matrix& w, const activation& act, bool gated,
                     const tensor& biases) override {
    expect(biases.type == dtype::f32 && biases.rows == in.rows && biases.cols == (gated ? 2 : 1) * w.outputs,
           "linear_biased: the biases must be f32, one for each row and output");
    activate(out, in, w, act, gated, static_cast<const float*>(biases.data), biases.stride);
  }

  low_rank_layers& low_rank() override { return low_rank_; }

  void scale(const tensor& x, float factor, float soft_cap) override {
    expect(x.type == dtype::f32, "scale: the tensor must be f32");
    scale_rows(stream_, x, factor, soft_cap);
  }

  void clamp(const tensor& x, float limit) override {
    expect(x.type == dtype::f32, "clamp: the tensor must be f32");
    clamp_rows(stream_, x, limit);
  }

  void add_rows(const tensor& to, const tensor& x, float factor, const std::int32_t* rows,
                const float* factors) override {
    expect(to.type == dtype::f32 && x.type == dtype::f32 && to.cols == x.cols,
           "add_rows: both must be f32 of the same columns");
    cuda::add_rows(stream_, to, x, factor, indices(rows, x.rows),
                   factors != nullptr ? factors_.upload(stream_, factors, x.rows) : nullptr);
  }

  void multiply_rows(const tensor& to, const tensor& x) override {
    expect(to.type != dtype::f16 && x.type == dtype::f32 && to.rows == x.rows && to.cols == x.cols,
           "multiply_rows: both must be of one shape, f32 times f32 or bf16");
    cuda::multiply_rows(stream_, to, x);
  }

  void mean_squares(float* to, const tensor& x) override {
    expect(x.type == dtype::f32, "mean_squares: the tensor must be f32");
    if (x.rows == 0)
      return;
    auto* there = factors_.reserve<float>(x.rows * sizeof(float));
    cuda::mean_squares(stream_, there, x);
    copy_to_host(stream_, to, there, x.rows * sizeof(float));
    stream_.synchronise();
  }

  void gate_gaussian(const tensor& out, const tensor& gate, const tensor& up, float deviations) override {
    expect(gate.type == dtype::f32 && up.type == dtype::f32 && gate.cols == up.cols && out.cols == gate.cols &&
             out.rows == gate.rows && out.type != dtype::f16,
           "gate_gaussian: gate and up must be f32, out of their shape");
    cuda::gate_gaussian(stream_, out, gate, up, deviations);
  }

  void gather_rows(const tensor& to, const tensor& from, const std::int32_t* rows) override {
    expect(to.cols == from.cols && to.type != dtype::f16 &&
             (to.type == from.type || (to.type == dtype::bf16 && from.type == dtype::f32)),
           "gather_rows: both must be of the same columns, and of the same type or f32 into bf16");
    cuda::gather_rows(stream_, to, from, indices(rows, to.rows));
  }

  void grouped_activated(const tensor& out, const tensor& in, std::span<const row_group> groups, const activation& act,
                         bool gated) override {
    grouped_.activated(out, in, groups, act, gated);
  }

  void grouped_sum(const tensor& to, const tensor& in, std::span<const row_group> groups, store how) override {
    grouped_.sum(to, in, groups, how);
  }

  void embed_add(const tensor& to, const matrix& table, const std::int32_t* rows) override {
    look_up(to, table, indices(rows, to.rows), store::add);
  }

  void copy_blocks(kv_cache& cache, std::span<const block_copy> copies) override {
    copy_blocks_on(stream_, cache, copies);
  }

  void copy_blocks_on(const stream& on, kv_cache& cache, std::span<const block_copy> copies) override {
    dynamic_cast<const device_kv_cache&>(cache).copy(on, &on == &stream_ ? copies_ : copies_aside_, copies);
  }

  void copy_tokens(kv_cache& cache, int layer, std::span<const token_copy> copies) override {
    if (copies.empty())
      return;
    const auto& memory = dynamic_cast<const device_kv_cache&>(cache);
    if (!std::ranges::equal(copies, copied_tokens_)) { // else they are those of the layer before
      copied_tokens_.clear();                          // the upload may fail
      token_copies_on_device_ = token_copies_.upload(stream_, copies.data(), copies.size());
      copied_tokens_.assign(copies.begin(), copies.end());
    }
    cuda::copy_tokens(stream_, memory.layer(layer), token_copies_on_device_, copies.size());
  }

  void download(float* to, const tensor& from) override {
    expect(from.type == dtype::f32, "download: the tensor must be f32");
    const std::size_t row = from.cols * sizeof(float);
    copy_rows(stream_, to, row, from.data, from.stride * sizeof(float), row, from.rows);
    stream_.synchronise();
  }

  void save_block(const stream& on, const kv_cache& cache, std::int32_t block, void* host) override {
    dynamic_cast<const device_kv_cache&>(cache).save(on, block, host);
  }

  void restore_block(const stream& on, kv_cache& cache, std::int32_t block, const void* host) override {
    dynamic_cast<const device_kv_cache&>(cache).restore(on, block, host);
  }

  // -- recurrent layers -----------------------------------------------------------------------------------------------

  std::unique_ptr<state_cache> make_state_cache(const state_shape& shape) override {
    use_own();
    return std::make_unique<device_state_cache>(shape);
  }

  /// Memory on a device is taken when it is allocated.
  int states_of_a_decoder(int rows) const override { return std::min(rows, most_states_of_a_decoder); }

  void convolve(const tensor& out, const tensor& in, const convolution& how, state_cache& states, int layer) override {
    recurrence_.convolve(out, in, how, dynamic_cast<device_state_cache&>(states), layer);
  }

  void recur(const tensor& out, const tensor& in, const tensor& rates, const tensor& betas, const recurrence& how,
             state_cache& states, int layer) override {
    recurrence_.recur(out, in, rates, betas, how, dynamic_cast<device_state_cache&>(states), layer);
  }

  void gate(const tensor& out, const tensor& x, const tensor& gate, const gated_rows& how) override {
    recurrence_.gate(out, x, gate, how);
  }

  void multiply(const tensor& out, const tensor& a, const tensor& b) override { recurrence_.multiply(out, a, b); }

  void recall_tokens(std::int32_t* to, const std::int32_t* tokens, std::size_t rows, state_cache& states,
                     int index) override {
    recurrence_.recall_tokens(to, tokens, rows, dynamic_cast<device_state_cache&>(states), index);
  }

  void convolve_spread(const tensor& out, const tensor& in, const convolution& how, state_cache& states,
                       int index) override {
    recurrence_.convolve_spread(out, in, how, dynamic_cast<device_state_cache&>(states), index);
  }

  void take_agreed(const tensor& out, const tensor& a, const tensor& b, const tensor& value, float scale) override {
    recurrence_.take_agreed(out, a, b, value, scale);
  }

  void copy_states(state_cache& states, std::span<const state_copy> copies) override {
    dynamic_cast<device_state_cache&>(states).copy(stream_, copies);
  }

  void export_states(const state_cache& states, std::span<const state_export> out) override {
    dynamic_cast<const device_state_cache&>(states).copy_out(stream_, out);
  }

  void import_states(state_cache& states, std::span<const state_import> in) override {
    dynamic_cast<device_state_cache&>(states).copy_in(stream_, in);
  }

private:
  void activate(const tensor& out, const tensor& in, const matrix& w, const activation& act, bool gated,
                const float* bias, std::size_t bias_stride) {
    const auto& weights = dynamic_cast<const device_matrix&>(w);
    expect(weights.gated == gated && out.type == in.type,
           "linear_activated: the weights must be packed for it, out must be of the type of in");
    linear_.run(out, in, weights, bias, store::set, &act, bias_stride);
  }

  /// A copy on the device; null if there are none.
  const std::int32_t* indices(const std::int32_t* rows, std::size_t count) {
    return rows != nullptr ? indices_.upload(stream_, rows, count) : nullptr;
  }

  void use_own() const { use_device(options_.device); }

  std::unique_ptr<matrix> known(std::unique_ptr<device_matrix> weights) {
    linear_.add(*weights);
    return weights;
  }

  static device_info selected(int device) {
    std::string why_none;
    const int count = device_count(&why_none);
    if (device < 0 || device >= count)
      throw device_error("there is no CUDA device " + std::to_string(device) + ": " +
                         (count == 0 ? why_none : "there are " + std::to_string(count)));
    return select_device(device);
  }

  cuda_options options_;
  device_info info_;
  stream stream_, copies_stream_;
  uploader weights_upload_{stream_};
  linear_layers linear_;
  step_memory step_;
  attention_layers attention_{stream_, step_, options_, info_};
  indexer_layers indexer_{stream_, step_};
  compressed_layers compressed_{stream_, step_};
  recurrent_layers recurrence_{stream_, step_};
  grouped_products grouped_{*this};
  low_rank_layers low_rank_{*this};
  device_scratch copies_, copies_aside_, indices_, factors_;
  device_scratch token_copies_;
  std::vector<token_copy> copied_tokens_; // that were uploaded last
  const token_copy* token_copies_on_device_ = nullptr;
};

} // namespace

std::unique_ptr<cuda_backend> make_cuda_backend(const cuda_options& options) {
  return std::make_unique<backend_on_device>(options);
}

} // namespace troupe::kernels::cuda
