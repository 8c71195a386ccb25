// Device copies of a step's inputs: token ids, positions of rows, block tables, attention plans. They are uploaded when
// an op first sees a batch, and all layers use them. Or they are staged ahead: one upload on the copy stream while the
// previous step still computes, and one kernel that distributes it.
#pragma once

#include "kernels/cuda/attention_plan.hpp"
#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/device/recurrent/recurrent.hpp"
#include "kernels/cuda/device/rope.hpp"
#include "kernels/cuda/device/unpack.hpp"
#include "kernels/cuda/device_scratch.hpp"
#include "kernels/cuda/scratch_plan.hpp"

#include <array>
#include <vector>

namespace troupe::kernels::cuda {

struct planned_attention {
  attention_options options;
  attention_plan plan;
  device_scratch rows_memory, list_memory, work_memory;
  const attention_row* rows = nullptr;
  const std::int32_t* list = nullptr;
  const attention_work *small = nullptr, *large = nullptr, *flash = nullptr, *common = nullptr;
};

class step_memory {
public:
  /// Queues on `aside` the upload of a step's inputs, and of the attention plans that the previous step needed.
  /// `current` is the stream of the ops; all ops of the previous step are queued there.
  void stage(const stream& aside, const stream& current, const step_inputs& inputs);

  /// Distributes the staged inputs, on the stream of the ops.
  void begin(const stream& on, const std::int32_t* slot_tokens);

  /// Makes `rows` the batch that the functions below refer to.
  void enter(const stream& on, const batch& rows);

  /// Device copies of ids in host memory, each valid until the next one. Until then they are those staged, if these are
  /// the same but for placeholders, which count as 0.
  const std::int32_t* tokens(const stream& on, const std::int32_t* ids, std::size_t count);
  const std::int32_t* gathered(const stream& on, const std::int32_t* rows, std::size_t count);

  std::size_t rows() const { return row_count_; }
  const row_place* places() const { return places_; }
  const std::int32_t* tables() const { return tables_; }

  /// The attention plan of the batch.
  const planned_attention& attention(const stream& on, const attention_options& options);

  /// What the step that `of` has begun does to it: of the staged step, if that is the same.
  state_runs states(const stream& on, const state_cache& of);

  /// The sizes that determine a staged step's launches. Empty if these cannot be repeated because part of the plan was
  /// not staged.
  std::vector<std::uint64_t> launch_shape() const;

  /// Counts how often memory has moved.
  std::uint64_t growths() const;

private:
  struct staging {
    buffer host; // pinned
    device_scratch device;
    std::size_t host_bytes = 0;
    event uploaded, unpacked;
    std::size_t chunks = 0;
  };

  /// A step's data, concatenated, and where its pieces go.
  struct image {
    std::vector<unpack_chunk> chunks;
    std::vector<std::uint32_t> words;

    template <class T>
    const T* add(device_scratch& to, const std::vector<T>& values, bool tokens = false);
  };

  void set_batch(const batch& rows);
  void set_runs(const state_cache& of, const std::uint32_t* words, std::size_t count);
  planned_attention& plan(const attention_options& options);
  void upload(const stream& aside, const stream& current, const image& all);

  std::vector<sequence_rows> sequences_;
  std::vector<std::int32_t> block_tables_;
  std::vector<row_place> host_places_;
  std::size_t row_count_ = 0;
  device_scratch places_memory_, tables_memory_, tokens_memory_, gathered_memory_;
  const row_place* places_ = nullptr;
  const std::int32_t* tables_ = nullptr;
  std::vector<std::unique_ptr<planned_attention>> plans_; // the first `planned_` belong to this batch
  std::size_t planned_ = 0;

  device_scratch runs_memory_;
  state_runs runs_;
  std::uint64_t runs_step_ = 0; // state_cache::step()

  bool staged_ = false;
  bool repeatable_ = false;
  std::vector<std::int32_t> staged_tokens_, staged_gathered_; // as the ops will pass them
  const std::int32_t *tokens_ = nullptr, *gathered_ = nullptr;
  std::array<staging, step_stagings> stagings_;
  std::size_t next_staging_ = 0;
  staging* current_ = nullptr;
};

} // namespace troupe::kernels::cuda
