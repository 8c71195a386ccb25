// Attention over chosen positions: an indexer's choice against its definition, and attention with the bits that it has
// where the chosen positions are all there is.
#include "kernels/block_transfer.hpp"
#include "kernels/cpu/chosen_attention.hpp"
#include "kernels/cpu/dispatch.hpp"
#include "kernels/cpu/entry_making.hpp"
#include "kernels/cpu/kv_memory.hpp"
#include "kernels/sparse_attention.hpp"
#include "tests/kernels/index_choice.hpp"
#include "tests/kernels/sharded/sharded_support.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <span>

using namespace troupe::kernels;
using namespace troupe::kernels::testing;

namespace {

constexpr int sp_tokens = 700, sp_heads = index_heads, sp_dim = index_dim;
constexpr int sp_query_heads = 6, sp_kv_heads = 2, sp_width = 40;
constexpr kv_type sp_types[] = {kv_type::f32, kv_type::bf16, kv_type::int8, kv_type::fp8};

struct sparse_machine {
  std::unique_ptr<backend> device;
  std::unique_ptr<kv_cache> cache; // a layer of K and V, then one of K alone
  std::vector<std::int32_t> table;

  sparse_machine(std::unique_ptr<backend> made, kv_type type) : device(std::move(made)), table((sp_tokens + 15) / 16) {
    kv_shape shape{2, sp_kv_heads, sp_width, type, table.size() + 2};
    shape.own = {{sp_kv_heads, sp_width}, {1, sp_dim, false}};
    cache = device->make_kv_cache(shape);
    std::iota(table.begin(), table.end(), 1);
    std::shuffle(table.begin(), table.end(), generator(5).engine);
  }

  sparse_attention& sparse() const { return dynamic_cast<sparse_attention&>(*device); }

  static tensor rows_of(const std::vector<float>& all, int first, int rows) {
    const auto columns = all.size() / sp_tokens;
    return {const_cast<float*>(all.data()) + std::size_t(first) * columns, dtype::f32, std::size_t(rows), columns,
            columns};
  }

  /// Writes keys (and values) of rows to their places. `heads`: of queries, ahead of the keys in each row.
  void write(const std::vector<float>& rows, int heads, int layer, int first, int count) {
    auto copy = rows;
    const sequence_rows who{0, count, first, 0};
    device->rope_write_kv(rows_of(copy, first, count), heads, {}, {}, *cache, layer, {{&who, 1}, table});
  }

  position_choice choose(const std::vector<float>& rows, const std::vector<float>& weights, int most,
                         std::span<const int> chunks, const key_groups& by = {}) {
    position_choice all;
    all.reset(sp_tokens, most, by);
    int first = 0;
    for (const int count : chunks) {
      write(rows, sp_heads, 1, first, count);
      const sequence_rows who{0, count, first, 0};
      auto q = rows_of(rows, first, count);
      q.cols = sp_heads * sp_dim;
      position_choice some;
      some.reset(std::size_t(count), most, by);
      sparse().choose_positions(some, q, rows_of(weights, first, count), sp_heads, *cache, 1, {{&who, 1}, table});
      std::ranges::copy(some.positions, all.of(std::size_t(first)));
      first += count;
    }
    REQUIRE(first == sp_tokens);
    return all;
  }
};

std::vector<std::unique_ptr<backend>> machines(isa target) {
  std::vector<std::unique_ptr<backend>> all;
  all.push_back(make_backend(target, 1));
  all.push_back(make_backend(target, 3));
  all.push_back(make_ranks(target, 2));
  return all;
}

} // namespace

