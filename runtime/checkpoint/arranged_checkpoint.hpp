// Presents tensors under other names and in other layouts: parts of a fused matrix, a transposed one, one expert of
// many, rows in another order. A family of models whose checkpoints differ from the names that the decoder asks for
// lists an arrangement (runtime/model/families).
#pragma once

#include "runtime/checkpoint/checkpoint.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

/// Indices of rows; shared, as layers are alike.
using row_order = std::shared_ptr<const std::vector<std::uint32_t>>;

/// How a presented tensor is made of a stored one; steps in this order. Dimensions of 1 of a stored tensor that has
/// more than two are left out.
struct stored_part {
  std::string name;
  std::size_t slices = 0; // if not 0, the length of the outermost dimension, of which `slice` is taken
  std::size_t slice = 0;
  std::size_t turned_first = 0, turned_rows = 0; // if not 0 rows: these alone, of any type, transposed, as f32
  bool transposed = false;                       // floats only
  bool as_vector = false;                        // a matrix of floats as a vector of all its elements
  row_order rows = nullptr;                      // which rows, or elements of a vector; null: all
  std::size_t of_rows = 0;                       // the number of rows before that; 0: any
  bool as_row = false;                           // a vector is presented as a matrix of one row
  float offset = 0;                              // added to all values, which then are f32; floats only
  float factor = 1;                              // of all values, too
  bool integers = false;                         // I32 or I64, of which f32 holds all values, as f32
};

struct arrangement {
  std::map<std::string, stored_part, std::less<>> tensors;   // by their names as presented
  std::map<std::string, std::string, std::less<>> names;     // other tensors: stored name to presented one
  std::vector<std::pair<std::string, std::string>> prefixes; // and others: stored prefix to presented one

  bool empty() const { return tensors.empty() && names.empty() && prefixes.empty(); }
};

/// Stored tensors that `how` uses are hidden. Throws failure(bad_file | unsupported) naming the stored tensor where its
/// shape or type does not allow what is asked, or where another one has the same name as presented; tensors that are
/// not there stay missing.
std::unique_ptr<const checkpoint> arrange(std::unique_ptr<const checkpoint> stored, const arrangement& how);

} // namespace troupe
