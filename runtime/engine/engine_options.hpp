// How an engine is set up, and what is known of its model once that is loaded: plain data for all layers above.
#pragma once

#include "runtime/chat/chat_template.hpp"
#include "runtime/execution/compute_options.hpp"
#include "runtime/model/model_config.hpp"
#include "runtime/support/error.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace troupe {

struct engine_options {
  std::string model;              // a checkpoint's folder, or synthetic:SHAPE
  std::string model_name = {};    // as clients know it; empty: the folder's name
  compute_options compute = {};   // device and types
  gpu_opener open_gpu = nullptr;  // what cuda:N is; api/ sets it where this is null
  std::size_t kv_cache_bytes = 0; // 0: what max_sequences × max_context can use and the machine can spare
  std::size_t swap_bytes = 0;     // host memory to park evicted K/V in; for devices with memory of their own
  int max_context = 0;            // tokens of prompt and answer; 0: the model's limit
  int max_sequences = 64;         // that run at once
  int max_queue = 1024;           // requests that wait; one more is refused as overloaded
  int step_tokens = 0;            // rows of one step; 0: what suits the device
  bool prefix_cache = true;
  std::chrono::milliseconds request_timeout = std::chrono::minutes(10);
};

struct load_status {
  enum class stage { loading, ready, failed, stopped } now = stage::loading;
  std::size_t done_bytes = 0, total_bytes = 0; // of weights
  std::string line;                            // what is being done, for a person
  std::optional<error> why;                    // where failed
};

/// Hears of a load, on the loader's thread.
using progress_sink = std::function<void(const load_status&)>;

/// What is known of a model once it is loaded. Immutable.
struct model_info {
  std::string id; // as clients know it
  int vocab_size = 0;
  int max_context = 0;
  std::string dtype;   // computed in
  std::string weights; // most of them: "BF16", "Q4_K", "int8"
  std::size_t weight_bytes = 0, kv_cache_bytes = 0;
  std::string device;                                 // "cpu, avx512-bf16, 2 threads"
  bool schedule_invariant = true;                     // results do not depend on what else runs
  std::shared_ptr<const troupe::tokenizer> tokenizer; // null for synthetic models
  std::shared_ptr<const troupe::chat_template> chat;  // null where the checkpoint has none
  generation_defaults defaults;                       // generation_config.json's
};

} // namespace troupe