TEST_CASE("An indexer chooses the highest scores, of equal ones the earlier positions, on every schedule") {
  constexpr int most = 300;
  generator random(3);
  const auto rows = whole_number_rows(random, sp_tokens, sp_heads, 16);
  std::vector<float> weights;
  for (int i = 0; i < sp_tokens * sp_heads; ++i)
    weights.push_back(float(random.below(4) - 1));
  std::vector<std::vector<std::int32_t>> expected(sp_tokens);
  int ties = 0;
  for (int row = most; row < sp_tokens; ++row) {
    const auto scores = index_scores(rows, weights, row);
    expected[std::size_t(row)] = highest_places(scores, most);
    ties += has_tie(scores, most);
  }
  CHECK(ties > 100);
  const std::vector<int> chunk_lists[] = {{sp_tokens}, {299, 1, 1, 1, 160, 238}};
  for (const isa target : tested_isas())
    for (const kv_type type : {kv_type::f32, kv_type::bf16})
      for (const auto& chunks : chunk_lists) {
        CAPTURE(std::string(to_string(target)));
        CAPTURE(to_string(type));
        for (auto& device : machines(target)) {
          sparse_machine m(std::move(device), type);
          const auto chosen = m.choose(rows, weights, most, chunks);
          bool equal = true;
          for (int row = most; row < sp_tokens; ++row)
            equal = equal &&
              std::ranges::equal(std::span(chosen.of(std::size_t(row)), most), expected[std::size_t(row)]);
          CHECK(equal);
        }
      }
}

TEST_CASE("An indexer's choice is the best but for what its keys are rounded by") {
  constexpr int most = 40;
  generator random(4);
  const auto rows = random.normal(sp_tokens * (sp_heads + 1) * sp_dim), weights = random.normal(sp_tokens * sp_heads);
  for (const isa target : tested_isas())
    for (const kv_type type : sp_types) {
      CAPTURE(std::string(to_string(target)));
      CAPTURE(to_string(type));
      sparse_machine m(make_backend(target), type);
      const int whole[] = {sp_tokens};
      const auto chosen = m.choose(rows, weights, most, whole);
      // Each head's product has dim terms of about 1; a term is off by the rounding of a key, and of a query in bf16.
      const double share = type == kv_type::f32 ? 1e-6 : type == kv_type::fp8 ? 0x1p-4 + 0x1p-8 : 0x1p-7;
      const double bound = 2 * share * 3 * std::sqrt(double(sp_heads) * sp_dim);
      double worst = 0;
      for (int row = most; row < sp_tokens; row += 13) {
        const auto scores = index_scores(rows, weights, row);
        const std::span picked(chosen.of(std::size_t(row)), most);
        CHECK(std::ranges::adjacent_find(picked, std::greater_equal<>()) == picked.end());
        worst = std::max(worst, regret(scores, picked));
      }
      CHECK(worst < bound);
    }
}

TEST_CASE("Attention over chosen positions has the bits of attention over a context of these alone") {
  constexpr int most = 290;
  constexpr std::size_t columns = (sp_query_heads + 2 * sp_kv_heads) * sp_width, width = sp_query_heads * sp_width;
  generator random(6);
  const auto qkv = random.normal(sp_tokens * columns);
  position_choice chosen;
  chosen.reset(sp_tokens, most);
  for (int row = most; row < sp_tokens; ++row) {
    std::vector<std::int32_t> all(std::size_t(row) + 1);
    std::iota(all.begin(), all.end(), 0);
    std::shuffle(all.begin(), all.end(), random.engine);
    std::sort(all.begin(), all.begin() + most);
    std::copy_n(all.begin(), most, chosen.of(std::size_t(row)));
  }
  attention_scores scores;
  scores.scale = 0.3f;
  for (const isa target : tested_isas())
    for (const kv_type type : sp_types)
      for (const dtype out_type : compute_types) {
        CAPTURE(std::string(to_string(target)));
        CAPTURE(to_string(type));
        CAPTURE(std::string(to_string(out_type)));
        std::vector<numbers> results;
        for (auto& device : machines(target)) {
          sparse_machine m(std::move(device), type);
          m.write(qkv, sp_query_heads, 0, 0, sp_tokens);
          const auto attend = [&](std::span<const sequence_rows> who, int first, int count) {
            numbers out(out_type, std::size_t(count) * width);
            position_choice some;
            some.reset(std::size_t(count), most);
            std::copy_n(chosen.of(std::size_t(first)), std::size_t(count) * most, some.positions.begin());
            m.sparse().attend_chosen(out.rows(std::size_t(count)), sparse_machine::rows_of(qkv, first, count),
                                     sp_query_heads, scores, some, *m.cache, 0, {who, m.table});
            return out;
          };
          const sequence_rows whole{0, sp_tokens, 0, 0}, last{0, 1, sp_tokens - 1, 0};
          results.push_back(attend({&whole, 1}, 0, sp_tokens));
          CHECK(attend({&last, 1}, sp_tokens - 1, 1) == results.back().slice((sp_tokens - 1) * width, width));
          CHECK(results.back() == results.front());
        }
        // Rows that do not choose, and some that do, in a context of what they chose.
        sparse_machine m(make_backend(target), type);
        const auto dense = [&](const std::vector<float>& rows, int position) {
          m.write(rows, sp_query_heads, 0, 0, most);
          numbers out(out_type, width);
          const sequence_rows who{0, 1, std::min(position, most - 1), 0};
          m.device->shaped_attention(out.rows(1), sparse_machine::rows_of(qkv, position, 1), sp_query_heads, scores,
                                     *m.cache, 0, {{&who, 1}, m.table});
          return out;
        };
        for (const int row : {0, 17, 255, 289})
          CHECK(dense(qkv, row) == results.front().slice(std::size_t(row) * width, width));
        for (const int row : {290, 400, 699}) {
          auto context = qkv;
          for (int i = 0; i < most; ++i)
            std::copy_n(&qkv[std::size_t(chosen.of(std::size_t(row))[i]) * columns], columns,
                        &context[std::size_t(i) * columns]);
          CHECK(dense(context, row) == results.front().slice(std::size_t(row) * width, width));
        }
      }
}

