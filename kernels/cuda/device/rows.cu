#include "kernels/cuda/device/rows.hpp"

#include "kernels/cuda/device/activations.hpp"
#include "kernels/cuda/device/elements.hpp"
#include "kernels/cuda/device/launch.hpp"

namespace troupe::kernels::cuda {

namespace {

struct embed_kernel {
  static constexpr const char* name = "embed";
  static constexpr unsigned threads = 256;
  embed_params p;

  TROUPE_DEVICE void operator()() const {
    const std::size_t row = simt::block_x();
    const std::size_t token = static_cast<std::size_t>(p.tokens[row]);
    for (std::size_t c = simt::thread(); c < p.cols; c += threads) {
      const float x = p.grouped ? grouped(token * p.cols + c) : load_float(p.table, p.type, token * p.cols + c);
      float& to = p.out[row * p.out_stride + c];
      to = p.add ? to + x : x;
    }
  }

  TROUPE_DEVICE float grouped(std::size_t index) const {
    const table_group& group = static_cast<const table_group*>(p.table)[index / 32];
    const unsigned i = index % 32;
    return simt::add(simt::mul(group.scales[i / 16], static_cast<float>(group.codes[i])), group.minimum);
  }
};

struct rms_norm_kernel {
  static constexpr const char* name = "rms_norm";
  static constexpr unsigned threads = 256;
  rms_norm_params p;

  TROUPE_DEVICE void operator()() const {
    const std::size_t row = simt::block_x();
    const float* x = p.x + (p.gather != nullptr ? static_cast<std::size_t>(p.gather[row]) : row) * p.x_stride;
    float squares = 0;
    for (std::size_t c = simt::thread(); c < p.cols; c += threads)
      squares = simt::fused(x[c], x[c], squares);
    squares = simt::block_sum(squares, reinterpret_cast<float*>(simt::shared()));
    const float scale = simt::inverse_sqrt(squares / static_cast<float>(p.cols) + p.eps);
    for (std::size_t c = simt::thread(); c < p.cols; c += threads)
      store_float(p.out, p.out_type, row * p.out_stride + c, x[c] * scale * p.weight[c]);
  }
};

struct activate_kernel {
  static constexpr const char* name = "activate";
  static constexpr unsigned threads = 256;
  activate_params p;

  TROUPE_DEVICE void operator()() const {
    const std::size_t row = simt::block_y();
    const std::size_t o = std::size_t(simt::block_x()) * threads + simt::thread();
    if (o >= p.outputs)
      return;
    const float* x = p.x + row * p.x_stride + (p.gated ? o / 8 * 16 + o % 8 : o);
    const float* bias = p.bias != nullptr ? p.bias + row * p.bias_stride + o : nullptr;
    const float first = x[0] + (bias != nullptr ? bias[0] : 0);
    float y;
    if (p.gated)
      y = gated(p.act, first, x[8] + (bias != nullptr ? bias[p.bias_up] : 0));
    else
      y = activated(p.act, first);
    store_float(p.out, p.out_type, row * p.out_stride + o, y);
  }
};

struct add_bias_kernel {
  static constexpr const char* name = "add_bias";
  static constexpr unsigned threads = 256;
  float* x;
  std::size_t stride;
  const float* bias;
  std::size_t cols;

  TROUPE_DEVICE void operator()() const {
    const std::size_t c = std::size_t(simt::block_x()) * threads + simt::thread();
    if (c < cols)
      x[simt::block_y() * stride + c] += bias[c];
  }
};

struct copy_blocks_kernel {
  static constexpr const char* name = "copy_blocks";
  static constexpr unsigned threads = 256;
  copy_blocks_params p;

  TROUPE_DEVICE void operator()() const {
    const block_copy copy = p.copies[simt::block_x()];
    unsigned char* layer = static_cast<unsigned char*>(p.cache) + simt::block_y() * p.layer_bytes;
    const auto* from = reinterpret_cast<const words4*>(layer + static_cast<std::size_t>(copy.from) * p.block_bytes);
    auto* to = reinterpret_cast<words4*>(layer + static_cast<std::size_t>(copy.to) * p.block_bytes);
    for (std::size_t i = simt::thread(); i < p.block_bytes / 16; i += threads)
      to[i] = from[i];
  }
};

unsigned extent(std::size_t n) { return static_cast<unsigned>(n); }

} // namespace

void embed(const stream& on, const embed_params& params) { launch(on, {extent(params.rows)}, 0, embed_kernel{params}); }

void rms_norm(const stream& on, const rms_norm_params& params) {
  launch(on, {extent(params.rows)}, rms_norm_kernel::threads / warp_lanes * sizeof(float), rms_norm_kernel{params});
}

void activate(const stream& on, const activate_params& params) {
  const auto blocks = ceil_div(params.outputs, std::size_t(activate_kernel::threads));
  launch(on, {extent(blocks), extent(params.rows)}, 0, activate_kernel{params});
}

void add_bias(const stream& on, float* x, std::size_t stride, const float* bias, std::size_t cols, std::size_t rows) {
  constexpr std::size_t most = 65535; // blocks in the y direction of a grid
  const auto blocks = ceil_div(cols, std::size_t(add_bias_kernel::threads));
  for (std::size_t first = 0; first < rows; first += most)
    launch(on, {extent(blocks), extent(rows - first < most ? rows - first : most)}, 0,
           add_bias_kernel{x + first * stride, stride, bias, cols});
}

void copy_blocks(const stream& on, const copy_blocks_params& params) {
  launch(on, {extent(params.count), extent(static_cast<std::size_t>(params.layers))}, 0, copy_blocks_kernel{params});
}

} // namespace troupe::kernels::cuda
