// An indexer's choice against its definition, and attention over chosen positions with the bits that it has where these
// are all there is; on every schedule.
#include "kernels/cuda/attention_plan.hpp"
#include "kernels/cuda/indexer_layers.hpp"
#include "kernels/sparse_attention.hpp"
#include "tests/kernels/cuda/support.hpp"
#include "tests/kernels/index_choice.hpp"

#include <functional>
#include <set>
#include <span>

using namespace troupe::kernels;
using namespace troupe::kernels::cuda::testing;

namespace {

constexpr int ch_tokens = 600, ch_heads = index_heads, ch_dim = index_dim;
constexpr int ch_cut = 540; // rows from which on positions are chosen, to spare time
constexpr int ch_query_heads = 6, ch_kv_heads = 2;
constexpr kv_type ch_types[] = {kv_type::f32, kv_type::bf16, kv_type::int8, kv_type::fp8};

struct ch_machine {
  std::unique_ptr<cuda::cuda_backend> device = make_device(true);
  std::unique_ptr<kv_cache> cache; // a layer of K and V, then one of K alone
  std::vector<std::int32_t> table; // of a sequence, then of another one
  static constexpr int blocks = (ch_tokens + block_tokens - 1) / block_tokens;

  ch_machine(kv_type type, int width = 40) : table(2 * blocks) {
    kv_shape shape{2, ch_kv_heads, width, type, table.size() + 2};
    shape.own = {{ch_kv_heads, width}, {1, ch_dim, false}};
    cache = device->make_kv_cache(shape);
    std::iota(table.begin(), table.end(), 1);
    std::shuffle(table.begin(), table.end(), generator(5).engine);
  }

  sparse_attention& sparse() const { return dynamic_cast<sparse_attention&>(*device); }

  /// Of rows that do not turn. `heads`: of queries, ahead of the keys in each row.
  void write(const tensor& rows, int heads, int layer, const batch& step) {
    device->rope_write_kv(rows, heads, {}, {}, *cache, layer, step);
    device->queue().synchronise();
  }

  std::vector<std::int32_t> read(const position_choice& choice) {
    std::vector<std::int32_t> all(choice.positions.size());
    cuda::copy_to_host(device->queue(), all.data(), choice.on_device.get(), all.size() * sizeof(std::int32_t));
    device->queue().synchronise();
    return all;
  }

  /// Writes chunk by chunk, and chooses for rows from ch_cut on; in a crowd, each chunk is of both sequences. No weights:
  /// heads choose for themselves.
  std::vector<std::int32_t> choose(const std::vector<float>& rows, int heads, const std::vector<float>& weights,
                                   const std::function<void(position_choice&, std::size_t)>& shape,
                                   const std::vector<int>& chunks, bool crowd = false) {
    std::vector<std::int32_t> all;
    position_choice some;
    shape(some, ch_tokens); // for the largest
    const std::size_t columns = rows.size() / ch_tokens;
    int first = 0;
    for (const int count : chunks) {
      std::vector<sequence_rows> who{{0, count, first, 0}};
      std::vector<float> part(rows.begin() + std::ptrdiff_t(std::size_t(first) * columns),
                              rows.begin() + std::ptrdiff_t(std::size_t(first + count) * columns));
      std::vector<float> own(weights.begin() + first * std::ptrdiff_t(weights.size() / ch_tokens),
                             weights.begin() + (first + count) * std::ptrdiff_t(weights.size() / ch_tokens));
      if (crowd) { // the other sequence is ahead, backwards and a token shorter
        who = {{0, count, std::max(0, first - 1), blocks}, {count, count, first, 0}};
        part.insert(part.begin(), part.rbegin(), part.rend());
        own.insert(own.begin(), own.rbegin(), own.rend());
      }
      const auto together = std::size_t(crowd ? 2 * count : count);
      const device_tensor both(*device, wide(part), together), factors(*device, wide(own), together);
      write(both.view, heads, 1, {who, table});
      first += count;
      if (first <= ch_cut)
        continue;
      shape(some, together);
      auto q = both.view;
      q.cols = std::size_t(heads) * ch_dim;
      sparse().choose_positions(some, q, weights.empty() ? tensor{} : factors.view, heads, *cache, 1, {who, table});
      const auto got = read(some);
      all.insert(all.end(), got.end() - std::ptrdiff_t(got.size() / together * std::size_t(count)), got.end());
    }
    REQUIRE(first == ch_tokens);
    return all;
  }
};

auto ch_plain(int most) {
  return [most](position_choice& to, std::size_t rows) { to.reset(rows, most); };
}

const std::vector<int> ch_at_once{ch_cut, ch_tokens - ch_cut}, ch_in_chunks{299, ch_cut - 299, 1, 1, 47, 11};

} // namespace

