#include "kernels/cuda/cuda_backend.hpp"

#include "kernels/cuda/device/attention.hpp"
#include "kernels/cuda/device/fp8.hpp"
#include "kernels/cuda/device/linear.hpp"
#include "kernels/cuda/device/rope.hpp"
#include "kernels/cuda/device/rows.hpp"
#include "kernels/cuda/gemm_library.hpp"
#include "kernels/cuda/linear_chooser.hpp"
#include "kernels/cuda/scratch_plan.hpp"
#include "kernels/cuda/step_memory.hpp"
#include "kernels/cuda/weights.hpp"
#include "kernels/planned_steps.hpp"

#include <algorithm>
#include <limits>
#include <set>

namespace troupe::kernels::cuda {

namespace {

constexpr int most_head_dim = 256;

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

  /// [layers][blocks], then as kv_layout.hpp says.
  std::size_t block_bytes() const { return shape.block_bytes() / static_cast<std::size_t>(shape.layers); }
  std::size_t layer_bytes() const { return block_bytes() * shape.blocks; }
  unsigned char* data() const { return static_cast<unsigned char*>(data_.get()); }
  layer_cache layer(int index) const {
    return {data() + static_cast<std::size_t>(index) * layer_bytes(), shape.kv_heads, shape.head_dim, shape.type};
  }

private:
  buffer data_;
};

class backend_on_device final : public cuda_backend {
public:
  explicit backend_on_device(const cuda_options& options)
    : options_(options),
      info_(selected(options.device)),
      library_(options.deterministic ? nullptr : open_gemm_library()) {}

  std::string description() const override {
    return (is_emulated() ? "cuda, emulated" : "cuda:" + std::to_string(options_.device) + ", " + info_.name) +
      ", compute capability " + std::to_string(info_.major) + "." + std::to_string(info_.minor) +
      (options_.deterministic ? ", deterministic"
         : library_           ? ", cuBLASLt"
                              : ", no cuBLASLt found");
  }

  const stream& queue() const override { return stream_; }
  const stream& copy_queue() const override { return copies_stream_; }

  void stage(const step_inputs& inputs) override { step_.stage(copies_stream_, stream_, inputs); }
  void begin_step(const std::int32_t* slot_tokens) override { step_.begin(stream_, slot_tokens); }
  std::vector<std::uint64_t> launch_shape() const override { return step_.launch_shape(); }
  std::uint64_t memory_moves() const override {
    return step_.growths() + states_.growths() + trial_.growths() + expanded_.growths() + products_.growths() +
      codes_.growths() + row_scales_.growths();
  }

  bool deterministic() const override { return options_.deterministic; }

  buffer allocate(std::size_t bytes) override { return cuda::allocate(bytes); }

  buffer upload(std::span<const float> values) override {
    auto copy = cuda::allocate(values.size_bytes());
    if (!values.empty())
      copy_to_device(stream_, copy.get(), values.data(), values.size_bytes());
    stream_.synchronise();
    return copy;
  }

  std::unique_ptr<kv_cache> make_kv_cache(const kv_shape& shape) override {
    expect(shape.layers > 0 && shape.kv_heads > 0, "a KV cache needs layers and heads");
    expect(shape.head_dim > 0 && shape.head_dim % 2 == 0 && shape.head_dim <= most_head_dim,
           "the CUDA backend's attention takes an even head_dim of at most 256");
    return std::make_unique<device_kv_cache>(shape);
  }

  std::unique_ptr<matrix> pack(std::span<const stored_matrix> stacked, dtype compute, quantization how) override {
    return pack_weights(weights_upload_, stacked, compute, how, false);
  }

  std::unique_ptr<matrix> pack_gate_up(const stored_matrix& gate, const stored_matrix& up, dtype compute,
                                       quantization how) override {
    const stored_matrix both[] = {gate, up};
    return pack_weights(weights_upload_, both, compute, how, true);
  }

  std::size_t packed_bytes(std::span<const stored_matrix> stacked, dtype compute, quantization how,
                           bool gated) const override {
    return plan_weights(stacked, compute, how, gated)->bytes;
  }

  std::unique_ptr<matrix> load_table(const stored_matrix& table) override { return pack_table(weights_upload_, table); }

  std::size_t table_bytes(const stored_matrix& table) const override { return plan_table(table)->bytes; }

  std::size_t scratch_bytes(const planned_steps& steps) const override {
    return cuda::scratch_bytes(steps, library_ != nullptr, options_.expanded_memory);
  }