TEST_CASE("Blocks with a layer of K alone are copied, and leave and come, with their keys and no more bytes") {
  for (const kv_type type : sp_types) {
    CAPTURE(to_string(type));
    generator random(7);
    const auto rows = random.normal(sp_tokens * (sp_heads + 1) * sp_dim), weights = random.normal(sp_tokens * sp_heads);
    const int whole[] = {sp_tokens};
    sparse_machine m(make_backend(available_isas().back()), type);
    const auto before = m.choose(rows, weights, 50, whole);
    const auto scales = is_scaled(type) ? 2 * sizeof(float) : 0;
    CHECK(m.cache->shape.block_bytes() ==
          16 * (sp_kv_heads * kv_bytes(type, sp_width) + (kv_bytes(type, sp_dim) - scales) / 2 + scales));
    auto& transfer = dynamic_cast<block_transfer&>(*m.device);
    std::vector<char> form(m.cache->shape.block_bytes());
    for (auto& block : m.table) { // block by block, by way of another cache's form
      const block_export from{block, form.data()};
      transfer.export_blocks(*m.cache, {&from, 1});
      const auto to = static_cast<std::int32_t>(m.table.size() + 1);
      const block_import into{form.data(), to};
      transfer.import_blocks(*m.cache, {&into, 1});
      const block_copy zeroed{0, block}, back{to, block};
      m.device->copy_blocks(*m.cache, {&zeroed, 1});
      m.device->copy_blocks(*m.cache, {&back, 1});
    }
    position_choice after;
    after.reset(1, 50);
    auto q = sparse_machine::rows_of(rows, sp_tokens - 1, 1);
    q.cols = sp_heads * sp_dim;
    const sequence_rows last{0, 1, sp_tokens - 1, 0};
    m.sparse().choose_positions(after, q, sparse_machine::rows_of(weights, sp_tokens - 1, 1), sp_heads, *m.cache, 1,
                                {{&last, 1}, m.table});
    CHECK(std::ranges::equal(after.positions, std::span(before.of(sp_tokens - 1), 50)));
  }
}