TEST_CASE("CUDA: a plan of rows that choose, and one of the others, have each row of a step once") {
  const std::vector<std::int32_t> tables(200, 0);
  const std::vector<sequence_rows> sequences{{0, 3, 10, 0}, {3, 40, 580, 0}, {43, 1, 599, 0}, {44, 1, 600, 0}};
  std::set<int> rows;
  for (const bool choosing : {false, true}) {
    cuda::attention_options options{4};
    options.most = 600;
    options.choosing = choosing;
    options.share = !choosing;
    const auto plan = cuda::plan_attention({sequences, tables}, options);
    REQUIRE(plan.slabs.size() == 1);
    std::set<std::array<int, 3>> seen; // row, head, partition
    for (const auto* works : {&plan.small, &plan.large})
      for (const auto& work : *works)
        for (int i = work.packed; i < work.packed + work.count; ++i)
          CHECK(seen.insert({plan.list[std::size_t(work.first + i / 4)], i % 4, work.partition}).second);
    std::size_t states = 0;
    for (std::size_t i = 0; i < plan.slabs[0].merge; ++i) {
      const int row = plan.list[std::size_t(plan.slabs[0].merge_first) + i];
      CHECK(rows.insert(row).second);
      const int position = row < 3 ? 10 + row : row < 43 ? 577 + row : 556 + row;
      CHECK(choosing == (position >= 600));
      CHECK(plan.rows[std::size_t(row)].end == (choosing ? 600 : position + 1));
      states += 4 * std::size_t(plan.rows[std::size_t(row)].end_partition());
    }
    CHECK(seen.size() == states);
  }
  CHECK(rows.size() == 45);
}

TEST_SUITE_BEGIN("cuda");

TEST_CASE("CUDA: an indexer chooses the highest scores, of equal ones the earlier positions, on every schedule") {
  constexpr int most = 550;
  generator random(3);
  const auto rows = whole_number_rows(random, ch_tokens, ch_heads, 16);
  std::vector<float> weights;
  for (int i = 0; i < ch_tokens * ch_heads; ++i)
    weights.push_back(float(random.below(4) - 1));
  std::vector<std::int32_t> expected(std::size_t(ch_tokens - ch_cut) * most);
  int ties = 0;
  for (int row = most; row < ch_tokens; ++row) {
    const auto scores = index_scores(rows, weights, row);
    std::ranges::copy(highest_places(scores, most), expected.begin() + (row - ch_cut) * most);
    ties += has_tie(scores, most);
  }
  CHECK(ties > 20);
  for (const kv_type type : {kv_type::f32, kv_type::bf16})
    for (const auto& chunks : {ch_at_once, ch_in_chunks})
      for (const bool crowd : {false, true}) {
        if (is_emulated() && (type == kv_type::f32) == crowd)
          continue; // slow
        CAPTURE(to_string(type));
        CAPTURE(crowd);
        const auto got = ch_machine(type).choose(rows, ch_heads, weights, ch_plain(most), chunks, crowd);
        constexpr auto before = (most - ch_cut) * most; // of rows that see too few to choose
        CHECK(std::equal(got.begin() + before, got.end(), expected.begin() + before));
      }
}

