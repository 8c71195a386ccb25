// The formats in which models write calls of tools. A format is a class in formats/ and a line of the registry in
// call_format.cpp. Immutable, without state: `reader` makes what reads one answer.
#pragma once

#include "runtime/chat/output/chat_output.hpp"
#include "runtime/chat/output/delta_sink.hpp"

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// Reads the text of one answer, behind its reasoning, byte by byte into a delta_sink.
class call_reader {
public:
  virtual ~call_reader() = default;
  virtual void take(char c) = 0;
  virtual void finish() = 0;
};

/// How calls are written, for constraints: a section of them, in which each is a call_tag.
struct call_layout {
  std::string section_begin = {}, section_end = {}; // may be empty
  std::string separator = {};                       // between calls
  std::string trigger = {};                         // free text ends where it begins; empty: calls come first or never
  bool one_only = false;                            // the format has one call in an answer
};

/// One call: the text it begins with, its arguments as a format of structural tags in JSON, the text it ends with.
struct call_tag {
  std::string begin, content, end;
};

/// The texts of a format that also marks content and reasoning: what begins and ends reasoning, and what begins
/// content.
struct channel_texts {
  std::string_view reasoning_begin, reasoning_end, content_begin;
};

class call_format {
public:
  explicit constexpr call_format(std::string_view name) : name_(name) {}
  virtual ~call_format() = default;
  /// Its name for --tool-parser.
  std::string_view name() const { return name_; }
  /// Whether a model with this chat template writes calls so. The first of the registry that says so is right.
  virtual bool is_used_by(std::string_view chat_template) const = 0;
  /// Texts that many tokenizers have as special tokens, which are no part of texts otherwise.
  virtual std::vector<std::string_view> markers() const = 0;
  /// `out` must outlive it.
  virtual std::unique_ptr<call_reader> reader(delta_sink& out) const = 0;
  /// Not null if the format also marks what is content and reasoning, and so must be read without tools, too.
  virtual const channel_texts* channels() const { return nullptr; }

  virtual call_layout layout() const = 0;
  /// Throws failure(bad_request) if the format cannot express the tool's parameters.
  virtual call_tag tag(const offered_tool& tool) const = 0;

  virtual std::string call_id(std::string_view entropy, std::string_view name, std::size_t index) const;

private:
  std::string_view name_;
};

std::span<const call_format* const> call_formats();
/// Null if there is none of this name.
const call_format* find_call_format(std::string_view name);

} // namespace troupe