namespace {

constexpr int sg_group = 4, sg_best = 72,
              sg_most = sg_best * sg_group + sg_group - 1; // positions, in whole blocks and not

/// Angles that turn pairs by their position.
std::vector<float> turning(int dim) {
  std::vector<float> rope;
  for (int t = 0; t < sp_tokens; ++t)
    for (int i = 0; i < dim; ++i) {
      const double angle = t / std::pow(10.0, 2.0 * (i % (dim / 2)) / dim);
      rope.push_back(static_cast<float>(i < dim / 2 ? std::cos(angle) : std::sin(angle)));
    }
  return rope;
}

/// The groups that a row sees whole, by their scores in double precision, the best first. Keys do not turn if `rope` is
/// empty.
std::vector<int> groups_by_score(const std::vector<float>& rows, const std::vector<float>& norm,
                                 const std::vector<float>& rope, int row, std::vector<double>& scores) {
  const std::size_t columns = (sp_heads + 1) * sp_dim, half = sp_dim / 2;
  scores.clear();
  for (int g = 0; g < (row + 1) / sg_group; ++g) {
    std::vector<double> key(sp_dim), turned(sp_dim);
    double squares = 0;
    for (std::size_t d = 0; d < sp_dim; ++d) {
      for (int i = 0; i < sg_group; ++i)
        key[d] += rows[std::size_t(g * sg_group + i) * columns + sp_heads * sp_dim + d] / double(sg_group);
      squares += key[d] * key[d] / sp_dim;
    }
    for (std::size_t d = 0; d < sp_dim; ++d)
      key[d] *= norm[d] / std::sqrt(squares + 1e-6);
    for (std::size_t d = 0; d < half; ++d) {
      const auto at = std::size_t(g) * sg_group * sp_dim + d;
      const double cosine = rope.empty() ? 1 : rope[at], sine = rope.empty() ? 0 : rope[at + half];
      turned[d] = key[d] * cosine - key[d + half] * sine;
      turned[d + half] = key[d + half] * cosine + key[d] * sine;
    }
    double sum = 0;
    for (std::size_t h = 0; h < sp_heads; ++h) {
      double dot = 0;
      for (std::size_t d = 0; d < sp_dim; ++d)
        dot += rows[std::size_t(row) * columns + h * sp_dim + d] * turned[d];
      sum += std::max(dot, 0.0);
    }
    scores.push_back(sum);
  }
  std::vector<int> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int a, int b) { return scores[std::size_t(a)] > scores[std::size_t(b)]; });
  return order;
}

} // namespace

TEST_CASE("Groups are chosen whole by their pooled keys, beside what follows the last whole one, on every schedule") {
  generator random(8);
  const auto rows = random.normal(sp_tokens * (sp_heads + 1) * sp_dim), norm = random.normal(sp_dim),
             turns = turning(sp_dim);
  const std::vector<float> ones(sp_tokens * sp_heads, 1.0f);
  const std::vector<int> chunk_lists[] = {{sp_tokens}, {290, 1, 1, 1, 1, 163, 243}};
  for (const isa target : tested_isas())
    for (const kv_type type : sp_types) {
      CAPTURE(std::string(to_string(target)));
      CAPTURE(to_string(type));
      const auto rope = type == kv_type::int8 ? std::vector<float>{} : turns;
      const key_groups by{sg_group, norm.data(), 1e-6f, rope.data()};
      std::vector<position_choice> results;
      for (const auto& chunks : chunk_lists)
        for (auto& device : machines(target)) {
          sparse_machine m(std::move(device), type);
          results.push_back(m.choose(rows, ones, sg_most, chunks, by));
        }
      const double share = type == kv_type::f32 ? 1e-6 : type == kv_type::fp8 ? 0x1p-4 : 0x1p-7;
      const double bound = 2 * share * 3 * std::sqrt(double(sp_heads) * sp_dim);
      double worst = 0;
      bool equal = true, whole = true;
      for (int row = sg_most; row < sp_tokens; ++row) {
        const std::span picked(results.front().of(std::size_t(row)), std::size_t(results.front().count(row)));
        for (const auto& other : results)
          equal = equal && std::ranges::equal(picked, std::span(other.of(std::size_t(row)), picked.size()));
        whole = whole && picked.size() == std::size_t(sg_best * sg_group + (row + 1) % sg_group) &&
          picked.back() == ((row + 1) % sg_group > 0 ? row : picked.back()) &&
          std::ranges::adjacent_find(picked, std::greater_equal<>()) == picked.end();
        std::vector<int> groups;
        for (int i = 0; i < sg_best; ++i) {
          groups.push_back(picked[std::size_t(i * sg_group)] / sg_group);
          for (int k = 0; k < sg_group; ++k)
            whole = whole && picked[std::size_t(i * sg_group + k)] == groups.back() * sg_group + k;
        }
        if (row % 13 != 0)
          continue;
        std::vector<double> scores;
        const auto order = groups_by_score(rows, norm, rope, row, scores);
        for (std::size_t i = 0; i < order.size(); ++i)
          if (const bool in = std::ranges::binary_search(groups, order[i]); in != (i < sg_best))
            worst = std::max(worst, std::abs(scores[std::size_t(order[i])] - scores[std::size_t(order[sg_best - 1])]));
      }
      CHECK(equal);
      CHECK(whole);
      CHECK(worst < bound);
    }
}

