// The product hook: what techniques add to the products of a model's weights, for the rows of single requests. Runners
// group it by rows, and the decoder adds it; neither asks anybody in a step.
#pragma once

#include "kernels/ops.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace troupe {

/// A matrix of a layer.
enum class projection : std::uint8_t { q, k, v, o, gate, up, down };
inline constexpr std::size_t projection_count = 7;

/// A product of a layer: of q, k and v; o; gate and up; down.
enum class product_site : std::uint8_t { qkv, o, gate_up, down };
inline constexpr std::size_t product_site_count = 4;

/// The matrices of a model to whose products something may be added (runtime/model/model_products.hpp).
struct model_products {
  struct shape {
    std::size_t outputs = 0, inputs = 0; // 0: the layer has none, or one that stays as it is
  };
  std::vector<std::array<shape, projection_count>> layers;
  // Outputs of a layer's gate of attention, which follow those of q, k and v and stay as they are; empty: none has any.
  std::vector<std::size_t> gates = {};
  // Where files keep the rows of a head of q and k: row i, as kernels rotate, is row order[i]; empty: in order.
  std::vector<std::uint32_t> half_order = {}, pair_order = {}; // files that pair halves of a head, or neighbours
  bool family_pairs = false;                                   // checkpoints of the model's family pair neighbours
};

/// What is added to the products of each layer: pairs of low-rank matrices (kernels/low_rank.hpp), packed for the kind
/// of backend that computes the model.
struct product_terms {
  using term = std::unique_ptr<const kernels::matrix>; // null: nothing

  std::vector<std::array<term, product_site_count>> layers;
};

/// Consecutive rows of a step with the same terms.
struct added_rows {
  const product_terms* by = nullptr;
  std::int32_t first_row = 0, rows = 0;
};

/// The rows of a step that have terms, grouped by them: rows of different requests share these products (Punica, Chen et
/// al. 2023). A row's bits depend on its own terms alone, and rows without any have the bits of the model.
class added_products {
public:
  /// The terms must live as long.
  explicit added_products(std::span<const added_rows> rows);

  bool empty() const { return rows_.empty(); }

  /// What is added to a product of a layer, for kernels::low_rank_products; valid until the next call.
  std::span<const kernels::row_group> at(int layer, product_site site);

private:
  /// All rows of one.
  struct rows_of {
    const product_terms* by = nullptr;
    std::vector<std::int32_t> rows;
  };

  std::vector<rows_of> rows_;
  std::vector<kernels::row_group> groups_;
};

} // namespace troupe
