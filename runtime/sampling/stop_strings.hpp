// The stop strings of a request and the automaton that finds them: built once with the request, then immutable and
// shared by all its prompts and sequences. May be read on any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// Aho & Corasick, "Efficient string matching" (CACM 1975): linear in the length of the text, whatever the strings.
/// The automaton takes 8 bytes per byte of the strings.
class stop_strings {
public:
  stop_strings() = default;
  /// Throws failure(bad_request) if there are too many, they are too long together, or one is empty.
  stop_strings(std::vector<std::string> texts);
  stop_strings(std::initializer_list<std::string> texts) : stop_strings(std::vector(texts)) {}

  bool empty() const { return !all_; }
  std::size_t size() const { return all_ ? all_->texts.size() : 0; }
  const std::string& operator[](std::size_t i) const { return all_->texts[i]; }

  // -- the automaton; requires at least one string --------------------------------------------------------------------

  /// A prefix of one or more stop strings; 0: the empty one.
  using state = std::uint16_t;
  static constexpr std::size_t none = 255;

  state next(state from, unsigned char byte) const;
  /// Length of the prefix in bytes.
  std::size_t depth(state of) const { return all_->nodes[of].depth; }
  /// The longest stop string that the prefix ends with (the first of equal ones), or none.
  std::size_t match(state of) const { return all_->nodes[of].match; }
  /// The longest suffix of the prefix that is a proper prefix of a stop string.
  state open(state of) const;

private:
  struct node {
    state first_child = 0; // children are consecutive by ascending byte, up to the next node's first
    state suffix = 0;      // the longest proper suffix that is also a prefix of a stop string
    std::uint16_t depth = 0;
    unsigned char byte = 0; // leads here
    unsigned char match = none;
  };
  struct contents {
    std::vector<std::string> texts;
    std::vector<node> nodes; // breadth first, with a sentinel

    explicit contents(std::vector<std::string> given);
    state child(state from, unsigned char byte) const; // 0: none
    state next(state from, unsigned char byte) const;
  };

  std::shared_ptr<const contents> all_; // null: none
};

} // namespace troupe