TEST_CASE("CUDA: an indexer's choice is the best but for what its keys are rounded by, and the same in chunks") {
  constexpr int most = 40;
  generator random(4);
  const auto rows = random.normal(std::size_t(ch_tokens) * (ch_heads + 1) * ch_dim),
             weights = random.normal(std::size_t(ch_tokens) * ch_heads);
  for (const kv_type type : ch_types) {
    CAPTURE(to_string(type));
    const auto chosen = ch_machine(type).choose(rows, ch_heads, weights, ch_plain(most), ch_at_once);
    if (is_scaled(type)) {
      const auto again = ch_machine(type).choose(rows, ch_heads, weights, ch_plain(most), ch_in_chunks, true);
      CHECK(chosen == again);
    }
    // Each head's product has dim terms of about 1; a term is off by the rounding of a key.
    const double share = type == kv_type::f32 ? 1e-6 : type == kv_type::fp8 ? 0x1p-4 : 0x1p-8;
    const double bound = 2 * share * 3 * std::sqrt(double(ch_heads) * ch_dim);
    double worst = 0;
    for (int row = ch_cut; row < ch_tokens; row += 7) {
      const auto scores = index_scores(rows, weights, row);
      const std::span picked(&chosen[std::size_t(row - ch_cut) * most], most);
      CHECK(std::ranges::adjacent_find(picked, std::greater_equal<>()) == picked.end());
      worst = std::max(worst, regret(scores, picked));
    }
    CHECK(worst < bound);
  }
}

TEST_CASE("CUDA: each KV head chooses the blocks of its highest products, and the last ones, on every schedule") {
  constexpr int size = 21, best = 14, last = 2, most = size * best; // beyond a partition
  generator random(10);
  const auto rows = whole_number_rows(random, ch_tokens, ch_kv_heads, 8);
  const auto blocks = [](position_choice& to, std::size_t count) {
    to.reset(count, most, key_blocks{size, last}, ch_kv_heads);
  };
  std::vector<std::vector<std::int32_t>> results;
  for (const auto& chunks : {ch_at_once, ch_in_chunks})
    results.push_back(ch_machine(kv_type::bf16).choose(rows, ch_kv_heads, {}, blocks, chunks));
  position_choice shape;
  blocks(shape, 1);
  bool equal = true;
  int negative = 0;
  for (int row = ch_cut; row < ch_tokens; ++row)
    for (int head = 0; head < ch_kv_heads; ++head) {
      const auto products = index_products(rows, ch_kv_heads, row, head);
      std::vector<double> scores;
      for (std::size_t t = 0; t < products.size(); t += size)
        scores.push_back(*std::max_element(products.begin() + std::ptrdiff_t(t),
                                           products.begin() + std::ptrdiff_t(std::min(t + size, products.size()))));
      negative += std::ranges::count_if(scores, [](double s) { return s <= 0; }) > 0;
      std::fill(scores.end() - last, scores.end(), 1e9);
      std::vector<std::int32_t> expected;
      for (const int b : highest_places(scores, best))
        for (int t = b * size; t < std::min((b + 1) * size, row + 1); ++t)
          expected.push_back(t);
      REQUIRE(int(expected.size()) == shape.count(row));
      for (const auto& got : results)
        equal = equal &&
          std::ranges::equal(expected,
                             std::span(&got[std::size_t((row - ch_cut) * ch_kv_heads + head) * most], expected.size()));
    }
  CHECK(equal);
  CHECK(negative > 10);
}

