// The `decoder` of tokenizer.json: tokens to text. The description is immutable and shared; a `decode_stream` made from
// it is the state of one text. Decoding a whole sequence and streaming it are the same thing, so that they cannot
// differ.
#pragma once

#include "runtime/support/json_reader.hpp"
#include "runtime/tokenizer/pattern.hpp"

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::tokenization {

/// One step of a decoder at work. It receives tokens, each in one or more pieces, and hands tokens to the next step as
/// soon as no later input can change them. Steps that look at whole tokens wait for the end of each.
class decode_step {
public:
  virtual ~decode_step() = default;
  virtual void push(std::string_view text, bool ends_token) = 0;
  virtual void finish() { next->finish(); }

  decode_step* next = nullptr;
};

/// The steps of a decoder, connected, and the text that has come out.
class decode_stream {
public:
  void push(std::string_view token) { first_->push(token, true); }
  void finish() { first_->finish(); }
  /// The text since the last call.
  std::string drain() { return std::exchange(text_, {}); }

private:
  friend class decoder;
  decode_stream() = default;
  std::vector<std::unique_ptr<decode_step>> steps_;
  decode_step* first_ = nullptr;
  std::string text_;
};

class decoder {
public:
  decoder(); // tokens with spaces between, as for a file without a decoder
  /// Throws failure naming the step that is not supported or malformed.
  explicit decoder(const json::reader& description) { add(description); }

  /// Must not outlive this decoder.
  std::unique_ptr<decode_stream> stream() const;
  /// How many bytes become of one byte of a token at most.
  double most_growth() const { return most_growth_; }
  /// What `token` stands for where its neighbours do not matter.
  std::string bytes(std::string_view token) const;

private:
  void add(const json::reader& description);
  struct step {
    std::function<std::unique_ptr<decode_step>()> make;
    std::function<std::string(std::string_view)> bytes; // of one token; empty where the step only joins
  };
  std::vector<step> steps_;
  double most_growth_ = 1;
};

} // namespace troupe::tokenization
