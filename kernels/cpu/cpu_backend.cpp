#include "kernels/cpu/cpu_backend.hpp"

#include "kernels/cpu/attention_plan.hpp"
#include "kernels/cpu/memory.hpp"
#include "kernels/cpu/packed_matrix.hpp"
#include "kernels/cpu/target.hpp"
#include "kernels/cpu/thread_pool.hpp"

#include <algorithm>
#include <cstring>
#include <unistd.h>

namespace troupe::kernels {

namespace {

// Sizes of tasks; none of them can change a result.
constexpr std::size_t rows_per_chunk = 8; // of norms, rotations, gathers
constexpr std::size_t outputs_per_linear_task = 256;
constexpr std::size_t tile_register_rows = 16; // take as long as fewer rows; tiles in vectors share rows evenly
constexpr std::size_t least_rows_per_linear_task = 64;
constexpr int most_rows_with_sums = 256; // in L2, beside their activations in f32

/// Of L2. Targets say how many rows fit into as much; a larger one gets the same blocks.
constexpr std::size_t most_cache = std::size_t(1) << 20;

/// What a core has, at most `most_cache`.
std::size_t l2_bytes() {
#if defined(_SC_LEVEL2_CACHE_SIZE)
  if (const long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE); bytes > 0)
    return std::min(static_cast<std::size_t>(bytes), most_cache);
#endif
  return most_cache;
}

const target& find_target(isa wanted) {
  const auto available = available_isas();
  if (std::find(available.begin(), available.end(), wanted) == available.end())
    throw device_error("this machine cannot run the CPU target " + std::string(to_string(wanted)));
#if defined(__x86_64__)
  switch (wanted) {
    case isa::avx2: return avx2_target();
    case isa::avx_vnni: return avx_vnni_target();
    case isa::avx512: return avx512_target();
    case isa::avx512_vnni: return avx512_vnni_target();
    case isa::avx512_bf16: return avx512_bf16_target();
    case isa::avx512_amx: return avx512_amx_target();
    case isa::portable: break;
  }
#endif
  return portable_target();
}

void expect(bool holds, const char* message) {
  if (!holds)
    throw std::invalid_argument(message);
}

template <class T>
T* row_of(const tensor& t, std::size_t row) {
  return static_cast<T*>(t.data) + row * t.stride;
}

void* row_of(const tensor& t, std::size_t row) { return static_cast<char*>(t.data) + row * t.stride * size_of(t.type); }

std::size_t ceil_div(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

class cpu_kv_cache : public kv_cache {
public:
  explicit cpu_kv_cache(const kv_shape& wanted) {
    shape = wanted;
    data_ = allocate_zeroed(shape.block_bytes() * shape.blocks + cache_slack);
  }

  /// [layers], see layer_cache.
  layer_cache layer(int index) const {
    const std::size_t head_block = kv_bytes(shape.type, shape.head_dim) * block_tokens;
    const std::size_t scales = shape.type == kv_type::int8 ? 2 * block_tokens * sizeof(float) : 0;
    layer_cache layer;
    layer.head_bytes = head_block * shape.blocks;
    layer.value_bytes = (head_block - scales) / 2;
    layer.key_bytes = head_block - layer.value_bytes;
    layer.value_offset = layer.key_bytes * shape.blocks;
    layer.data = static_cast<char*>(data_.get()) + index * shape.kv_heads * layer.head_bytes;
    layer.kv_heads = shape.kv_heads;
    layer.head_dim = shape.head_dim;
    layer.type = shape.type;
    return layer;
  }

private:
  buffer data_;
};

class cpu_backend : public backend, public storable_matrices {
public:
  explicit cpu_backend(const cpu_options& options)
    : isa_(options.target),
      kernels_(find_target(options.target)),
      pool_(options.threads),
      cache_(options.cache != 0 ? std::min(options.cache, most_cache) : l2_bytes()),
      plan_(pool_.size()) {
    linear_scratch_.resize(pool_.size());
    attention_scratch_.resize(pool_.size());
  }

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
    expect(shape.type != kv_type::fp8, "the CPU backend keeps K and V in f32, bf16 or int8, not in fp8");
    expect(shape.layers > 0 && shape.kv_heads > 0, "a KV cache needs layers and heads");
    expect(shape.head_dim > 0 && shape.head_dim % 2 == 0 && shape.head_dim <= max_head_dim,
           "the CPU backend's attention takes an even head_dim of at most 256");
    return std::make_unique<cpu_kv_cache>(shape);
  }

  std::unique_ptr<matrix> pack(std::span<const stored_matrix> stacked, dtype compute, quantization how) override {
    return pack_stack(stacked, compute, how, false, kernels_, pool_);
  }

  std::unique_ptr<matrix> pack_gate_up(const stored_matrix& gate, const stored_matrix& up, dtype compute,
                                       quantization how) override {
    const stored_matrix both[] = {gate, up};
    return pack_stack(both, compute, how, true, kernels_, pool_);
  }

  std::size_t packed_bytes(std::span<const stored_matrix> stacked, dtype compute, quantization how,
                           bool gated) const override {
    return stack_bytes(stacked, compute, how, gated, kernels_);
  }

  isa instruction_set() const override { return isa_; }
  int layout_version() const override { return packed_layout_version; }

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

  void embed(const tensor& out, const matrix& table, const std::int32_t* tokens) override {
    const auto& stored = dynamic_cast<const host_table&>(table).stored;
    expect(out.type == dtype::f32 && out.cols == stored.cols, "embed: out must be f32 with the table's columns");
    for_rows(out.rows, [&](std::size_t r) {
      const void* from = stored.row(tokens[r]);
      if (is_float(stored.format))
        return kernels_.widen(exact_kind(dtype_of(stored.format)), row_of<float>(out, r), from, stored.cols);
      expand(stored.format, from, 0, stored.cols, row_of<float>(out, r));
    });
  }

  void rms_norm(const tensor& out, const tensor& x, const float* weight, float eps, const std::int32_t* rows) override {
    expect(x.type == dtype::f32 && out.type != dtype::f16 && out.cols == x.cols,
           "rms_norm: x must be f32, out f32 or bf16 of the same columns");
    const norm_op op{weight, eps, x.cols, out.type == dtype::bf16};
    for_rows(out.rows, [&](std::size_t i) {
      kernels_.rms_norm(op, row_of(out, i), row_of<float>(x, rows != nullptr ? rows[i] : i));
    });
  }

  void linear(const tensor& out, const tensor& in, const matrix& w, const float* bias, store how) override {
    if (const auto* stack = dynamic_cast<const matrix_stack*>(&w)) {
      expect(out.type == dtype::f32 && out.cols == w.outputs, "linear: out must be f32 [rows of in, outputs]");
      tensor part = out;
      for (const auto& weights : stack->parts) {
        part.cols = weights->outputs;
        run_linear(part, in, *weights, bias, how);
        part.data = static_cast<float*>(part.data) + part.cols;
        if (bias != nullptr)
          bias += part.cols;
      }
      return;
    }
    const auto& weights = dynamic_cast<const packed_matrix&>(w);
    expect(!weights.gated && out.type == dtype::f32, "linear: the weights must be packed by pack(), out must be f32");
    run_linear(out, in, weights, bias, how);
  }

  void linear_silu_gate(const tensor& out, const tensor& in, const matrix& gate_up, const float* bias) override {
    const auto& weights = dynamic_cast<const packed_matrix&>(gate_up);
    expect(weights.gated && out.type == in.type,
           "linear_silu_gate: the weights must be packed by pack_gate_up(), out must be of the type of in");
    run_linear(out, in, weights, bias, store::set);
  }

  void rope_write_kv(const tensor& qkv, int heads, const head_norm& norm, const float* rope, kv_cache& cache, int layer,
                     const batch& who) override {
    rope_op op;
    op.cache = dynamic_cast<const cpu_kv_cache&>(cache).layer(layer);
    op.heads = heads;
    op.rope = rope;
    op.q_norm = norm.q;
    op.k_norm = norm.k;
    op.eps = norm.eps;
    chunks_.clear();
    for (const auto& s : who.sequences)
      for (int row = 0; row < s.rows; row += rows_per_chunk)
        chunks_.push_back({&s, row, std::min<int>(s.rows, row + rows_per_chunk)});
    pool_.parallel_for(chunks_.size(), [&](std::size_t i, int) {
      const auto& [s, from, to] = chunks_[i];
      for (int row = from; row < to; ++row) {
        const int position = s->first_position + row;
        kernels_.rope_write_kv(op, row_of<float>(qkv, s->first_row + row), position,
                               who.block_tables[s->first_block + position / block_tokens]);
      }
    });
  }

  void attention(const tensor& out, const tensor& qkv, int heads, float scale, int window, const kv_cache& cache,
                 int layer, const batch& who) override {
    attention_call call;
    call.op.cache = dynamic_cast<const cpu_kv_cache&>(cache).layer(layer);
    call.op.scale = scale;
    call.op.window = window;
    call.op.out_bf16 = out.type == dtype::bf16;
    call.q = &qkv;
    call.out = &out;
    call.blocks = who.block_tables.data();
    const int kv_heads = call.op.cache.kv_heads;
    expect(heads % kv_heads == 0, "attention: heads must be a multiple of the KV heads");
    expect(out.type != dtype::f16, "attention: out must be f32 or bf16");
    call.group = heads / kv_heads;
    call.stride = state_stride(call.op.cache.head_dim);
    call.tile_queries = call.op.cache.type == kv_type::f32 ? kernels_.wide_queries : kernels_.narrow_queries;
    plan_.make({kv_heads, call.group, window, call.tile_queries}, who);
    call.slots = states_.reserve(plan_.slots() * call.stride);
    // Head after head: the pieces of a long prompt then find its K and V in the cache.
    const std::size_t pieces = plan_.pieces().size(), merges = plan_.merges().size();
    pool_.parallel_for(pieces * kv_heads, [&](std::size_t i, int thread) {
      attend(call, plan_.pieces()[i % pieces], static_cast<int>(i / pieces), attention_scratch_[thread]);
    });
    pool_.parallel_for(merges * kv_heads, [&](std::size_t i, int thread) {
      merge(call, plan_.merges()[i % merges], static_cast<int>(i / merges), attention_scratch_[thread].tiles);
    });
  }

  void copy_blocks(kv_cache& cache, std::span<const block_copy> copies) override {
    const auto& memory = dynamic_cast<const cpu_kv_cache&>(cache);
    if (copies.empty())
      return;
    pool_.parallel_for(cache.shape.layers, [&](std::size_t i, int) {
      const auto layer = memory.layer(static_cast<int>(i));
      for (int head = 0; head < layer.kv_heads; ++head) {
        char* keys = layer.data + head * layer.head_bytes;
        char* values = keys + layer.value_offset;
        for (const auto& copy : copies) {
          std::memmove(keys + copy.to * layer.key_bytes, keys + copy.from * layer.key_bytes, layer.key_bytes);
          std::memmove(values + copy.to * layer.value_bytes, values + copy.from * layer.value_bytes, layer.value_bytes);
        }
      }
    });
  }

  void download(float* to, const tensor& from) override {
    expect(from.type == dtype::f32, "download: the tensor must be f32");
    for (std::size_t r = 0; r < from.rows; ++r)
      std::memcpy(to + r * from.cols, row_of<float>(from, r), from.cols * sizeof(float));
  }

private:
  struct row_chunk {
    const sequence_rows* sequence;
    int from, to;
  };

  struct attention_call {
    attention_op op;
    const tensor* q = nullptr;
    const tensor* out = nullptr;
    const std::int32_t* blocks = nullptr;
    int group = 0;
    int tile_queries = 0;
    std::size_t stride = 0; // of states
    float* slots = nullptr;

    attention_state slot(std::size_t index) const { return {slots + index * stride, stride}; }
  };

  struct attention_scratch {
    std::vector<attention_tile> tiles;
    scratch<float> states;
  };

  template <class F>
  void for_rows(std::size_t rows, const F& f) {
    pool_.parallel_for(ceil_div(rows, rows_per_chunk), [&](std::size_t chunk, int) {
      for (std::size_t r = chunk * rows_per_chunk; r < std::min(rows, (chunk + 1) * rows_per_chunk); ++r)
        f(r);
    });
  }

  /// Activations in blocks of K, padded; one row that needs no widening stays where it is.
  void arrange_activations(linear_op& op, const tensor& in) {
    const bool widened = in.type == dtype::bf16 && op.kind != weight_kind::bf16_pairs;
    if (in.rows == 1 && !widened && (in.type == dtype::f32 || in.cols % 2 == 0)) {
      op.activations = static_cast<const std::uint32_t*>(in.data);
      op.activation_block = k_block;
      return;
    }
    const std::size_t blocks = ceil_div(op.words, k_block);
    op.activation_block = in.rows * activation_stride;
    auto* words = activations_.reserve(blocks * op.activation_block);
    op.activations = words;
    const std::size_t row_bytes = in.cols * size_of(in.type);
    for_rows(in.rows, [&](std::size_t r) {
      const char* from = static_cast<const char*>(row_of(in, r));
      for (std::size_t block = 0; block < blocks; ++block) {
        auto* to = words + block * op.activation_block + r * activation_stride;
        if (widened) {
          const std::size_t first = block * k_block;
          kernels_.widen(weight_kind::bf16, reinterpret_cast<float*>(to), from + first * size_of(in.type),
                         std::min(k_block, in.cols - first));
          continue;
        }
        const std::size_t offset = block * k_block * 4;
        const std::size_t bytes = std::min(k_block * 4, row_bytes - offset);
        if (bytes % 4 != 0) // the odd last input is paired with zero
          to[bytes / 4] = 0;
        std::memcpy(to, from + offset, bytes);
      }
    });
  }

  /// The same for quantised weights: int8, in blocks of groups. A last group that the inputs do not fill has zeros.
  void quantise_activations(linear_op& op, const tensor& in) {
    constexpr std::size_t block_inputs = group_block * group_inputs;
    const std::size_t stride = op.tile_rows * activation_record;
    op.activation_block = op.row_tiles * group_block * stride;
    auto* words = activations_.reserve(ceil_div(op.words, group_block) * op.activation_block);
    op.activations = words;
    const auto type = exact_kind(in.type);
    for_rows(in.rows, [&](std::size_t r) {
      alignas(64) float wide[block_inputs];
      const char* from = static_cast<const char*>(row_of(in, r));
      for (std::size_t first = 0; first < in.cols; first += block_inputs) {
        const std::size_t inputs = std::min(block_inputs, in.cols - first);
        const std::size_t groups = ceil_div(inputs, group_inputs);
        kernels_.widen(type, wide, from + first * size_of(in.type), inputs);
        std::fill(wide + inputs, wide + groups * group_inputs, 0.0f);
        auto* to = words + first / block_inputs * op.activation_block + r / op.tile_rows * group_block * stride;
        kernels_.quantise(op.kind, to + r % op.tile_rows * activation_record, stride, wide, groups);
      }
    });
  }

  void run_linear(const tensor& out, const tensor& in, const packed_matrix& weights, const float* bias, store how) {
    expect(in.type == weights.compute && in.cols == weights.inputs,
           "linear: in must be of the type and columns that the weights were packed for");
    expect(out.cols == weights.outputs && out.rows == in.rows, "linear: out must be [rows of in, outputs]");
    if (in.rows == 0)
      return;
    linear_op op;
    op.weights = weights.data.get();
    op.kind = weights.kind;
    op.gated = weights.gated;
    op.add = how == store::add;
    op.out_bf16 = out.type == dtype::bf16;
    op.words = weights.words;
    op.cached = cache_ / 2 / sizeof(std::uint32_t);
    op.rows = in.rows;
    const bool pairs = weights.kind == weight_kind::bf16_pairs;
    const std::size_t tile_rows = weights.quantised() ? kernels_.quantised_rows(weights.kind)
      : pairs                                         ? kernels_.pair_rows
                                                      : kernels_.linear_rows;
    op.row_tiles = ceil_div(in.rows, tile_rows);
    op.tile_rows = tile_rows == tile_register_rows ? std::min(tile_rows, in.rows) : ceil_div(in.rows, op.row_tiles);
    op.outputs = weights.outputs;
    op.bias = bias;
    op.out = out.data;
    op.out_stride = out.stride;
    if (weights.quantised())
      quantise_activations(op, in);
    else
      arrange_activations(op, in);

    const std::size_t columns = weights.panel_columns();
    const std::size_t fair = weights.panels / (4 * pool_.size()); // so that threads end together
    const std::size_t most_panels = (op.row_tiles == 1 ? panel_outputs : outputs_per_linear_task) / columns;
    const std::size_t panels = std::clamp(fair, std::size_t(1), most_panels);
    const std::size_t panel_tasks = ceil_div(weights.panels, panels);
    const int task_rows = weights.quantised() || pairs ? kernels_.task_rows
                                                       : std::min(kernels_.task_rows, most_rows_with_sums);
    const std::size_t fitting = std::max(task_rows * cache_ / most_cache, least_rows_per_linear_task);
    const std::size_t row_tasks = ceil_div(in.rows, fitting);
    const std::size_t most_rows = ceil_div(op.row_tiles, row_tasks) * tile_rows;
    for (auto& memory : linear_scratch_)
      memory.reserve(most_rows * panels * columns);
    pool_.parallel_for(panel_tasks * row_tasks, [&](std::size_t i, int thread) {
      const std::size_t rows = i % row_tasks;
      linear_task task;
      task.first_panel = i / row_tasks * panels;
      task.panels = std::min(panels, weights.panels - task.first_panel);
      task.first_tile = op.row_tiles * rows / row_tasks;
      task.tiles = op.row_tiles * (rows + 1) / row_tasks - task.first_tile;
      kernels_.linear(op, task, linear_scratch_[thread].reserve(0));
    });
  }

  /// Appends a run's queries to tiles, the last of which may have room left.
  void add_queries(const attention_call& call, const query_run& run, int kv_head, int end_block,
                   std::vector<attention_tile>& tiles) const {
    const auto& s = *run.sequence;
    const std::size_t dim = call.op.cache.head_dim;
    for (int i = run.first; i < run.first + run.count; ++i) {
      if (tiles.empty() || tiles.back().count == call.tile_queries) {
        auto& tile = tiles.emplace_back();
        tile.kv_head = kv_head;
        tile.blocks = call.blocks + s.first_block;
        tile.end_block = end_block;
      }
      const int row = i / call.group;
      const std::size_t column = (kv_head * call.group + i % call.group) * dim;
      char* out = static_cast<char*>(row_of(*call.out, s.first_row + row)) + column * size_of(call.out->type);
      auto& tile = tiles.back();
      tile.queries[tile.count++] = {row_of<float>(*call.q, s.first_row + row) + column, out, s.first_position + row};
    }
  }

  /// One piece for one KV head: for each partition all tiles, so that its K and V come from memory once.
  void attend(const attention_call& call, const attention_piece& piece, int kv_head, attention_scratch& own) const {
    alignas(64) float memory[max_queries * state_stride(max_head_dim)];
    const attention_state part{memory, call.stride};
    const auto runs = plan_.runs_of(piece);
    const auto& first = *plan_.run(runs.front()).sequence;
    const int end = std::min((piece.first_partition + piece.partitions) * partition_tokens,
                             first.first_position + first.rows);
    own.tiles.clear();
    for (const int run : runs)
      add_queries(call, plan_.run(run), kv_head, static_cast<int>(ceil_div(end, block_tokens)), own.tiles);
    float* states = piece.finish ? own.states.reserve(piece.queries * call.stride)
                                 : call.slot(piece.slot + kv_head * piece.head_slots).data;
    for (int p = 0; p < piece.partitions; ++p)
      for (std::size_t t = 0, query = 0; t < own.tiles.size(); query += own.tiles[t++].count) {
        const bool folded = piece.fold && p > 0;
        const attention_state state{states + (query + (piece.fold ? 0 : p * piece.queries)) * call.stride, call.stride};
        kernels_.attend_partition(call.op, own.tiles[t], piece.first_partition + p, folded ? part : state);
        if (folded)
          kernels_.merge(call.op, own.tiles[t].count, state, part);
      }
    if (piece.finish)
      for (std::size_t t = 0, query = 0; t < own.tiles.size(); query += own.tiles[t++].count)
        kernels_.finish(call.op, own.tiles[t], {states + query * call.stride, call.stride});
  }

  void merge(const attention_call& call, const attention_merge& what, int kv_head,
             std::vector<attention_tile>& tiles) const {
    const auto& run = plan_.run(what.run);
    const auto part = [&](std::size_t i) {
      const auto& [slot, head_slots] = plan_.part(what.first_part + i);
      return call.slot(slot + kv_head * head_slots);
    };
    for (std::size_t i = 1; i < what.parts; ++i)
      kernels_.merge(call.op, run.count, part(0), part(i));
    tiles.clear();
    add_queries(call, run, kv_head, 0, tiles);
    for (std::size_t t = 0, query = 0; t < tiles.size(); query += tiles[t++].count)
      kernels_.finish(call.op, tiles[t], {part(0).data + query * call.stride, call.stride});
  }

  isa isa_;
  const target& kernels_;
  thread_pool pool_;
  std::size_t cache_; // bytes of L2 that a task fills
  scratch<std::uint32_t> activations_;
  std::vector<scratch<float>> linear_scratch_; // of each thread
  scratch<float> states_;
  std::vector<row_chunk> chunks_;
  attention_plan plan_;
  std::vector<attention_scratch> attention_scratch_; // of each thread
};

} // namespace

std::unique_ptr<backend> make_cpu_backend(const cpu_options& options) { return std::make_unique<cpu_backend>(options); }

} // namespace troupe::kernels