TEST_CASE("CUDA: groups of positions are chosen whole, as a CPU chooses them, and the same on every schedule") {
  constexpr int size = 4, most = 11 * size - 1;
  generator random(13);
  const auto rows = random.normal(std::size_t(ch_tokens) * (ch_heads + 1) * ch_dim), norm = random.normal(ch_dim);
  const std::vector<float> ones(std::size_t(ch_tokens) * ch_heads, 1.0f);
  std::vector<float> angles; // of which half turns
  for (int i = 0; i < ch_tokens * ch_dim; ++i) {
    const double angle = i % (ch_dim / 2) < ch_dim / 4 ? i / ch_dim * (0.1 + i % (ch_dim / 2)) : 0;
    angles.push_back(float(i % ch_dim < ch_dim / 2 ? std::cos(angle) : std::sin(angle)));
  }
  for (const kv_type type : ch_types) {
    CAPTURE(to_string(type));
    const bool turns = type != kv_type::int8;
    const auto choose = [&](ch_machine&& m, const std::vector<int>& chunks, bool crowd) {
      const auto weight = m.device->upload(norm), turn = m.device->upload(angles);
      auto all = m.choose(
        rows, ch_heads, ones,
        [&](position_choice& to, std::size_t count) {
          to.reset(count, most,
                   {size, static_cast<const float*>(weight.get()), 1e-5f,
                    turns ? static_cast<const float*>(turn.get()) : nullptr});
        },
        chunks, crowd);
      position_choice shape;
      shape.reset(1, most, key_groups{size});
      for (int row = ch_cut; row < ch_tokens; ++row) // what is behind the last position of a row is not written
        std::fill(all.begin() + (row - ch_cut) * most + shape.count(row), all.begin() + (row - ch_cut + 1) * most, -1);
      return all;
    };
    const auto got = choose(ch_machine(type), ch_at_once, false);
    CHECK(choose(ch_machine(type), ch_in_chunks, type == kv_type::f32) == got);
    const auto cpu = make_backend(available_isas().back());
    kv_shape shape{1, 1, ch_dim, type, ch_machine::blocks};
    shape.own = {{1, ch_dim, false}};
    const auto cache = cpu->make_kv_cache(shape);
    std::vector<std::int32_t> table(ch_machine::blocks);
    std::iota(table.begin(), table.end(), 0);
    const sequence_rows who{0, ch_tokens, 0, 0};
    const batch step{{&who, 1}, table};
    auto all = rows, factors = ones;
    tensor q{all.data(), dtype::f32, ch_tokens, (ch_heads + 1) * ch_dim, (ch_heads + 1) * ch_dim};
    cpu->rope_write_kv(q, ch_heads, {}, {}, *cache, 0, step);
    q.cols = ch_heads * ch_dim;
    position_choice wanted;
    wanted.reset(ch_tokens, most, {size, norm.data(), 1e-5f, turns ? angles.data() : nullptr});
    dynamic_cast<sparse_attention&>(*cpu).choose_positions(
      wanted, q, {factors.data(), dtype::f32, ch_tokens, ch_heads, ch_heads}, ch_heads, *cache, 0, step);
    int differing = 0; // scores that are nearly equal may be exchanged by rounding
    for (int row = ch_cut; row < ch_tokens; ++row) {
      const std::span<const std::int32_t> of_gpu(&got[std::size_t(row - ch_cut) * most],
                                                 std::size_t(wanted.count(row))),
        of_cpu(wanted.of(std::size_t(row)), of_gpu.size());
      CHECK(std::ranges::adjacent_find(of_gpu, std::greater_equal<>()) == of_gpu.end());
      CHECK(((row + 1) % size == 0 || of_gpu.back() == row)); // behind the last whole group
      for (const auto position : of_gpu)
        differing += std::ranges::count(of_cpu, position) != 1;
    }
    CHECK(differing <= 2 * size);
  }
}

