// A loaded model as servers use it: its facts, and its tokenizer and its template as functions. Immutable once served.
#pragma once

#include "runtime/engine/engine_options.hpp"
#include "runtime/support/types.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

struct chat_input;

/// What becomes of requests that have a field which nothing reads.
enum class unknown_fields : std::uint8_t { warn, reject, ignore };

/// The functions are slow for long texts and run on worker threads. Tests put others in their place.
struct served_model : model_info, std::enable_shared_from_this<served_model> {
  served_model() = default;
  /// With the functions of the model's own tokenizer and template.
  explicit served_model(const model_info& facts);

  std::vector<std::string> aliases;                                            // other names that clients may give
  bool leaves = false;                                                         // a client may have it unloaded
  std::size_t most_bytes_per_token = 0;                                        // of text; 0: no such bound
  std::optional<std::string> bos_token, eos_token;                             // as written in texts
  std::function<std::vector<token_id>(std::string_view, bool special)> encode; // empty: no tokenizer
  /// With special tokens around as much of the text as makes so many tokens; empty: no tokenizer.
  std::function<std::vector<token_id>(std::string_view, std::size_t most)> encode_cut;
  /// Special tokens and marks of fill-in-the-middle within the text are text; empty: no tokenizer.
  std::function<std::vector<token_id>(std::string_view)> encode_plain;
  /// Parts of a text that write special tokens out; and as `encode`, but what begins at some places is text; empty: no
  /// tokenizer.
  std::function<std::vector<std::string_view>(std::string_view)> specials_in;
  std::function<std::vector<token_id>(std::string_view, bool special, std::span<const std::size_t>)> encode_around;
  /// A query and a document, of which at most so many tokens are taken; empty: no tokenizer.
  std::function<token_pair(std::string_view, std::string_view, std::size_t most_second)> encode_pair;
  std::function<std::string(std::span<const token_id>, bool skip_special)> decode; // empty: no tokenizer
  std::function<std::string(token_id)> token_bytes;                                // empty: no tokenizer
  std::function<std::string(const chat_input&)> render;                            // empty: no chat template
  // A server's settings (server_options), which it adds, as those of techniques:
  unknown_fields unknown = unknown_fields::warn;
};

/// What techniques read of it.
inline technique_facts facts_of(const served_model& model) {
  return {model.techniques, model.hidden, model.judge != nullptr, bool(model.decode)};
}

} // namespace troupe