  void embed(const tensor& out, const matrix& table, const std::int32_t* tokens) override {
    const auto& from = dynamic_cast<const device_table&>(table);
    expect(out.type == dtype::f32 && out.cols == from.inputs, "embed: out must be f32 with the table's columns");
    embed_params p;
    p.out = static_cast<float*>(out.data);
    p.out_stride = out.stride;
    p.table = from.data.get();
    p.type = from.type;
    p.grouped = from.grouped;
    p.cols = out.cols;
    p.tokens = step_.tokens(stream_, tokens, out.rows);
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
    run_linear(out, in, weights, bias, how);
  }

  void linear_silu_gate(const tensor& out, const tensor& in, const matrix& gate_up, const float* bias) override {
    const auto& weights = dynamic_cast<const device_matrix&>(gate_up);
    expect(weights.gated && out.type == in.type,
           "linear_silu_gate: the weights must be packed by pack_gate_up(), out must be of the type of in");
    run_linear(out, in, weights, bias, store::set);
  }

  void rope_write_kv(const tensor& qkv, int heads, const head_norm& norm, const float* rope, kv_cache& cache, int layer,
                     const batch& who) override {
    const auto& memory = dynamic_cast<const device_kv_cache&>(cache);
    step_.enter(stream_, who);
    rope_params p;
    p.qkv = static_cast<float*>(qkv.data);
    p.stride = qkv.stride;
    p.heads = heads;
    p.q_norm = norm.q;
    p.k_norm = norm.k;
    p.eps = norm.eps;
    p.rope = rope;
    p.cache = memory.layer(layer);
    p.places = step_.places();
    p.tables = step_.tables();
    p.rows = step_.rows();
    cuda::rope_write_kv(stream_, p);
  }

  void attention(const tensor& out, const tensor& qkv, int heads, float scale, int window, const kv_cache& cache,
                 int layer, const batch& who) override {
    const auto& memory = dynamic_cast<const device_kv_cache&>(cache);
    const auto& shape = cache.shape;
    expect(heads % shape.kv_heads == 0, "attention: heads must be a multiple of the KV heads");
    expect(out.type != dtype::f16, "attention: out must be f32 or bf16");
    step_.enter(stream_, who);
    const bool tensor_cores = has_tensor_attention(shape.type, shape.head_dim);
    attention_options options;
    options.group = heads / shape.kv_heads;
    options.window = window;
    options.flash = tensor_cores && !options_.deterministic;
    const std::size_t state_bytes = static_cast<std::size_t>(heads * state_floats(shape.head_dim)) * sizeof(float);
    options.most_slots = std::max<std::size_t>(1, state_memory / state_bytes);
    const auto& planned = step_.attention(stream_, options);

    attention_params p;
    p.q = static_cast<const float*>(qkv.data);
    p.q_stride = qkv.stride;
    p.out = out.data;
    p.out_type = out.type;
    p.out_stride = out.stride;
    p.heads = heads;
    p.scale = scale;
    p.window = window;
    p.cache = memory.layer(layer);
    p.rows = planned.rows;
    p.list = planned.list;
    p.tables = step_.tables();
    p.places = step_.places();
    p.unified = tensor_cores && options_.unified_maximum.has_value();
    p.maximum = options_.unified_maximum.value_or(0);
    p.states = states_.reserve<float>(planned.plan.slots * state_bytes);
    attend_flash(stream_, p, planned.flash, planned.plan.flash.size());
    for (const auto& slab : planned.plan.slabs) {
      const auto *small = planned.small + slab.small_first, *large = planned.large + slab.large_first;
      if (tensor_cores) {
        attend(stream_, p, small, slab.small, small_tile);
        attend(stream_, p, large, slab.large, large_tile);
      } else {
        attend_plainly(stream_, p, small, slab.small);
        attend_plainly(stream_, p, large, slab.large);
      }
      merge_states(stream_, p, slab.merge_first, slab.merge);
    }
  }

  void copy_blocks(kv_cache& cache, std::span<const block_copy> copies) override {
    copy_blocks_on(stream_, cache, copies);
  }