TEST_CASE("CUDA: scores that are computed for a few rows at a time give the same choice") {
  constexpr int most = 40, rows = 60;
  generator random(8);
  const auto values = random.normal(std::size_t(rows) * (ch_heads + 1) * ch_dim),
             weights = random.normal(std::size_t(rows) * ch_heads);
  ch_machine m(kv_type::bf16);
  const device_tensor both(*m.device, wide(values), rows), factors(*m.device, wide(weights), rows);
  const sequence_rows who{0, rows, 0, 0};
  const batch step{{&who, 1}, m.table};
  m.write(both.view, ch_heads, 1, step);
  auto q = both.view;
  q.cols = std::size_t(ch_heads) * ch_dim;
  std::vector<std::vector<std::int32_t>> results;
  for (const std::size_t memory : {std::size_t(1) << 20, std::size_t(1), std::size_t(7) * 256 * sizeof(float)}) {
    cuda::step_memory inputs;
    cuda::indexer_layers indexer(m.device->queue(), inputs, memory);
    position_choice choice;
    choice.reset(rows, most);
    indexer.choose(choice, q, factors.view, ch_heads, dynamic_cast<const cuda::device_kv_cache&>(*m.cache), 1, step);
    results.push_back(m.read(choice));
  }
  for (int row = most; row < rows; ++row)
    CHECK(results.front()[std::size_t(row + 1) * most - 1] >= most - 1); // it has chosen
  CHECK(results[1] == results[0]);
  CHECK(results[2] == results[0]);
}

TEST_CASE("CUDA, deterministic: attention over chosen positions has the bits of attention over these alone") {
  constexpr int most = 290, cut = 280, tokens = 330;
  for (const kv_type type : ch_types)
    for (const int width : {40, 64}) { // plain kernels; tensor cores for rows that do not choose
      if (is_emulated() && width == 64 && type != kv_type::bf16)
        continue;
      CAPTURE(to_string(type));
      CAPTURE(width);
      const std::size_t columns = std::size_t(ch_query_heads + 2 * ch_kv_heads) * std::size_t(width),
                        out_width = std::size_t(ch_query_heads) * std::size_t(width);
      generator random(6);
      const auto qkv = random.normal(tokens * columns);
      std::vector<std::int32_t> chosen(std::size_t(tokens) * most, -1);
      for (int row = most; row < tokens; ++row) {
        std::vector<std::int32_t> all(std::size_t(row) + 1);
        std::iota(all.begin(), all.end(), 0);
        std::shuffle(all.begin(), all.end(), random.engine);
        std::sort(all.begin(), all.begin() + most);
        std::copy_n(all.begin(), most, chosen.begin() + row * most);
      }
      attention_scores scores;
      scores.scale = 0.3f;
      const auto out_type = type == kv_type::f32 ? dtype::f32 : dtype::bf16;
      const auto rows_of = [&](int first, int count) {
        return std::vector<float>(qkv.begin() + std::ptrdiff_t(std::size_t(first) * columns),
                                  qkv.begin() + std::ptrdiff_t(std::size_t(first + count) * columns));
      };
      ch_machine m(type, width);
      const sequence_rows whole{0, tokens, 0, 0};
      m.write(device_tensor(*m.device, wide(qkv), tokens).view, ch_query_heads, 0, {{&whole, 1}, m.table});
      const auto attend = [&](std::span<const sequence_rows> who, int first, int count) {
        position_choice some;
        some.reset(std::size_t(count), most);
        some.on_device = m.device->allocate(some.positions.size() * sizeof(std::int32_t));
        cuda::copy_to_device(m.device->queue(), some.on_device.get(), &chosen[std::size_t(first) * most],
                             some.positions.size() * sizeof(std::int32_t));
        const device_tensor in(*m.device, wide(rows_of(first, count)), std::size_t(count)),
          out(*m.device, out_type, std::size_t(count), out_width);
        m.sparse().attend_chosen(out.view, in.view, ch_query_heads, scores, some, *m.cache, 0, {who, m.table});
        return out.read();
      };
      const sequence_rows end{0, tokens - cut, cut, 0}, last{0, 1, tokens - 1, 0},
        pair[] = {{0, 1, cut, 0}, {1, tokens - cut - 1, cut + 1, 0}};
      const auto at_once = attend({&end, 1}, cut, tokens - cut);
      CHECK(attend(pair, cut, tokens - cut) == at_once);
      CHECK(attend({&last, 1}, tokens - 1, 1) == at_once.slice((tokens - 1 - cut) * out_width, out_width));
      // A row over a context of what it chose, or of all that it sees.
      ch_machine other(type, width);
      for (const int row : {cut, 289, 290, tokens - 1}) {
        CAPTURE(row);
        const int count = std::min(row + 1, most);
        auto context = rows_of(0, count);
        for (int i = 0; i < count && row >= most; ++i)
          std::copy_n(&qkv[std::size_t(chosen[std::size_t(row) * most + std::size_t(i)]) * columns], columns,
                      &context[std::size_t(i) * columns]);
        const sequence_rows these{0, count, 0, 0}, one{0, 1, count - 1, 0};
        other.write(device_tensor(*other.device, wide(context), std::size_t(count)).view, ch_query_heads, 0,
                    {{&these, 1}, other.table});
        const device_tensor in(*other.device, wide(rows_of(row, 1)), 1), out(*other.device, out_type, 1, out_width);
        other.device->shaped_attention(out.view, in.view, ch_query_heads, scores, *other.cache, 0,
                                       {{&one, 1}, other.table});
        const auto got = at_once.slice(std::size_t(row - cut) * out_width, out_width);
        if (width == 40 || row < most)
          CHECK(got == out.read());
        else // see the bound in attention_test.cpp; values are at most about 4
          check_close(got.values(), out.read().values(), std::vector<double>(out_width, 6 * unit(dtype::bf16) * 4),
                      "on tensor cores");
      }
    }
}

