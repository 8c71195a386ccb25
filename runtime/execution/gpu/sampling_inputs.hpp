// What the device's sampling kernel reads of a step's demands: a row for each token to choose, and the rows' lists of
// counts, biases and masked tokens, in one piece of memory. A row for a guess is made as if it and those before it in
// its line were right. Made for each step by the thread of the sampler.
#pragma once

#include "kernels/cuda/device/sampling.hpp"
#include "runtime/sampling/sampler.hpp"
#include "runtime/scheduling/step.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe {

class sampling_inputs {
public:
  /// Tokens outside the vocabulary are left out of all lists.
  explicit sampling_inputs(std::size_t vocab) : vocab_(vocab) {}

  /// Rows for all that a demand may choose. `in_flight`: samples of the sequence that `state` lacks.
  void add(const sample_demand& demand, const step_plan& plan, const sequence_state& state, std::int32_t in_flight);

  std::size_t rows() const { return rows_.size(); }
  std::size_t bytes() const { return bytes_of(rows_) + bytes_of(biases_) + bytes_of(counts_) + bytes_of(masked_); }
  /// Writes all of it to host memory, to be copied to `device`.
  void write(char* host, const char* device) const;

private:
  template <class T>
  static std::size_t bytes_of(const std::vector<T>& v) {
    return (v.size() * sizeof(T) + 15) / 16 * 16;
  }

  bool is_known(token_id id) const { return id >= 0 && static_cast<std::size_t>(id) < vocab_; }
  void add_row(const sample_demand& demand, const step_plan& plan, const sequence_state& state, std::int32_t in_flight,
               std::int32_t i);

  std::size_t vocab_;
  std::vector<kernels::cuda::sampling_row> rows_;
  std::vector<kernels::cuda::logit_bias> biases_;
  std::vector<kernels::cuda::token_count> counts_;
  std::vector<std::int32_t> masked_;
};

} // namespace troupe
