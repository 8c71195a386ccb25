// Distributes a step's inputs from the image in which they were uploaded.
#pragma once

#include "kernels/cuda/device.hpp"

namespace troupe::kernels::cuda {

/// Consecutive words with one destination. One block of the kernel copies one chunk.
struct unpack_chunk {
  std::uint32_t* to = nullptr;
  std::uint32_t from = 0;   // in words from the start of the data
  std::uint32_t count = 0;  // up to most_chunk_words
  std::uint32_t tokens = 0; // 1: negative words, -1 - s, are replaced by the token in slot s
  std::uint32_t unused = 0;
};
inline constexpr std::uint32_t most_chunk_words = 1024;

/// `image`: the chunks, followed by the data. All in device memory.
void unpack(const stream& on, const void* image, std::size_t chunks, const std::int32_t* slot_tokens);

} // namespace troupe::kernels::cuda
