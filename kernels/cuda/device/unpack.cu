#include "kernels/cuda/device/unpack.hpp"

#include "kernels/cuda/device/launch.hpp"

namespace troupe::kernels::cuda {

namespace {

struct unpack_kernel {
  static constexpr const char* name = "unpack";
  static constexpr unsigned threads = 256;
  const unpack_chunk* chunks;
  const std::uint32_t* data;
  const std::int32_t* slot_tokens;

  TROUPE_DEVICE void operator()() const {
    const unpack_chunk chunk = chunks[simt::block_x()];
    for (std::uint32_t i = simt::thread(); i < chunk.count; i += threads) {
      std::uint32_t word = data[chunk.from + i];
      if (chunk.tokens != 0 && static_cast<std::int32_t>(word) < 0)
        word = static_cast<std::uint32_t>(slot_tokens[-1 - static_cast<std::int32_t>(word)]);
      chunk.to[i] = word;
    }
  }
};

} // namespace

void unpack(const stream& on, const void* image, std::size_t chunks, const std::int32_t* slot_tokens) {
  const auto* first = static_cast<const unpack_chunk*>(image);
  launch(on, {static_cast<unsigned>(chunks)}, 0,
         unpack_kernel{first, reinterpret_cast<const std::uint32_t*>(first + chunks), slot_tokens});
}

} // namespace troupe::kernels::cuda
