// The ranks of a sharded backend. Each is a CPU backend with threads of its own and one thread that leads it; the first
// rank's leader is the caller. An op is called on all ranks at once and returns when the last one is done, so there is
// one barrier behind an op, whatever the ranks do in it. Leaders spin between ops, and sleep as the threads of any pool
// do. If the system has not scheduled a rank's leader, another leader that is done runs its part.
#pragma once

#include "kernels/activation_sparsity.hpp"
#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/memory.hpp"
#include "kernels/cpu/thread_pool.hpp"
#include "kernels/low_rank.hpp"
#include "kernels/ops.hpp"
#include "kernels/sharded/sharded_backend.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

namespace troupe::kernels {

/// One rank: its backend, by all the interfaces that it must have, and what its part of an op needs for a while.
struct rank {
  explicit rank(std::unique_ptr<backend> made)
    : device(std::move(made)),
      low_rank(dynamic_cast<low_rank_products&>(*device)),
      sparsity(dynamic_cast<activation_sparsity&>(*device)) {}

  std::unique_ptr<backend> device;
  low_rank_products& low_rank;
  activation_sparsity& sparsity;
  // State of the current op. Members, so that steps allocate nothing.
  scratch<float> qkv;
  std::vector<float> bias;
  std::vector<row_group> groups;
  std::vector<sequence_rows> sequences;
};

class rank_team {
public:
  /// At least one backend.
  rank_team(std::vector<std::unique_ptr<backend>> backends, rank_leaders leaders);

  std::size_t size() const { return ranks_.size(); }
  rank& operator[](std::size_t index) { return *ranks_[index]; }
  const rank& operator[](std::size_t index) const { return *ranks_[index]; }
  rank& first() { return *ranks_.front(); }
  thread_pool& leaders() const { return *leaders_.pool; }

  /// Calls f(rank, index) for the first `count` ranks, at once.
  template <class F>
  void each(std::size_t count, const F& f) {
    leaders_.pool->parallel_for(count, [&](std::size_t i, int thread) {
      place(static_cast<std::size_t>(thread));
      f(*ranks_[i], i);
    });
  }
  template <class F>
  void each(const F& f) {
    each(size(), f);
  }

  /// Divides rows [0, count): calls f(rank, first, end). Few rows are not worth a barrier.
  template <class F>
  void rows(std::size_t count, const F& f) {
    const std::size_t chunks = (count + least_rows - 1) / least_rows;
    each(std::min(chunks, size()), [&](rank& r, std::size_t i) {
      const auto end = [&](std::size_t n) {
        return std::min(count, chunks * n / std::min(chunks, size()) * least_rows);
      };
      f(r, end(i), end(i + 1));
    });
  }

private:
  static constexpr std::size_t least_rows = 8;

  /// Keeps a leading thread on its rank's cores. The caller's stays where it is.
  void place(std::size_t thread) {
    if (thread == 0 || thread >= leaders_.cores.size() || placed_[thread])
      return;
    stay_on(leaders_.cores[thread]);
    placed_[thread] = true;
  }

  std::vector<std::unique_ptr<rank>> ranks_;
  rank_leaders leaders_;
  std::vector<char> placed_; // by thread, which alone uses its own
};

/// Rows [first, end) of a tensor.
inline tensor rows_of(const tensor& of, std::size_t first, std::size_t end) {
  return {static_cast<char*>(of.data) + first * of.stride * size_of(of.type), of.type, end - first, of.cols, of.stride};
}

} // namespace troupe::kernels
