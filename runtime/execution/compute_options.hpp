// Options of a device and of the types to compute in, by the names that users write. Plain data for all layers above.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace troupe {

class device; // runtime/execution/device.hpp

struct gpu_options {
  int index = 0;
  bool deterministic = false;
  bool graphs = true;
  std::optional<float> unified_maximum = {};
  bool time_steps = false;
  int ranks = 1; // GPUs from `index` on that share each layer
};

/// Opens GPU `index`. Throws failure(bad_request) if there is no such device. Null in programs without GPU support.
using gpu_opener = std::function<std::shared_ptr<const device>(const gpu_options&)>;

struct compute_options {
  std::string dtype = "auto";                // auto | f32 | bf16
  std::string quantize = "none";             // none | int8 | int4 | fp8: weights that are stored as floats
  std::string kv_dtype = "auto";             // K and V: auto | f32 | bf16 | int8 | fp8
  std::string device = "auto";               // auto | cpu | cpu:INSTRUCTION_SET | cuda:N
  int threads = 0;                           // CPU, of all ranks; 0: one per core
  int tensor_parallel = 1;                   // ranks that share each layer: groups of a CPU's threads, or GPUs
  std::string sparsity = "0";                // CPU: DOWN or DOWN:UP, shares of the MLPs' inputs that count as zero
  float attention_threshold = 0;             // CPU: attention's weights below this share of the largest count as zero
  std::string weights = "auto";              // auto | mapped | resident: from a file where they do not fit in memory,
                                             // always, or never
  std::string packed_cache = {};             // CPU: a folder that keeps packed weights; empty: none
  std::size_t packed_cache_bytes = 0;        // of all files in it; 0: a tenth of the file system
  bool packed_cache_asked = true;            // false: used only where it helps, and left alone where it does not
  bool deterministic = false;                // GPU: schedule-invariant, at some cost; a CPU always is
  bool graphs = true;                        // GPU: replay the launches of decode steps
  std::optional<float> unified_maximum = {}; // GPU: a number near which attention scores are (FlashDecoding++)
  bool time_steps = false;                   // GPU: measure how long steps take on the device
};

} // namespace troupe
