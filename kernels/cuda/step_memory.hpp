// What a step's rotary and attention ops share, kept on the device: places of rows, block tables, attention plans.
// Uploaded when a batch is first seen, reused by all layers.
#pragma once

#include "kernels/cuda/attention_plan.hpp"
#include "kernels/cuda/device.hpp"
#include "kernels/cuda/rope.hpp"

#include <vector>

namespace troupe::kernels::cuda {

/// Device memory that grows to the largest size asked for; its contents do not survive growing.
class device_scratch {
public:
  template <class T = void>
  T* reserve(std::size_t bytes) {
    if (bytes > size_) {
      memory_.reset();
      size_ = 0;
      memory_ = allocate(bytes);
      size_ = bytes;
    }
    return static_cast<T*>(memory_.get());
  }

  /// A copy of `values` on the device, until the next call.
  template <class T>
  const T* upload(const stream& on, const T* values, std::size_t count) {
    if (count == 0)
      return nullptr;
    T* to = reserve<T>(count * sizeof(T));
    copy_to_device(on, to, values, count * sizeof(T));
    return to;
  }

private:
  buffer memory_;
  std::size_t size_ = 0;
};

struct planned_attention {
  attention_options options;
  attention_plan plan;
  device_scratch rows_memory, list_memory, work_memory;
  const attention_row* rows = nullptr;
  const std::int32_t* list = nullptr;
  const attention_work *small = nullptr, *large = nullptr, *flash = nullptr;
};

class step_memory {
public:
  /// Makes `who` the batch that is asked for below.
  void enter(const stream& on, const batch& who);

  std::size_t rows() const { return row_count_; }
  const row_place* places() const { return places_; }
  const std::int32_t* tables() const { return tables_; }

  /// Of the batch entered.
  const planned_attention& attention(const stream& on, const attention_options& options);

private:
  std::vector<sequence_rows> sequences_;
  std::vector<std::int32_t> block_tables_;
  std::size_t row_count_ = 0;
  device_scratch places_memory_, tables_memory_;
  const row_place* places_ = nullptr;
  const std::int32_t* tables_ = nullptr;
  std::vector<std::unique_ptr<planned_attention>> plans_; // the first `planned_` are of this batch
  std::size_t planned_ = 0;
};

} // namespace troupe::kernels::cuda
