// A vector whose elements never move: adding one copies none of the others, however many there are. That bounds the
// cost of a step of a large automaton.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace troupe::guides {

template <class T>
class steady_vector {
public:
  std::size_t size() const { return size_; }
  T& operator[](std::size_t i) { return chunks_[i / per_chunk][i % per_chunk]; }
  const T& operator[](std::size_t i) const { return chunks_[i / per_chunk][i % per_chunk]; }
  void push_back(const T& value) {
    if (size_ == chunks_.size() * per_chunk)
      chunks_.push_back(std::make_unique<T[]>(per_chunk));
    (*this)[size_] = value;
    ++size_;
  }

private:
  static constexpr std::size_t per_chunk = 64;
  std::vector<std::unique_ptr<T[]>> chunks_;
  std::size_t size_ = 0;
};

} // namespace troupe::guides
