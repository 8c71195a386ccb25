// The `decoder` of tokenizer.json: tokens to text. The description is immutable and shared; a `decode_stream` holds the
// state of one text. Whole sequences are decoded through the same stream, so that both results are equal.
#pragma once

#include "runtime/support/json/json_reader.hpp"
#include "runtime/tokenizer/pattern.hpp"

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::tokenization {

/// One step of a running decoder. It receives tokens in one or more pieces and forwards tokens to the next step as soon
/// as later input cannot change them. Steps that need whole tokens buffer the pieces of one.
class decode_step {
public:
  virtual ~decode_step() = default;
  virtual void push(std::string_view text, bool ends_token) = 0;
  virtual void finish() { next->finish(); }

  decode_step* next = nullptr;
};

/// The connected steps of a decoder and their output.
class decode_stream {
public:
  void push(std::string_view token) { first_->push(token, true); }
  void finish() { first_->finish(); }
  /// The text since the last call.
  std::string drain() { return std::exchange(text_, {}); }

private:
  friend class token_decoder;
  decode_stream() = default;
  std::vector<std::unique_ptr<decode_step>> steps_;
  decode_step* first_ = nullptr;
  std::string text_;
};

class token_decoder {
public:
  token_decoder(); // joins tokens with spaces, as for a file without a decoder
  /// Throws failure naming the unsupported or malformed step.
  explicit token_decoder(const json::reader& description) { add(description); }

  /// Must not outlive this decoder.
  std::unique_ptr<decode_stream> stream() const;
  /// The most bytes of output per byte of a token.
  double most_growth() const { return most_growth_; }
  /// The bytes of `token` regardless of its neighbours.
  std::string bytes(std::string_view token) const;

private:
  void add(const json::reader& description);
  struct step {
    std::function<std::unique_ptr<decode_step>()> make;
    std::function<std::string(std::string_view)> bytes; // of one token; empty if the step only joins
  };
  std::vector<step> steps_;
  double most_growth_ = 1;
};

} // namespace troupe::tokenization
