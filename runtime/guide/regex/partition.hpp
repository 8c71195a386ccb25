// Divides the bytes by what remains of expressions behind them. Its disjoint cells are made by overlaying the
// derivatives of several expressions. The lists of cells share their ends, so dividing a cell copies nothing. Scratch
// of one derivation.
#pragma once

#include "runtime/guide/regex/byte_set.hpp"
#include "runtime/support/meter.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::guides {

template <class T>
class partition {
public:
  struct cell {
    byte_set when;
    std::uint32_t last = 0, count = 0; // of its list
  };

  partition() {
    cells_.reserve(16);
    links_.reserve(48);
  }

  const std::vector<cell>& cells() const { return cells_; }
  /// In the order in which they were laid over it.
  std::vector<T> list(const cell& c) const {
    std::vector<T> result(c.count);
    auto at = c.last;
    for (std::size_t i = c.count; i-- > 0; at = links_[at].before)
      result[i] = links_[at].value;
    return result;
  }
  const T& last(const cell& c) const { return links_[c.last].value; }

  /// Adds a value to the lists of these bytes, those in no cell included.
  void overlay(const byte_set& when, const T& value) {
    auto rest = when;
    const auto existing = cells_.size();
    meter::charge(1 + existing / 2);
    for (std::size_t i = 0; i < existing && !rest.empty(); ++i) {
      const auto both = cells_[i].when & rest;
      if (both.empty())
        continue;
      rest &= ~both;
      const auto only = cells_[i].when & ~both;
      if (!only.empty()) {
        const auto divided = cells_[i];
        cells_.push_back({only, divided.last, divided.count});
        cells_[i].when = both;
      }
      append(cells_[i], value);
    }
    if (!rest.empty()) {
      cells_.push_back({rest});
      append(cells_.back(), value);
    }
  }

  /// Overlays the parts of an expression's derivatives, and drops bytes that are in none of them.
  template <class Parts>
  void intersect(const Parts& parts) {
    std::vector<cell> all;
    all.reserve(cells_.size() + 8);
    all.swap(cells_);
    for (const auto& p : parts) {
      meter::charge(1 + all.size() / 2);
      for (const auto& c : all) {
        const auto both = c.when & p.when;
        if (both.empty())
          continue;
        cells_.push_back({both, c.last, c.count});
        append(cells_.back(), p.then);
      }
    }
  }
  /// Every byte, with nothing behind it: what is to be intersected.
  void fill() { cells_.assign(1, {byte_set::all()}); }

private:
  struct link {
    T value;
    std::uint32_t before;
  };

  void append(cell& c, const T& value) {
    links_.push_back({value, c.last});
    c.last = static_cast<std::uint32_t>(links_.size() - 1);
    ++c.count;
  }

  std::vector<cell> cells_;
  std::vector<link> links_;
};

} // namespace troupe::guides
