// How an engine is set up, and the facts about its model once loaded. Plain data for all layers above.
#pragma once

#include "runtime/chat/output/chat_format.hpp"
#include "runtime/execution/compute_options.hpp"
#include "runtime/import/infill_tokens.hpp"
#include "runtime/model/generation_defaults.hpp"
#include "runtime/sampling/pooling.hpp"
#include "runtime/sampling/sampling_params.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/log_line.hpp"
#include "runtime/techniques/technique.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace troupe {

class chat_template; // runtime/chat/chat_template.hpp
class pooled_head;   // runtime/model/pooled_head.hpp
struct pair_prompt;  // runtime/import/ranker_config.hpp

struct engine_options {
  std::string model;                       // a checkpoint's folder, or synthetic:SHAPE
  std::string chat_template = {};          // a file to take instead of the model's; empty: the model's
  std::string model_name = {};             // for clients; empty: the folder's name
  format_names formats = {};               // in which the model writes reasoning and calls
  compute_options compute = {};            // device and types
  gpu_opener open_gpu = nullptr;           // opens cuda:N; api/ sets it if null
  std::size_t kv_cache_bytes = 0;          // 0: enough for max_sequences × max_context, within what the machine has
  std::size_t swap_bytes = 0;              // other host memory to swap K/V out to
  std::string kv_disk = {};                // a folder in which cached prefixes outlive the process; empty: none
  std::size_t kv_disk_bytes = 0;           // of the files in it; 0: 16 GiB
  std::string length_model = {};           // a file that keeps what was learned of answers' lengths; empty: none
  int max_context = 0;                     // tokens of prompt and answer; 0: the model's limit
  int replicas = 1;                        // executors of the whole model, which divide a CPU's threads
  int stages = 1;                          // ranges of layers that compute at the same time, each on its own threads
  std::string layers = {};                 // cpu=0-15,cpu=16-31: where each stage computes, and its layers; auto: as
                                           // many on the GPU as fit, the rest on the CPU; empty: `stages` equal ones
  int microbatches = 0;                    // of running sequences, to keep stages busy; 0: by what steps cost
  std::string roles = {};                  // "prefill:1,decode:1": so many replicas of each; empty: they have none
  int max_sequences = 64;                  // running at once, in each replica
  int max_queue = 1024;                    // waiting requests; further ones are refused as overloaded
  int step_tokens = 0;                     // rows of one step at most; 0: by what steps cost, as measured
  std::chrono::microseconds itl_target{0}; // that a step may take; it has fewer rows of prompts then; 0: no target
  bool must_fit = false;                   // refuse weights that do not fit in memory, rather than page them from files
  bool prefix_cache = true;
  int cached_sequences = 0;    // of full length, for which kv_cache_bytes of 0 makes room at most;
                               // 0: max_sequences
  flag_values techniques = {}; // what they load, by the names of their flags, with underscores
  std::chrono::milliseconds request_timeout = std::chrono::minutes(10);
  std::chrono::milliseconds ttft_timeout{0};   // to a request's first token; 0: no limit of its own
  std::chrono::milliseconds max_wait{0};       // that a request may wait for its first rows; 0: no limit
  std::chrono::milliseconds role_idle{10'000}; // without work, until a replica takes the other role; 0: roles stay
};

struct load_status {
  enum class stage { loading, ready, failed, stopped } now = stage::loading;
  std::size_t done_bytes = 0, total_bytes = 0; // of weights
  std::string line;                            // progress, for the log
  log_level level = log_level::info;           // of `line` or `news`
  std::optional<error> why;                    // if failed
  std::string news;                            // of a ready engine, for the log; mostly empty
  std::string degraded = {};                   // of a ready engine: why not all of its replicas serve; mostly empty
};

/// Receives the progress of a load, on the loader's thread.
using progress_sink = std::function<void(const load_status&)>;

/// Public facts about a loaded model. Immutable.
struct model_info {
  std::string id;       // for clients
  std::string identity; // equal where the same tokens follow, on this machine; empty: nothing is
  int vocab_size = 0;
  int max_context = 0;
  int own_context = 0;            // the model's limit; max_context may be less, for lack of memory
  std::string dtype;              // of computation
  std::string weights;            // type of most: "BF16", "Q4_K", "int8"
  std::size_t weight_bytes = 0;   // packed, without models beside it: in all devices, and what stays in files
  std::size_t kv_cache_bytes = 0; // of all replicas, likewise
  std::string device;             // "cpu, avx512-bf16, 2 threads"
  bool schedule_invariant = true; // results do not depend on other requests
  std::shared_ptr<const troupe::tokenizer> tokenizer; // null for synthetic models
  std::shared_ptr<const troupe::chat_template> chat;  // null if the checkpoint has none
  chat_format format;                                 // of reasoning and calls
  std::vector<token_id> markers;                      // special tokens that the format is made of; sorted
  generation_defaults defaults;                       // generation_config.json's
  std::string family;                                 // "llama"
  std::size_t parameters = 0;                         // elements of its tensors
  int hidden = 0;                                     // length of a hidden state, and of an embedding
  int layers = 0;                                     // of the decoder
  bool tied = false;                                  // the head is the embedding matrix
  embedding_style embeddings;                         // as the checkpoint wants them
  bool generates = true;                              // false: an encoder
  std::shared_ptr<const pooled_head> ranker;          // scores texts, or pairs of them, by what is pooled; or null
  std::shared_ptr<const pair_prompt> ranked_pair;     // how pairs are asked about; null: as two texts
  std::shared_ptr<const pooled_head> dense;           // layers that embeddings pass, once pooled; or null
  technique_values techniques;                        // what they have loaded
  std::optional<infill_tokens> infill;                // by which it fills in a middle; nothing: it was not taught to
  bool takes_embeddings = false;                      // rows of prompts may come from embeddings, on this device
  const answer_judge* judge = nullptr;                // can value the answers of searches; null: nobody
};

} // namespace troupe
