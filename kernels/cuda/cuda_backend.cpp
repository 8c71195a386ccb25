#include "kernels/cuda/cuda_backend.hpp"

#include "kernels/cuda/device/attention/attention.hpp"
#include "kernels/cuda/device/family_rows.hpp"
#include "kernels/cuda/device/rope.hpp"
#include "kernels/cuda/device/rows.hpp"
#include "kernels/cuda/grouped_products.hpp"
#include "kernels/cuda/linear_layers.hpp"
#include "kernels/cuda/recurrent_layers.hpp"
#include "kernels/cuda/scratch_plan.hpp"
#include "kernels/cuda/step_memory.hpp"
#include "kernels/cuda/weight_packing.hpp"
#include "kernels/gaussian_gates.hpp"
#include "kernels/planned_steps.hpp"

#include <algorithm>
#include <set>

namespace troupe::kernels::cuda {

namespace {

constexpr int most_states_of_a_decoder = 4;

void expect(bool holds, const char* message) {
  if (!holds)
    throw std::invalid_argument(message);
}

class device_kv_cache : public kv_cache {
public:
  explicit device_kv_cache(const kv_shape& wanted) {
    shape = wanted;
    data_ = cuda::allocate(shape.block_bytes() * shape.blocks);
  }

  /// [layers][blocks], then as in kv_layout.hpp.
  unsigned char* data(int layer) const {
    return static_cast<unsigned char*>(data_.get()) + shape.block_bytes_before(layer) * shape.blocks;
  }
  layer_cache layer(int index) const {
    const auto [heads, dim, values] = shape.layer(index);
    return {data(index), heads, dim, shape.type};
  }

  /// Layers whose blocks are alike: all, or each on its own.
  struct alike {
    int first, count;
    std::size_t block_bytes, layer_bytes;
  };
  std::vector<alike> layers() const {
    std::vector<alike> all;
    const int count = shape.own.empty() ? shape.layers : 1;
    for (int first = 0; first < shape.layers; first += count) {
      const auto bytes = shape.block_bytes_before(first + 1) - shape.block_bytes_before(first);
      all.push_back({first, count, bytes, bytes * shape.blocks});
    }
    return all;
  }

private:
  buffer data_;
};

class backend_on_device final : public cuda_backend, public recurrent_ops, public gaussian_gates {
public:
  explicit backend_on_device(const cuda_options& options)
    : options_(options), info_(selected(options.device)), linear_(stream_, options, info_) {
    if (options.unified_maximum)
      counts_ = cuda::allocate(sizeof(softmax_counts));
  }

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
    return step_.growths() + states_.growths() + linear_.growths() + grouped_.growths() + indices_.growths() +
      factors_.growths();
  }

  bool deterministic() const override { return options_.deterministic; }

  std::vector<const softmax_counts*> softmax() const override {
    if (!counts_)
      return {};
    return {static_cast<const softmax_counts*>(counts_.get())};
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
    const auto& memory = dynamic_cast<const device_kv_cache&>(cache);
    const auto shape = cache.shape.layer(layer);
    expect(heads % shape.heads == 0, "attention: heads must be a multiple of the KV heads");
    expect(out.type != dtype::f16, "attention: out must be f32 or bf16");
    expect(scores.scale > 0, "attention: the scale of scores must be positive");
    step_.enter(stream_, rows);
    const bool tensor_cores = has_tensor_attention(cache.shape.type, shape.dim);
    attention_options options;
    options.group = heads / shape.heads;
    options.window = scores.window;
    options.chunk = scores.chunk;
    options.ahead = scores.ahead;
    options.flash = tensor_cores && !options_.deterministic;
    options.kv_heads = shape.heads;
    options.multiprocessors = info_.multiprocessors;
    options.least_common = tensor_cores ? least_common_quarters : 0;
    const std::size_t state_bytes = static_cast<std::size_t>(heads * state_floats(shape.dim)) * sizeof(float);
    options.most_slots = std::max<std::size_t>(1, state_memory / state_bytes);
    const auto& planned = step_.attention(stream_, options);

    attention_params p;
    p.q = static_cast<const float*>(qkv.data);
    p.q_stride = qkv.stride;
    p.out = out.data;
    p.out_type = out.type;
    p.out_stride = out.stride;
    p.heads = heads;
    p.scale = exponent(scores.scale);
    p.cap = exponent(scores.soft_cap);
    p.slopes = scores.slopes;
    p.sinks = scores.sinks;
    p.cache = memory.layer(layer);
    p.rows = planned.rows;
    p.list = planned.list;
    p.tables = step_.tables();
    p.places = step_.places();
    p.unified = tensor_cores && options_.unified_maximum.has_value();
    p.maximum = exponent(options_.unified_maximum.value_or(0));
    p.counts = static_cast<softmax_counts*>(counts_.get());
    p.aligned = reinterpret_cast<std::uintptr_t>(p.q) % 16 == 0 && p.q_stride % 4 == 0 &&
      reinterpret_cast<std::uintptr_t>(p.out) % (2 * size_of(p.out_type)) == 0 && p.out_stride % 2 == 0;
    p.states = states_.reserve<float>(planned.plan.slots * state_bytes);
    attend_flash(stream_, p, planned.flash, planned.plan.flash.size());
    for (const auto& slab : planned.plan.slabs) {
      const auto *small = planned.small + slab.small_first, *large = planned.large + slab.large_first;
      if (tensor_cores) {
        attend_common(stream_, p, planned.common + slab.common_first, slab.common);
        attend(stream_, p, small, slab.small, small_tile);
        attend(stream_, p, large, slab.large, large_tile);
      } else {
        attend_plainly(stream_, p, small, slab.small);
        attend_plainly(stream_, p, large, slab.large);
      }
      merge_states(stream_, p, slab.merge_first, slab.merge);
    }
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
    const auto& weights = dynamic_cast<const device_matrix&>(w);
    expect(weights.gated == gated && out.type == in.type,
           "linear_activated: the weights must be packed for it, out must be of the type of in");
    linear_.run(out, in, weights, bias, store::set, &act);
  }

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
    // Copies run concurrently up to the first that depends on an earlier one.
    std::set<std::int32_t> read, written;
    std::size_t first = 0;
    for (std::size_t i = 0; i < copies.size(); ++i) {
      const auto [from, to] = copies[i];
      if (written.contains(from) || written.contains(to) || read.contains(to)) {
        copy_together(on, cache, copies.subspan(first, i - first));
        first = i;
        read.clear();
        written.clear();
      }
      read.insert(from);
      written.insert(to);
    }
    copy_together(on, cache, copies.subspan(first));
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
    const auto& memory = dynamic_cast<const device_kv_cache&>(cache);
    for (const auto& l : memory.layers())
      copy_layers(on, static_cast<unsigned char*>(host) + cache.shape.block_bytes_before(l.first), l.block_bytes,
                  block_address(memory, l, block), l.layer_bytes, l.block_bytes, l.count);
  }

