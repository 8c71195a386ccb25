// Remembers what a JSON text holds already: the items of the arrays around the present place, and the names of the
// objects. An automaton's states cannot hold that. It is a function of the bytes taken and does not depend on spelling;
// a copy is a fork and costs little, however much it holds. Values are kept as hashes of 128 bits. Text that is not
// JSON does no harm.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::guides {

struct value_hash {
  std::uint64_t a = 0, b = 0;
  friend auto operator<=>(const value_hash&, const value_hash&) = default;
};

/// Hashes with a value each; copies share what is old.
class seen_set {
public:
  const value_hash* find(value_hash key) const;
  void put(value_hash key, value_hash value);

private:
  struct entry {
    value_hash key = {}, value = {};
    bool used = false;
  };
  struct table {
    std::vector<entry> slots; // open addressing, at most half of them used
    std::size_t count = 0;
    void put(const entry& e);
    void place(const entry& e);
  };
  static constexpr std::size_t most_recent = 32;

  std::shared_ptr<table> old_;
  std::vector<entry> recent_;
};

class seen_values {
public:
  struct event {
    bool ends = false;  // a value or a name ends with this byte; a number, which may go on, too
    bool again = false; // it was an item of the same array, or a name of the same object, already
  };
  event take(unsigned char byte);

  /// A smaller copy, which serves until more than so many arrays and objects have ended.
  seen_values innermost(std::size_t levels) const;

  /// Arrays and objects around what follows.
  std::size_t depth() const { return levels_.size() + deeper_; }
  bool in_string() const { return at_.in_string; }
  bool is_escaped() const { return at_.escaped; }

  /// The hash of a whole value without white space around it.
  static value_hash hash(std::string_view json);

private:
  struct level {
    bool is_object = false;
    bool has_name = false; // of a member whose value has not ended
    value_hash name = {};
    value_hash sum = {}; // of what is in it
    std::uint64_t count = 0;
    seen_set seen = {}; // items; names and what they add to `sum`
  };
  static constexpr std::size_t deepest = 10'000;

  event end(value_hash h);
  bool was_there(value_hash h) const;
  void settle();
  void take_in_string(unsigned char byte);
  void add_character(std::uint32_t c);
  void open(bool is_object);
  event close();

  struct scalar { // under way
    bool in_string = false, escaped = false;
    value_hash string = {};
    std::uint32_t unicode = 0, unicode_left = 0, high_surrogate = 0;
    std::string number = {}; // that may go on
    char literal = 0;        // the first letter
  };

  std::vector<level> levels_;
  std::size_t deeper_ = 0; // levels that are not followed
  value_hash last_ = {};   // the value that has ended
  scalar at_;
};

} // namespace troupe::guides