TEST_CASE("Rows that choose groups attend to what they have chosen, as many positions as that is") {
  constexpr std::size_t columns = (sp_query_heads + 2 * sp_kv_heads) * sp_width, width = sp_query_heads * sp_width;
  constexpr int best = 63, most = best * 4 + 3; // 252 to 255 positions, or with 4 more up to 259
  generator random(9);
  const auto qkv = random.normal(sp_tokens * columns);
  attention_scores scores;
  scores.scale = 0.3f;
  for (const isa target : tested_isas())
    for (const int top : {most, most + 4}) {
      CAPTURE(std::string(to_string(target)));
      sparse_machine m(make_backend(target, 3), kv_type::f32);
      m.write(qkv, sp_query_heads, 0, 0, sp_tokens);
      for (const int row : {300, 301, 302, 303}) {
        position_choice some;
        some.reset(1, top, {.size = 4});
        const int count = some.count(row);
        CHECK(count == top - 3 + (row + 1) % 4);
        for (int i = 0; i < count; ++i)
          some.positions[std::size_t(i)] = i < count - 3 ? i : row - count + 1 + i;
        numbers out(dtype::f32, width), dense(dtype::f32, width);
        const sequence_rows who{0, 1, row, 0};
        m.sparse().attend_chosen(out.rows(1), sparse_machine::rows_of(qkv, row, 1), sp_query_heads, scores, some,
                                 *m.cache, 0, {{&who, 1}, m.table});
        auto context = qkv;
        for (int i = 0; i < count; ++i)
          std::copy_n(&qkv[std::size_t(some.positions[std::size_t(i)]) * columns], columns,
                      &context[std::size_t(i) * columns]);
        sparse_machine other(make_backend(target), kv_type::f32);
        other.write(context, sp_query_heads, 0, 0, count);
        const sequence_rows last{0, 1, count - 1, 0};
        other.device->shaped_attention(dense.rows(1), sparse_machine::rows_of(qkv, row, 1), sp_query_heads, scores,
                                       *other.cache, 0, {{&last, 1}, other.table});
        CHECK(out == dense);
      }
    }
}

namespace {

constexpr int sb_size = 21, sb_best = 14, sb_last = 2, sb_most = sb_best * sb_size; // beyond a partition

} // namespace

