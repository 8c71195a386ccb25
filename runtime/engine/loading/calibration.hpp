// Quantisation by calibration: a model reads a text on the CPU, in f32, and what its matrices are multiplied with on
// the way says which errors matter. Used by one thread.
#pragma once

#include "runtime/checkpoint/importance_file.hpp"
#include "runtime/checkpoint/packed/packed_cache.hpp"
#include "runtime/checkpoint/quantised/gptq.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/model/measuring/input_observer.hpp"

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace troupe {

struct calibration_options {
  std::string model;
  std::string text; // its content
  int threads = 0;
  int context = 512; // tokens of a window, at most the model's
  int windows = 0;   // at most; 0: all of the text
};

/// A model and the text that it reads.
class calibration {
public:
  /// Loads the weights. Throws failure(bad_request) for a text that is too short, and as open_model, load_weights and
  /// require_memory.
  calibration(const calibration_options& options, const progress_fn& progress, const log_sink& log);

  /// Reads the text; may be called again.
  void observe(const input_fn& seen, const progress_fn& progress);

  std::size_t tokens() const { return observed_tokens(tokens_.size(), context_); }
  std::size_t windows() const { return (tokens() + static_cast<std::size_t>(context_) - 1) / as_size(context_); }
  int context() const { return context_; }
  const checkpoint& tensors() const { return *source_.tensors; }
  const model_config& config() const { return source_.config; }
  bool of_gguf() const { return of_gguf_; }
  kernels::backend& backend() { return *backend_; }

private:
  model_source source_;
  bool of_gguf_;
  int context_;
  std::vector<token_id> tokens_;
  token_id first_ = -1; // of each window; negative: the text's own
  std::unique_ptr<kernels::backend> backend_;
  std::shared_ptr<const model_weights> weights_;
};

/// Mean squares of all inputs of layers, under GGUF's names; experts of a layer together, as llama.cpp has them.
importance_table measure_importance(calibration& model, const std::string& text_name, const progress_fn& progress);

/// Hessians of a model's matrices, made when they are asked for. As many as fit into `budget` bytes are gathered in one
/// pass over the text.
class hessian_source {
public:
  /// `matrices`: in the order in which they will be asked for.
  hessian_source(calibration& model, std::vector<std::string> matrices, std::size_t budget, bool by_importance,
                 kernels::thread_pool& pool, progress_fn progress);

  /// Null for other matrices, and for those that the text has shown nothing of.
  std::shared_ptr<const error_feedback> of(const std::string& matrix);

private:
  struct sums {
    std::size_t inputs = 0;
    std::vector<double> products; // [inputs, inputs]
  };

  void gather(const std::string& first);
  void add_products(sums& to, const seen_inputs& seen);

  calibration& model_;
  std::vector<std::string> matrices_;
  std::size_t budget_;
  bool by_importance_;
  kernels::thread_pool& pool_;
  progress_fn progress_;
  std::map<std::string, std::string> key_; // of matrices: the first that has the same inputs
  std::map<std::string, sums> gathered_;
  std::set<std::string> passed_; // matrices that a pass has looked for
  std::string last_;             // the key of `feedback_`
  std::shared_ptr<const error_feedback> feedback_;
};

} // namespace troupe