TEST_CASE("CUDA: heads of K and V attend to positions of their own") {
  constexpr int width = 40, row = 200, half = ch_query_heads / ch_kv_heads * width;
  constexpr std::size_t columns = (ch_query_heads + 2 * ch_kv_heads) * width;
  generator random(11);
  const auto qkv = random.normal((row + 1) * columns);
  attention_scores scores;
  scores.scale = 0.3f;
  ch_machine m(kv_type::f32, width);
  const sequence_rows whole{0, (row + 1), 0, 0}, one{0, 1, row, 0};
  m.write(device_tensor(*m.device, wide(qkv), (row + 1)).view, ch_query_heads, 0, {{&whole, 1}, m.table});
  const std::vector<float> last(qkv.begin() + row * std::ptrdiff_t(columns),
                                qkv.begin() + (row + 1) * std::ptrdiff_t(columns));
  const auto attend = [&](position_choice choice) {
    choice.on_device = m.device->allocate(choice.positions.size() * sizeof(std::int32_t));
    cuda::copy_to_device(m.device->queue(), choice.on_device.get(), choice.positions.data(),
                         choice.positions.size() * sizeof(std::int32_t));
    const device_tensor in(*m.device, wide(last), 1), out(*m.device, dtype::f32, 1, ch_query_heads * width);
    m.sparse().attend_chosen(out.view, in.view, ch_query_heads, scores, choice, *m.cache, 0, {{&one, 1}, m.table});
    return out.read();
  };
  position_choice own;
  own.reset(1, 40, key_blocks{20, 1}, ch_kv_heads);
  const int count = own.count(row);
  CHECK(count == 21);
  for (int i = 0; i < count; ++i) {
    own.of(0, 0)[i] = i == count - 1 ? row : i;
    own.of(0, 1)[i] = i == count - 1 ? row : 100 + 3 * i;
  }
  const auto both = attend(own);
  for (int head = 0; head < ch_kv_heads; ++head) {
    position_choice same; // for both heads
    same.reset(1, count);
    std::copy_n(own.of(0, head), count, same.of(0));
    CHECK(attend(same).slice(std::size_t(head) * half, half) == both.slice(std::size_t(head) * half, half));
  }
}