TEST_CASE("Each KV head chooses the blocks of its highest products, and the last ones, on every schedule") {
  constexpr std::size_t columns = (sp_kv_heads + 1) * sp_dim;
  generator random(10);
  std::vector<float> rows; // small whole numbers: products are exact, many are alike, and many are negative
  for (std::size_t i = 0; i < sp_tokens * columns; ++i)
    rows.push_back(float(random.below(8) == 0 ? random.below(5) - 2 : 0));
  std::vector<std::vector<std::int32_t>> expected(std::size_t(sp_tokens) * sp_kv_heads);
  int negative = 0;
  for (int row = sb_most; row < sp_tokens; ++row)
    for (int head = 0; head < sp_kv_heads; ++head) {
      std::vector<double> scores;
      for (int t = 0; t <= row; ++t) {
        double dot = 0;
        for (std::size_t d = 0; d < sp_dim; ++d)
          dot += double(rows[std::size_t(row) * columns + std::size_t(head) * sp_dim + d]) *
            rows[std::size_t(t) * columns + sp_kv_heads * sp_dim + d];
        if (t % sb_size == 0)
          scores.push_back(dot);
        scores.back() = std::max(scores.back(), dot);
      }
      negative += std::ranges::count_if(scores, [](double s) { return s <= 0; }) > 0;
      for (int i = 0; i < sb_last; ++i)
        scores[scores.size() - 1 - std::size_t(i)] = 1e9;
      std::vector<int> order(scores.size());
      std::iota(order.begin(), order.end(), 0);
      std::ranges::stable_sort(order, [&](int a, int b) { return scores[std::size_t(a)] > scores[std::size_t(b)]; });
      std::sort(order.begin(), order.begin() + sb_best);
      for (int i = 0; i < sb_best; ++i)
        for (int t = order[std::size_t(i)] * sb_size; t < std::min((order[std::size_t(i)] + 1) * sb_size, row + 1); ++t)
          expected[std::size_t(row * sp_kv_heads + head)].push_back(t);
    }
  CHECK(negative > 10);
  const std::vector<int> chunk_lists[] = {{sp_tokens}, {293, 1, 1, 1, 160, 244}};
  for (const isa target : tested_isas())
    for (const kv_type type : {kv_type::f32, kv_type::bf16})
      for (const auto& chunks : chunk_lists)
        for (auto& device : machines(target)) {
          CAPTURE(std::string(to_string(target)));
          CAPTURE(to_string(type));
          sparse_machine m(std::move(device), type);
          bool equal = true;
          int first = 0;
          for (const int count : chunks) {
            m.write(rows, sp_kv_heads, 1, first, count);
            const sequence_rows who{0, count, first, 0};
            auto q = sparse_machine::rows_of(rows, first, count);
            q.cols = sp_kv_heads * sp_dim;
            position_choice some;
            some.reset(std::size_t(count), sb_most, {sb_size, sb_last}, sp_kv_heads);
            m.sparse().choose_positions(some, q, {}, sp_kv_heads, *m.cache, 1, {{&who, 1}, m.table});
            for (int r = std::max(0, sb_most - first); r < count; ++r)
              for (int head = 0; head < sp_kv_heads; ++head)
                equal = equal &&
                  std::ranges::equal(std::span(some.of(std::size_t(r), head), std::size_t(some.count(first + r))),
                                     expected[std::size_t((first + r) * sp_kv_heads + head)]);
            first += count;
          }
          CHECK(equal);
        }
}

TEST_CASE("Heads of K and V attend to positions of their own") {
  constexpr std::size_t columns = (sp_query_heads + 2 * sp_kv_heads) * sp_width, width = sp_query_heads * sp_width;
  constexpr int row = 400, half = sp_query_heads / sp_kv_heads * sp_width;
  generator random(11);
  const auto qkv = random.normal(sp_tokens * columns);
  attention_scores scores;
  scores.scale = 0.3f;
  position_choice own;
  own.reset(1, 40, {20, 1}, sp_kv_heads);
  const int count = own.count(row);
  CHECK(count == 21);
  for (int i = 0; i < count; ++i) {
    own.of(0, 0)[i] = i == count - 1 ? row : i;
    own.of(0, 1)[i] = i == count - 1 ? row : 100 + 3 * i;
  }
  for (const isa target : tested_isas()) {
    CAPTURE(std::string(to_string(target)));
    sparse_machine m(make_backend(target, 2), kv_type::f32);
    m.write(qkv, sp_query_heads, 0, 0, sp_tokens);
    const auto attend = [&](const position_choice& chosen) {
      numbers out(dtype::f32, width);
      const sequence_rows who{0, 1, row, 0};
      m.sparse().attend_chosen(out.rows(1), sparse_machine::rows_of(qkv, row, 1), sp_query_heads, scores, chosen,
                               *m.cache, 0, {{&who, 1}, m.table});
      return out;
    };
    const auto both = attend(own);
    for (int head = 0; head < sp_kv_heads; ++head) {
      position_choice one; // the same for both heads
      one.reset(1, count);
      std::copy_n(own.of(0, head), count, one.of(0));
      CHECK(attend(one).slice(std::size_t(head) * half, half) == both.slice(std::size_t(head) * half, half));
    }
  }
}

