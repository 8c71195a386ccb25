// The order in which the states of partitions are merged. Ranks that own partitions of a context (context parallelism)
// must keep it: the fold below is what they have to compute.
#include "kernels/cpu/dispatch.hpp"
#include "kernels/cpu/kv_memory.hpp"
#include "tests/kernels/support.hpp"

#include <algorithm>
#include <numeric>

using namespace troupe::kernels;
using namespace troupe::kernels::testing;

namespace {

constexpr int fold_heads = 2, fold_dim = 64, fold_partitions = 5, fold_tokens = fold_partitions * partition_tokens;
constexpr float fold_scale = 0.125f;

/// One row that sees several partitions, whose states are computed apart.
struct folded_row {
  isa which;
  const target& kernels;
  std::unique_ptr<backend> device;
  cpu_kv_cache cache;
  std::vector<std::int32_t> table;
  std::vector<float> rows;

  explicit folded_row(isa which)
    : which(which),
      kernels(find_target(which)),
      device(make_backend(which, 1)),
      cache({1, fold_heads, fold_dim, kv_type::f32, std::size_t(fold_tokens / block_tokens)}),
      table(std::size_t(fold_tokens / block_tokens)) {
    std::iota(table.begin(), table.end(), 0);
    generator random(31);
    rows = random.normal(std::size_t(fold_tokens) * columns());
    const sequence_rows who{0, fold_tokens, 0, 0, fold_tokens};
    device->rope_write_kv({rows.data(), dtype::f32, std::size_t(fold_tokens), columns(), columns()}, fold_heads, {}, {},
                          cache, 0, {{&who, 1}, table});
  }

  static constexpr std::size_t columns() { return 3 * fold_heads * fold_dim; }
  float* last() { return rows.data() + std::size_t(fold_tokens - 1) * columns(); }

  /// As the backend computes it.
  std::vector<float> whole() {
    std::vector<float> out(fold_heads * fold_dim);
    const sequence_rows who{0, 1, fold_tokens - 1, 0, fold_tokens};
    device->attention({out.data(), dtype::f32, 1, out.size(), out.size()},
                      {last(), dtype::f32, 1, columns(), columns()}, fold_heads, fold_scale, 0, cache, 0,
                      {{&who, 1}, table});
    return out;
  }

  /// The states of all partitions, merged one by one in the given order.
  std::vector<float> merged(const std::vector<int>& order) {
    std::vector<float> out(fold_heads * fold_dim);
    attention_op op;
    op.cache = cache.layer(0);
    op.scale = fold_scale;
    constexpr std::size_t stride = state_stride(fold_dim);
    for (int head = 0; head < fold_heads; ++head) {
      attention_tile tile;
      tile.queries[0] = {last() + head * fold_dim, out.data() + head * fold_dim, fold_tokens - 1, head, 0, fold_tokens};
      tile.count = 1;
      tile.kv_head = head;
      tile.blocks = table.data();
      tile.end_block = static_cast<int>(table.size());
      alignas(64) float memory[2][stride];
      const attention_state state{memory[0], stride}, part{memory[1], stride};
      for (std::size_t i = 0; i < order.size(); ++i) {
        kernels.attend_partition(op, tile, order[i], i == 0 ? state : part);
        if (i > 0)
          kernels.merge(op, 1, state, part);
      }
      kernels.finish(op, tile, state);
    }
    return out;
  }
};

} // namespace

TEST_CASE("attention is the fold of its partitions' states in the order of positions; in any other, bits differ") {
  for (const isa which : tested_isas()) {
    CAPTURE(std::string(to_string(which)));
    folded_row row(which);
    const auto whole = row.whole();
    std::vector<int> order(fold_partitions);
    std::iota(order.begin(), order.end(), 0);
    CHECK(row.merged(order) == whole);
    int same = 0, tried = 0;
    while (std::next_permutation(order.begin(), order.end())) {
      const auto shuffled = row.merged(order);
      same += shuffled == whole;
      ++tried;
      for (std::size_t i = 0; i < whole.size(); ++i) // the same number, but for rounding
        CHECK(shuffled[i] == doctest::Approx(whole[i]).epsilon(1e-3));
    }
    CHECK(tried == 119);
    CHECK(same < tried / 10); // so that a merge out of order is seen
  }
}