TEST_CASE("CUDA: steps whose rows may choose positions are not repeated, as their launches grow with the context") {
  constexpr int width = 40;
  generator random(12);
  for (const bool chooses : {false, true}) {
    ch_machine m(kv_type::f32, width);
    const device_tensor in(*m.device, wide(random.normal(2 * (ch_query_heads + 2 * ch_kv_heads) * width)), 2),
      out(*m.device, dtype::f32, 2, ch_query_heads * width);
    const sequence_rows two[] = {{0, 1, 10, 0}, {1, 1, 60, 0}}; // the second sees more than 40
    const batch step{two, m.table};
    const std::int32_t tokens[] = {3, 5};
    position_choice choice;
    choice.reset(2, 40);
    choice.on_device = m.device->allocate(80 * sizeof(std::int32_t));
    std::vector<std::uint64_t> shape;
    for (int i = 0; i < 2; ++i) { // the second is staged with the plans of the first
      m.device->stage({tokens, step, {}, true});
      m.device->begin_step(nullptr);
      shape = m.device->launch_shape();
      if (chooses)
        m.sparse().attend_chosen(out.view, in.view, ch_query_heads, {}, choice, *m.cache, 0, step);
      else
        m.device->shaped_attention(out.view, in.view, ch_query_heads, {}, *m.cache, 0, step);
    }
    CHECK(shape.empty() == chooses);
  }
}

TEST_CASE("CUDA: tokens and blocks of a layer of K alone are copied, and leave and come, with their keys") {
  for (const kv_type type : ch_types) {
    CAPTURE(to_string(type));
    constexpr int most = 50;
    generator random(7);
    const auto rows = random.normal(std::size_t(ch_tokens) * (ch_heads + 1) * ch_dim),
               weights = random.normal(std::size_t(ch_tokens) * ch_heads);
    ch_machine m(type);
    const auto before = m.choose(rows, ch_heads, weights, ch_plain(most), ch_at_once);
    const auto scales = is_scaled(type) ? 2 * sizeof(float) : 0;
    CHECK(m.cache->shape.block_bytes() ==
          16 * (ch_kv_heads * kv_bytes(type, 40) + (kv_bytes(type, ch_dim) - scales) / 2 + scales));
    std::vector<char> form(m.cache->shape.block_bytes());
    const auto spare = static_cast<std::int32_t>(m.table.size() + 1);
    for (int i = 0; i < ch_machine::blocks; ++i) { // by way of the host; then token by token, into zeros
      const auto block = m.table[std::size_t(i)];
      m.device->save_block(m.device->queue(), *m.cache, block, form.data());
      m.device->queue().synchronise();
      m.device->restore_block(m.device->queue(), *m.cache, spare, form.data());
      const block_copy zeroed{0, block};
      m.device->copy_blocks(*m.cache, {&zeroed, 1});
      std::vector<token_copy> tokens;
      for (int t = 0; t < block_tokens; ++t)
        tokens.push_back({spare, block, t});
      m.device->copy_tokens(*m.cache, 1, tokens);
      m.device->queue().synchronise();
    }
    const std::size_t columns = (ch_heads + 1) * ch_dim;
    const device_tensor q(*m.device, wide({rows.end() - std::ptrdiff_t(columns), rows.end()}), 1),
      w(*m.device, wide({weights.end() - ch_heads, weights.end()}), 1);
    auto queries = q.view;
    queries.cols = std::size_t(ch_heads) * ch_dim;
    position_choice after;
    after.reset(1, most);
    const sequence_rows last{0, 1, ch_tokens - 1, 0};
    m.sparse().choose_positions(after, queries, w.view, ch_heads, *m.cache, 1, {{&last, 1}, m.table});
    CHECK(std::ranges::equal(m.read(after), std::span(&before[std::size_t(ch_tokens - ch_cut - 1) * most], most)));
  }
}

TEST_SUITE_END();
