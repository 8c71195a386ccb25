// What the files and devices of a model count: a snapshot, and the counters that runners add to. They outlive actors,
// so a restart loses nothing.
#pragma once

#include "runtime/support/statistic.hpp"

#include <array>
#include <atomic>
#include <cstdint>

namespace troupe {

struct model_counters {
  std::uint64_t weight_bytes = 0;
  std::uint64_t softmax_sums = 0, recomputed_sums = 0;
  std::uint64_t judged_answers = 0;
};

template <>
inline constexpr std::array statistics_of<model_counters>{
  counter_of(&model_counters::weight_bytes, "troupe_mapped_weight_bytes_read_total",
             "Bytes of mapped weights that were not in memory when steps came to them."),
  counter_of(&model_counters::softmax_sums, "troupe_softmax_sums_total",
             "Sums of exponentials relative to --unified-maximum: one for each row, head and layer."),
  counter_of(&model_counters::recomputed_sums, "troupe_softmax_recomputed_total",
             "Of these, those that were recomputed because the number did not suit their scores."),
  counter_of(&model_counters::judged_answers, "troupe_judged_answers_total",
             "Answers of tree searches that the reward model has valued."),
};
static_assert(well_described<model_counters>());

/// Sums of exponentials relative to one number (FlashDecoding++), of all runners of a model. Any thread.
struct softmax_tally {
  std::atomic<std::uint64_t> sums = 0, recomputed = 0;
};

} // namespace troupe
