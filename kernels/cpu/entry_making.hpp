// Entries of compressed keys on the CPU: made of what the tokens of a group have in the cache, and written beside it. Used
// by the thread of its backend.
#pragma once

#include "kernels/compressed_attention.hpp"
#include "kernels/cpu/target.hpp"
#include "kernels/cpu/thread_pool.hpp"
#include "kernels/planned_steps.hpp"

#include <cstdint>
#include <vector>

namespace troupe::kernels {

class entry_maker {
public:
  entry_maker(const target& kernels, thread_pool& pool);

  /// See compressed_attention::make_entries.
  void make(const entry_making& how, const layer_cache& from, const layer_cache& to, const batch& step);

  /// See compressed_attention.
  void undo_rotation(const tensor& out, const tensor& x, int heads, int pairs, const float* angles, const batch& step);

  /// See chosen_attention.
  std::size_t scratch_bytes(const planned_steps& steps) const;
  std::size_t held_bytes() const;

private:
  struct group {
    const std::int32_t* blocks; // of its sequence
    std::int32_t last;          // position
  };
  struct thread_scratch {
    std::vector<float> given, gates; // [tokens, dim]
    std::vector<float> entry;        // [dim]
  };

  void make_one(const entry_making& how, const layer_cache& from, const layer_cache& to, const group& of,
                thread_scratch& own) const;

  const target& kernels_;
  thread_pool& pool_;
  std::vector<group> groups_;
  std::vector<thread_scratch> scratch_;
};

} // namespace troupe::kernels
