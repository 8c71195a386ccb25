// Sequences that begin with the same blocks, where the common prefix ends within a partition.
#include "kernels/activation_sparsity.hpp"
#include "tests/kernels/support.hpp"

#include <algorithm>
#include <numeric>

using namespace troupe::kernels;
using namespace troupe::kernels::testing;

namespace {

/// A crowd whose block tables begin with common blocks, and the rows of a step.
struct prefix_crowd {
  int heads, kv_heads, dim;
  std::unique_ptr<kv_cache> cache;
  std::vector<std::int32_t> tables;
  std::vector<sequence_rows> who;
  std::vector<float> rows;

  std::size_t columns() const { return std::size_t(heads + 2 * kv_heads) * dim; }

  /// `prefix` tokens are common to all, and a random part of a sequence's tokens to it and to an earlier one.
  prefix_crowd(backend& device, int heads, int kv_heads, int dim, kv_type type, int prefix, generator& random)
    : heads(heads), kv_heads(kv_heads), dim(dim) {
    const int count = 2 + random.below(9), most_tokens = prefix + 360, each = most_tokens / block_tokens + 2;
    cache = device.make_kv_cache({1, kv_heads, dim, type, std::size_t(each) * count});
    tables.resize(std::size_t(each) * count);
    std::iota(tables.begin(), tables.end(), 0);
    std::shuffle(tables.begin(), tables.end(), random.engine);
    const std::vector<float> rope = random.normal(std::size_t(each) * block_tokens * dim);
    std::vector<int> contexts;
    for (int i = 0; i < count; ++i) {
      const int own = random.below(4) == 0 ? random.below(340) : random.below(40);
      const int step = random.below(5) == 0 ? 2 + random.below(6) : 1, context = prefix + own;
      int parent = 0, common = i == 0 ? 0 : prefix / block_tokens;
      if (i > 0 && random.below(2) == 0) {
        parent = random.below(i);
        common += random.below(std::min(contexts[parent], context) / block_tokens - common + 1);
      }
      const auto first_block = i * each;
      std::copy_n(tables.begin() + parent * each, common, tables.begin() + first_block);
      auto all = random.normal(std::size_t(context + step - common * block_tokens) * columns());
      write(device, all, {0, context + step - common * block_tokens, common * block_tokens, first_block}, rope);
      who.push_back({static_cast<int>(rows.size() / columns()), step, context, first_block, context + step});
      rows.insert(rows.end(), all.end() - static_cast<std::ptrdiff_t>(step * columns()), all.end());
      contexts.push_back(context);
    }
  }

  void write(backend& device, std::vector<float>& qkv, const sequence_rows& s, const std::vector<float>& rope) {
    device.rope_write_kv({qkv.data(), dtype::f32, std::size_t(s.rows), columns(), columns()}, heads, {}, rope.data(),
                         *cache, 0, {{&s, 1}, tables});
  }

  numbers attend(backend& device, std::span<const sequence_rows> sequences, const attention_scores& scores) {
    std::size_t count = 0;
    for (const auto& s : sequences)
      count += std::size_t(s.rows);
    std::vector<float> q(rows.begin() + std::ptrdiff_t(std::size_t(sequences[0].first_row) * columns()), rows.end());
    std::vector<sequence_rows> moved(sequences.begin(), sequences.end());
    for (auto& s : moved)
      s.first_row -= sequences[0].first_row;
    numbers out(dtype::f32, count * std::size_t(heads) * dim);
    device.shaped_attention(out.rows(count), {q.data(), dtype::f32, count, columns(), columns()}, heads, scores, *cache,
                            0, {moved, tables});
    return out;
  }

  void check_alone(backend& device, const numbers& got, const attention_scores& scores) {
    const auto width = std::size_t(heads) * dim;
    for (const auto& s : who)
      CHECK_MESSAGE(attend(device, {&s, 1}, scores) == got.slice(std::size_t(s.first_row) * width, s.rows * width),
                    s.rows, " rows at ", s.first_position);
  }
};

} // namespace

TEST_CASE("sequences behind a common prefix of any length get the same bits as alone") {
  generator random(41);
  for (const isa target : tested_isas())
    for (const kv_type type : {kv_type::f32, kv_type::bf16, kv_type::int8, kv_type::fp8}) {
      const auto alone = make_backend(target, 1), three = make_backend(target, 3);
      for (int round = 0; round < 14; ++round) {
        const int prefix = 1 + random.below(300) * 2, kv_heads = 1 + random.below(2);
        const int group = std::vector{1, 3, 4, 7}[random.below(4)], dim = std::vector{16, 24, 64}[random.below(3)];
        CAPTURE(std::string(to_string(target)));
        CAPTURE(to_string(type));
        CAPTURE(prefix);
        CAPTURE(group);
        CAPTURE(dim);
        prefix_crowd crowd(*alone, group * kv_heads, kv_heads, dim, type, prefix, random);
        attention_scores scores;
        scores.scale = 0.3f;
        const auto slopes = random.normal(crowd.heads, 0.1f), sinks = random.normal(crowd.heads);
        if (round % 4 == 1) {
          scores.soft_cap = 2;
          scores.slopes = slopes.data();
          scores.sinks = sinks.data();
        }
        if (round % 4 == 2)
          scores.threshold = 0x1p-4f;
        if (round % 4 == 3)
          scores.window = 100 + random.below(300);
        const auto got = crowd.attend(*alone, crowd.who, scores);
        CHECK(crowd.attend(*three, crowd.who, scores) == got);
        crowd.check_alone(*alone, got, scores);
      }
    }
}