  void copy_blocks_on(const stream& on, kv_cache& cache, std::span<const block_copy> copies) override {
    // Copies that read what an earlier one writes, or write what an earlier one reads or writes, wait for it.
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

  void download(float* to, const tensor& from) override {
    expect(from.type == dtype::f32, "download: the tensor must be f32");
    const std::size_t row = from.cols * sizeof(float);
    copy_rows(stream_, to, row, from.data, from.stride * sizeof(float), row, from.rows);
    stream_.synchronise();
  }

  void save_block(const stream& on, const kv_cache& cache, std::int32_t block, void* host) override {
    const auto& memory = dynamic_cast<const device_kv_cache&>(cache);
    copy_layers(on, static_cast<unsigned char*>(host), memory.block_bytes(), block_address(memory, block),
                memory.layer_bytes(), memory.block_bytes(), cache.shape.layers);
  }

  void restore_block(const stream& on, kv_cache& cache, std::int32_t block, const void* host) override {
    const auto& memory = dynamic_cast<const device_kv_cache&>(cache);
    copy_layers(on, block_address(memory, block), memory.layer_bytes(), static_cast<const unsigned char*>(host),
                memory.block_bytes(), memory.block_bytes(), cache.shape.layers);
  }

private:
  static device_info selected(int device) {
    std::string why_none;
    const int count = device_count(&why_none);
    if (device < 0 || device >= count)
      throw device_error("there is no CUDA device " + std::to_string(device) + ": " +
                         (count == 0 ? why_none : "there are " + std::to_string(count)));
    return select_device(device);
  }

  static unsigned char* block_address(const device_kv_cache& memory, std::int32_t block) {
    expect(block >= 0 && static_cast<std::size_t>(block) < memory.shape.blocks, "a block outside the KV cache");
    return memory.data() + static_cast<std::size_t>(block) * memory.block_bytes();
  }

  /// All at once, unless the cache is so large that its layers lie further apart than such copies may step.
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
    p.cache = memory.data();
    p.block_bytes = memory.block_bytes();
    p.layer_bytes = memory.layer_bytes();
    p.layers = cache.shape.layers;
    p.copies = (&on == &stream_ ? copies_ : copies_aside_).upload(on, copies.data(), copies.size());
    p.count = copies.size();
    cuda::copy_blocks(on, p);
  }

  void run_linear(const tensor& out, const tensor& in, const device_matrix& weights, const float* bias, store how) {
    expect(in.type == weights.compute && in.cols == weights.inputs,
           "linear: in must be of the type and columns that the weights were packed for");
    expect(out.cols == weights.outputs && out.rows == in.rows, "linear: out must be [rows of in, outputs]");
    for (const auto& part : weights.parts) {
      auto p = params_of(part);
      p.out = static_cast<char*>(out.data) + part.first * size_of(out.type);
      p.out_stride = out.stride;
      p.in = in.data;
      p.in_stride = in.stride;
      p.rows = in.rows;
      p.bias = bias != nullptr ? bias + part.first : nullptr;
      p.add = how == store::add;
      if (weights.compute == dtype::f32)
        linear_plain(stream_, part, p);
      else if (!wants_library(part, p) || !multiply_by_library(part, p))
        linear_flat(stream_, part, p);
    }
  }

  bool wants_library(const weight_part& part, const linear_params& params) {
    if (!library_ || params.rows == 0)
      return false;
    const auto measure = [&](linear_method method) {
      auto p = params; // results go elsewhere: the real ones may be added to what is there
      p.out_stride = part.outputs;
      p.out = trial_.reserve(p.rows * p.out_stride * sizeof(float));
      constexpr int runs = 5;
      for (int i = -1; i < runs; ++i) {
        if (i == 0)
          stream_.start_timer();
        if (method == linear_method::flat)
          linear_flat(stream_, part, p);
        else if (!multiply_by_library(part, p))
          return std::numeric_limits<float>::infinity();
      }
      return stream_.stop_timer() / runs;
    };
    return chooser_.choose({part.kind, part.gated, part.outputs, part.inputs}, params.rows, measure) ==
      linear_method::library;
  }

  /// False where the library cannot.
  bool multiply_by_library(const weight_part& part, const linear_params& params) {
    if (part.kind == weight_kind::fp8 && info_.major * 10 + info_.minor >= 89 && multiply_fp8(part, params))
      return true;
    if (is_grouped(part.kind) || part.kind == weight_kind::fp8)
      return multiply_expanded(part, params);
    product p;
    p.inputs = part.inputs;
    p.in_stride = params.in_stride;
    p.weights = part.codes.get();
    p.weight_stride = part.stride;
    return multiply_pieces(part, params, p, part.gated ? piece_of(params.rows) : params.rows, part.gated);
  }