  void restore_block(const stream& on, kv_cache& cache, std::int32_t block, const void* host) override {
    const auto& memory = dynamic_cast<const device_kv_cache&>(cache);
    for (const auto& l : memory.layers())
      copy_layers(on, block_address(memory, l, block), l.layer_bytes,
                  static_cast<const unsigned char*>(host) + cache.shape.block_bytes_before(l.first), l.block_bytes,
                  l.block_bytes, l.count);
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

  static unsigned char* block_address(const device_kv_cache& memory, const device_kv_cache::alike& layers,
                                      std::int32_t block) {
    expect(block >= 0 && static_cast<std::size_t>(block) < memory.shape.blocks, "a block outside the KV cache");
    return memory.data(layers.first) + static_cast<std::size_t>(block) * layers.block_bytes;
  }

  /// One copy, unless the cache is so large that the distance of its layers exceeds the largest pitch.
  static void copy_layers(const stream& on, unsigned char* to, std::size_t to_pitch, const unsigned char* from,
                          std::size_t from_pitch, std::size_t bytes, int layers) {
    const auto count = static_cast<std::size_t>(layers);
    if (std::max(to_pitch, from_pitch) <= most_pitch)
      return copy_rows(on, to, to_pitch, from, from_pitch, bytes, count);
    for (std::size_t i = 0; i < count; ++i)
      copy_rows(on, to + i * to_pitch, bytes, from + i * from_pitch, bytes, bytes, 1);
  }

  void copy_together(const stream& on, kv_cache& cache, std::span<const block_copy> copies) {
    const auto& memory = dynamic_cast<const device_kv_cache&>(cache);
    copy_blocks_params p;
    p.copies = (&on == &stream_ ? copies_ : copies_aside_).upload(on, copies.data(), copies.size());
    p.count = copies.size();
    for (const auto& l : memory.layers()) {
      p.cache = memory.data(l.first);
      p.block_bytes = l.block_bytes;
      p.layer_bytes = l.layer_bytes;
      p.layers = l.count;
      cuda::copy_blocks(on, p);
    }
  }

  cuda_options options_;
  device_info info_;
  stream stream_, copies_stream_;
  uploader weights_upload_{stream_};
  linear_layers linear_;
  step_memory step_;
  recurrent_layers recurrence_{stream_, step_};
  grouped_products grouped_{*this};
  device_scratch copies_, copies_aside_, states_, indices_, factors_;
  device_scratch token_copies_;
  std::vector<token_copy> copied_tokens_; // that were uploaded last
  const token_copy* token_copies_on_device_ = nullptr;
  buffer counts_; // softmax_counts
};

} // namespace

std::unique_ptr<cuda_backend> make_cuda_backend(const cuda_options& options) {
  return std::make_unique<backend_on_device>(options);
}

} // namespace troupe::kernels::cuda