TEST_CASE("Planned scratch of choosing is what choosing takes") {
  constexpr int context = 20'000, heads = 2, dim = 16, width = 32;
  struct way {
    const char* name;
    int kv_heads, group, block, rate;
  };
  for (const auto& [name, kv_heads, group, block, rate] : {way{"positions", 1, 1, 0, 1}, way{"groups", 2, 4, 0, 1},
                                                           way{"blocks", 2, 1, 32, 1}, way{"entries", 1, 1, 0, 4}})
    for (const auto& [threads, rows] : {std::pair(1, 130), {3, 130}, {3, 1}}) { // of few rows, partitions at once
      CAPTURE(name);
      CAPTURE(threads);
      CAPTURE(rows);
      const int most = rows == 1 ? 16'384 : 1'024, query_heads = rows == 1 ? 512 : 6;
      thread_pool pool(threads);
      std::vector<std::int32_t> table((context + block_tokens - 1) / block_tokens);
      std::iota(table.begin(), table.end(), 0);
      kv_shape shape{3, 2, width, kv_type::f32, table.size()};
      shape.own = {{kv_heads, width, rate == 1}, {1, dim, false}, {1, width, false}, {2, width}};
      shape.layers = 4;
      cpu_kv_cache cache(shape);
      const sequence_rows who{0, rows, context - rows, 0};
      const batch step{{&who, 1}, table};
      std::vector<float> values(std::size_t(rows) * std::size_t(query_heads + 4) * width),
        weights(std::size_t(rows) * heads, 1), out(std::size_t(rows) * std::size_t(query_heads) * width),
        ones(width, 1), rope(std::size_t(context) * width);
      const auto all = [&](std::vector<float>& of, std::size_t columns) {
        return tensor{of.data(), dtype::f32, std::size_t(rows), columns, columns};
      };
      planned_steps steps;
      steps.rows = std::size_t(rows);
      steps.context = context;
      steps.heads = query_heads;
      steps.cache = shape;
      steps.choice = {.seen = std::size_t(most),
                      .sharing = std::size_t(query_heads / kv_heads),
                      .choosers = std::size_t(block > 0 ? heads : 1),
                      .dim = dim,
                      .group = std::size_t(group),
                      .each = std::size_t(std::max({group, block, rate}))};
      chosen_attention attention(find_target(tested_isas().back()), pool);
      entry_maker entries(find_target(tested_isas().back()), pool);
      const auto columns = std::size_t(query_heads) * width;
      position_choice chosen;
      if (block > 0)
        chosen.reset(std::size_t(rows), most, {block, 1}, heads);
      else
        chosen.reset(std::size_t(rows), group > 1 ? most - 1 : most,
                     key_groups{group, ones.data(), 1e-6f, {rope.data()}});
      attention.choose(chosen, all(values, heads * dim), all(weights, heads), heads, cache.layer(1), step, rate);
      if (rate > 1) {
        constexpr int window = 100;
        steps.choice.seen = std::size_t(window + most);
        steps.choice.entry_tokens = 2 * rate;
        const std::vector<float> bias(std::size_t(rate) * 2 * width);
        entries.make({.rate = rate, .overlaps = true, .bias = bias.data(), .norm = ones.data(), .angles = rope.data()},
                     cache.layer(3), cache.layer(2), step);
        const auto seen = cache.layer(2);
        attention.attend_entries(all(out, columns), all(values, columns), query_heads, {1},
                                 {0, window, 2, rate, &chosen}, cache.layer(0), &seen, step);
      } else {
        attention.attend(all(out, columns), all(values, columns + 2 * std::size_t(kv_heads) * width), query_heads, {1},
                         chosen, cache.layer(0), step);
      }
      const auto planned = attention.scratch_bytes(steps), held = attention.held_bytes();
      CHECK(held <= planned);
      if (threads == 1) // each thread has scratch, if it has done something
        CHECK(planned <= held + held / 2 + (std::size_t(64) << 10));
      CHECK(held > 2 * context); // scores, and keys of what is scored
      CHECK(entries.held_bytes() <= entries.scratch_bytes(steps));
      if (threads == 1)
        CHECK(entries.scratch_bytes(steps) <= 2 * entries.held_bytes());
      CHECK((entries.held_bytes() > 0) == (rate > 1));
    }
  CHECK(make_backend(tested_isas().back(), 1)->scratch_bytes({}) == 0);
}