  /// Weights become bf16 first, some of the outputs at a time.
  bool multiply_expanded(const weight_part& part, const linear_params& params) {
    const auto tiles = expanded_tiles(part, options_.expanded_memory);
    for (std::size_t first = 0; first < part.tiles; first += tiles) {
      const auto piece = part.slice(first, std::min(tiles, part.tiles - first));
      const auto skipped = piece.first - part.first;
      product p;
      p.inputs = part.inputs;
      p.in_stride = params.in_stride;
      p.weight_stride = part.chunks() * chunk_inputs;
      auto* expanded = expanded_.reserve<std::uint16_t>(tiles * expanded_tile_bytes(part));
      dequantise_part(stream_, piece, expanded, p.weight_stride);
      p.weights = expanded;
      auto of_piece = params;
      of_piece.out = static_cast<char*>(params.out) + skipped * size_of(part.gated ? dtype::bf16 : dtype::f32);
      of_piece.bias = params.bias != nullptr ? params.bias + skipped : nullptr;
      if (!multiply_pieces(piece, of_piece, p, part.gated ? piece_of(params.rows) : params.rows, part.gated)) {
        if (first > 0)
          throw device_error("cublasLtMatmul: takes some outputs of a product, but not others");
        return false;
      }
    }
    return true;
  }

  /// Activations as codes, too: with their scales and the weights' where the library takes such, else these follow.
  bool multiply_fp8(const weight_part& part, const linear_params& params) {
    product p;
    p.fp8 = true;
    p.inputs = p.in_stride = p.weight_stride = part.stride; // padded with zeros
    p.weights = part.codes.get();
    quantise_rows_params q;
    q.codes = codes_.reserve<std::uint8_t>(params.rows * part.stride);
    q.scales = row_scales_.reserve<float>(params.rows * sizeof(float));
    q.in = static_cast<const std::uint16_t*>(params.in);
    q.in_stride = params.in_stride;
    q.cols = part.inputs;
    q.stride = part.stride;
    q.rows = params.rows;
    quantise_rows(stream_, q);
    p.row_scales = q.scales;
    p.output_scales = static_cast<const float*>(part.scales.get());
    if (multiply_pieces(part, params, p, part.gated ? piece_of(params.rows) : params.rows, part.gated))
      return true;
    p.row_scales = p.output_scales = nullptr;
    return multiply_pieces(part, params, p, piece_of(params.rows), true);
  }

  /// `at_once` rows at a time; where they are `passing`, through memory, in which they are scaled or gated.
  bool multiply_pieces(const weight_part& part, const linear_params& params, product p, std::size_t at_once,
                       bool passing) {
    const auto* row_scales = p.row_scales;
    p.outputs = part.gated ? part.tiles * tile_outputs : part.outputs;
    for (std::size_t first = 0; first < params.rows; first += at_once) {
      p.rows = std::min(at_once, params.rows - first);
      if (p.fp8) {
        p.in = static_cast<const std::uint8_t*>(codes_.reserve(0)) + first * p.in_stride;
        p.row_scales = row_scales != nullptr ? row_scales + first : nullptr;
      } else {
        p.in = static_cast<const std::uint16_t*>(params.in) + first * params.in_stride;
      }
      float* out = static_cast<float*>(params.out) + first * params.out_stride; // unless gated
      p.out_stride = passing ? p.outputs : params.out_stride;
      p.out = passing ? products_.reserve<float>(at_once * p.outputs * sizeof(float)) : out;
      p.add = params.add && !passing;
      if (!library_->multiply(stream_, p)) {
        if (first > 0)
          throw device_error("cublasLtMatmul: takes some rows of a product, but not others");
        return false;
      }
      if (p.fp8 && p.row_scales == nullptr)
        scale_products(stream_,
                       {part.gated ? p.out : out, part.gated ? p.out_stride : params.out_stride, p.out, p.out_stride,
                        row_scales_.reserve<float>(0) + first, static_cast<const float*>(part.scales.get()), p.outputs,
                        p.rows, params.add && !part.gated});
      if (part.gated)
        silu_gate(stream_,
                  {static_cast<std::uint16_t*>(params.out) + first * params.out_stride, dtype::bf16, params.out_stride,
                   p.out, p.out_stride, params.bias, params.bias_up, part.outputs, p.rows});
      else if (params.bias != nullptr)
        add_bias(stream_, out, params.out_stride, params.bias, part.outputs, p.rows);
    }
    return true;
  }

  cuda_options options_;
  device_info info_;
  stream stream_, copies_stream_;
  uploader weights_upload_{stream_};
  std::unique_ptr<gemm_library> library_; // null: there is none, or it is not wanted
  linear_chooser chooser_;
  step_memory step_;
  device_scratch copies_, copies_aside_, states_;
  device_scratch trial_, expanded_, products_, codes_, row_scales_; // of linear layers
};

} // namespace

std::unique_ptr<cuda_backend> make_cuda_backend(const cuda_options& options) {
  return std::make_unique<backend_on_device>(options);
}

} // namespace troupe::kernels::cuda
