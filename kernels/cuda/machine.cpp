#include "kernels/cuda/machine.hpp"

#include "kernels/cuda/gemm_library.hpp"

#include <bit>
#include <random>

namespace troupe::kernels::cuda {

namespace {

double copy_rate(stream& on, std::size_t bytes) {
  const auto from = random_bf16_memory(on, bytes), to = allocate(bytes);
  return 2.0 * double(bytes) / seconds_per_call(on, 4, [&](int) { copy_on_device(on, to.get(), from.get(), bytes); });
}

double product_rate(stream& on, gemm_library& library, std::size_t n) {
  const auto a = random_bf16_memory(on, n * n * 2), b = random_bf16_memory(on, n * n * 2), c = allocate(n * n * 4);
  product p;
  p.out = static_cast<float*>(c.get());
  p.in = a.get();
  p.weights = b.get();
  p.out_stride = p.in_stride = p.weight_stride = p.rows = p.outputs = p.inputs = n;
  const double t = seconds_per_call(on, 4, [&](int) { library.multiply(on, p); });
  return 2.0 * double(n) * double(n) * double(n) / t;
}

} // namespace

buffer random_bf16_memory(const stream& on, std::size_t bytes) {
  std::mt19937 engine(1);
  std::normal_distribution<float> normal;
  std::vector<std::uint16_t> piece(std::min<std::size_t>(bytes / 2 + 1, std::size_t(1) << 19));
  for (auto& x : piece)
    x = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(normal(engine)) >> 16);
  auto memory = allocate(bytes);
  for (std::size_t at = 0; at < bytes; at += piece.size() * 2)
    copy_to_device(on, static_cast<char*>(memory.get()) + at, piece.data(), std::min(bytes - at, piece.size() * 2));
  on.synchronise();
  return memory;
}

gpu_peaks measure_gpu(int device) {
  const auto info = select_device(device);
  const auto room = info.available / 2;
  gpu_peaks peaks;
  peaks.copied = std::min(info.peak_copy_bytes, room / 2);
  peaks.product_size = info.peak_product_size;
  while (peaks.product_size > 1 && 8 * peaks.product_size * peaks.product_size > room)
    peaks.product_size /= 2;
  stream on;
  peaks.copy = copy_rate(on, peaks.copied);
  if (const auto library = open_gemm_library())
    peaks.bf16_product = product_rate(on, *library, peaks.product_size);
  return peaks;
}

} // namespace troupe::kernels::cuda
