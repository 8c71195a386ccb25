#include "kernels/cuda/attention_plan.hpp"
#include "tests/cuda/support.hpp"

#include <set>

using namespace troupe::kernels;
using namespace troupe::kernels::cuda::testing;
using troupe::kernels::cuda::attention_options;
using troupe::kernels::cuda::attention_plan;
using troupe::kernels::cuda::plan_attention;

namespace {

struct shape {
  int heads, kv_heads, head_dim;
  int columns() const { return (heads + 2 * kv_heads) * head_dim; }
  int width() const { return heads * head_dim; }
};

std::string name(const shape& s, dtype type, int tokens, int window) {
  return std::to_string(s.heads) + ":" + std::to_string(s.kv_heads) + " x " + std::to_string(s.head_dim) + " " +
         to_string(type) + ", " + std::to_string(tokens) + " tokens, window " + std::to_string(window);
}

std::vector<float> rope_table(int positions, int dim) {
  std::vector<float> table;
  for (int t = 0; t < positions; ++t)
    for (int part = 0; part < 2; ++part)
      for (int i = 0; i < dim / 2; ++i) {
        const double angle = t * std::pow(10000.0, -2.0 * i / dim);
        table.push_back(static_cast<float>(part == 0 ? std::cos(angle) : std::sin(angle)));
      }
  return table;
}

/// A sequence's q, k and v before rotation.
struct sequence {
  shape s;
  int tokens;
  std::vector<float> qkv, q_norm, k_norm;

  sequence(const shape& s, int tokens, unsigned seed) : s(s), tokens(tokens) {
    generator random(seed);
    qkv = random.normal(std::size_t(tokens) * s.columns());
    q_norm = random.normal(s.head_dim);
    k_norm = random.normal(s.head_dim);
  }
  std::vector<float> rows(int first, int count) const {
    return {qkv.begin() + std::ptrdiff_t(first) * s.columns(),
            qkv.begin() + std::ptrdiff_t(first + count) * s.columns()};
  }
};

/// A device with a cache whose every slot holds NaN until it is written, and a shuffled block table.
struct machine {
  std::unique_ptr<cuda::cuda_backend> device;
  std::unique_ptr<kv_cache> cache;
  std::vector<std::int32_t> table;
  shape s;
  device_tensor rope;

  machine(const shape& s, dtype type, int tokens, bool deterministic, unsigned seed = 1, int spare = 3)
    : device(make_device(deterministic)), s(s),
      rope(*device, wide(rope_table((tokens / block_tokens + 1 + spare) * block_tokens, s.head_dim)), 1) {
    const int blocks = tokens / block_tokens + 1 + spare;
    const auto kept = type == dtype::bf16 ? kv_type::bf16 : kv_type::f32;
    cache = device->make_kv_cache({2, s.kv_heads, s.head_dim, kept, static_cast<std::size_t>(blocks)});
    table.resize(blocks);
    std::iota(table.begin(), table.end(), 0);
    const std::vector<unsigned char> garbage(cache->shape.block_bytes(), 0xff);
    for (int block = 0; block < blocks; ++block)
      device->restore_block(*cache, block, garbage.data());
    device->queue().synchronise();
    generator random(seed);
    std::shuffle(table.begin(), table.end(), random.engine);
  }

  /// Writes rows to the cache and attends to them, `chunk` after `chunk`.
  numbers run(const sequence& from, dtype out_type, int window, const std::vector<int>& chunks, bool norm = false) {
    numbers out;
    out.type = out_type;
    const device_tensor q_norm(*device, wide(from.q_norm), 1), k_norm(*device, wide(from.k_norm), 1);
    int first = 0;
    for (const int rows : chunks) {
      const device_tensor qkv(*device, wide(from.rows(first, rows)), rows);
      const device_tensor to(*device, out_type, rows, s.width());
      const head_norm weights{norm ? q_norm.floats() : nullptr, norm ? k_norm.floats() : nullptr, 1e-6f};
      const sequence_rows who{0, rows, first, 0};
      device->rope_write_kv(qkv.view, s.heads, weights, rope.floats(), *cache, 1, {{&who, 1}, table});
      device->attention(to.view, qkv.view, s.heads, 1 / std::sqrt(float(s.head_dim)), window, *cache, 1,
                        {{&who, 1}, table});
      const auto part = to.read();
      out.wide.insert(out.wide.end(), part.wide.begin(), part.wide.end());
      out.narrow.insert(out.narrow.end(), part.narrow.begin(), part.narrow.end());
      first += rows;
    }
    REQUIRE(first == from.tokens);
    return out;
  }
};

/// The reference's answer and how far the kernels may be from it, for the rows from `first`.
void check_against_reference(const numbers& got, const sequence& from, dtype kv_type, int window, bool norm,
                             const std::string& what, int first = 0) {
  const auto& s = from.s;
  const auto rope = rope_table(from.tokens, s.head_dim);
  std::vector<std::vector<std::vector<double>>> keys(s.kv_heads), values(s.kv_heads);
  std::vector<double> want;
  double largest_v = 0;
  for (int t = 0; t < from.tokens; ++t) {
    const auto row = from.rows(t, 1);
    const auto head = [&](int h) {
      return std::vector<double>(row.begin() + h * s.head_dim, row.begin() + (h + 1) * s.head_dim);
    };
    const auto prepared = [&](int h, const std::vector<float>& weight) {
      const auto x = head(h);
      return reference::rotate(norm ? reference::rms_norm(x, weight.data(), 1e-6) : x,
                               rope.data() + std::size_t(t) * s.head_dim);
    };
    const auto stored = [&](std::vector<double> x) {
      for (double& v : x)
        if (kv_type == dtype::bf16)
          v = numbers(kv_type, std::vector<float>{static_cast<float>(v)})[0];
      return x;
    };
    for (int h = 0; h < s.kv_heads; ++h) {
      keys[h].push_back(stored(prepared(s.heads + h, from.k_norm)));
      values[h].push_back(stored(head(s.heads + s.kv_heads + h)));
      for (const double v : values[h].back())
        largest_v = std::max(largest_v, std::abs(v));
    }
    if (t < first)
      continue;
    for (int h = 0; h < s.heads; ++h) {
      const int kv = h / (s.heads / s.kv_heads);
      const std::size_t from_token = window > 0 ? std::max(0, t + 1 - window) : 0;
      const auto o = reference::attention(prepared(h, from.q_norm), keys[kv], values[kv], from_token, t + 1,
                                          1 / std::sqrt(double(s.head_dim)));
      want.insert(want.end(), o.begin(), o.end());
    }
  }
  // With K and V in bf16, q and the weights are rounded to bf16 too: a score of magnitude up to about 10 errs by its
  // share of a unit, each weight by a unit; most of it averages out.
  const double relative = (kv_type == dtype::bf16 ? 5 * unit(dtype::bf16) : 200 * unit(dtype::f32)) + unit(got.type);
  check_close(got.values(), want, std::vector<double>(want.size(), relative * largest_v), what);
}

std::vector<int> random_chunks(int n, generator& random) {
  std::vector<int> chunks;
  while (n > 0) {
    chunks.push_back(std::min(n, 1 + random.below(40)));
    n -= chunks.back();
  }
  return chunks;
}

} // namespace

TEST_CASE("CUDA: the attention of a step is planned so that every row has each of its partitions once") {
  // Three sequences have their first 512 tokens' blocks in common, one of them is a chunk; a fourth stands alone.
  std::vector<std::int32_t> tables;
  std::vector<sequence_rows> sequences;
  const auto add = [&](int rows, int position, bool common, int own) {
    sequences.push_back({sequences.empty() ? 0 : sequences.back().first_row + sequences.back().rows, rows, position,
                         static_cast<std::int32_t>(tables.size())});
    for (int b = 0; b <= (position + rows - 1) / block_tokens; ++b)
      tables.push_back(common && b < 32 ? b : own + b);
  };
  add(1, 600, true, 1000);
  add(1, 530, true, 2000);
  add(40, 512, true, 3000);
  add(1, 700, false, 4000);
  for (const bool share : {false, true})
    for (const bool flash : {false, true})
      for (const int window : {0, 300})
        for (const std::size_t most_slots : {std::size_t(7), std::size_t(1) << 16}) {
          CAPTURE(share);
          CAPTURE(flash);
          CAPTURE(window);
          CAPTURE(most_slots);
          const auto plan = plan_attention({sequences, tables}, {4, window, flash, share, most_slots});
          CHECK(plan.flash.empty() == !flash);
          std::size_t merged = 0, works = 0;
          for (const auto& slab : plan.slabs) {
            std::set<std::array<int, 3>> seen; // row, packed head, partition
            std::set<int> slots;
            const auto visit = [&](const std::vector<cuda::attention_work>& list, std::size_t first, std::size_t count,
                                   int tile) {
              for (std::size_t w = first; w < first + count; ++w, ++works) {
                const auto& work = list[w];
                CHECK(work.count > 0);
                CHECK(work.count <= tile);
                for (int i = work.packed; i < work.packed + work.count; ++i) {
                  const int row = plan.list[work.first + i / 4];
                  CHECK(seen.insert({row, i % 4, work.partition}).second);
                  const auto& s = *std::find_if(sequences.begin(), sequences.end(), [&](const sequence_rows& s) {
                    return row >= s.first_row && row < s.first_row + s.rows;
                  });
                  const int last = std::min(15, (s.first_position + s.rows - 1) / block_tokens - 16 * work.partition);
                  for (int b = 0; b <= last; ++b) // the row's own blocks
                    CHECK(tables[work.table + b] == tables[s.first_block + 16 * work.partition + b]);
                }
              }
            };
            visit(plan.small, slab.small_first, slab.small, cuda::small_tile);
            visit(plan.large, slab.large_first, slab.large, cuda::large_tile);
            for (std::size_t i = 0; i < slab.merge; ++i, ++merged) {
              const int row = plan.list[slab.merge_first + i];
              const auto& at = plan.rows[row];
              for (int p = at.first_partition; p <= at.position / partition_tokens; ++p) {
                for (int head = 0; head < 4; ++head)
                  CHECK(seen.contains({row, head, p}));
                CHECK(slots.insert(at.slot + p - at.first_partition).second);
              }
            }
            CHECK(*slots.rbegin() < int(plan.slots));
          }
          CHECK(merged == (flash ? 3u : 43u));
          if (most_slots > 7 && window == 0 && !flash)
            CHECK(works == (share ? 2 * 6 + 1 + 1 + 5 + 3 : 3 + 3 + 3 * 5 + 3u));
        }
}

TEST_SUITE_BEGIN("cuda" * doctest::skip(no_device()));

TEST_CASE("CUDA: attention agrees with the reference for every head shape, cache type and window") {
  for (const auto& s : {shape{1, 1, 8}, {2, 2, 14}, {7, 1, 16}, {8, 1, 48}, {4, 2, 64}, {3, 3, 80}, {6, 2, 96},
                        {14, 2, 128}, {2, 1, 250}, {32, 1, 64}})
    for (const dtype type : {dtype::f32, dtype::bf16})
      for (const int window : {0, 37})
        for (const bool deterministic : {false, true}) {
          const bool tensor = type == dtype::bf16 && (s.head_dim == 64 || s.head_dim == 96 || s.head_dim == 128);
          if (deterministic && !tensor)
            continue; // the same kernels
          const int tokens = s.head_dim == 64 && s.heads < 8 ? 300 : 50;
          const sequence from(s, tokens, 3);
          machine m(s, type, tokens, deterministic);
          const bool norm = s.head_dim == 128;
          const auto out = m.run(from, type, window, {tokens}, norm);
          check_against_reference(out, from, type, window, norm, name(s, type, tokens, window));
        }
}

TEST_CASE("CUDA, deterministic: attention gives the same bits at once, in chunks, with any block table") {
  for (const shape& s : {shape{4, 2, 16}, shape{8, 2, 64}})
    for (const dtype type : {dtype::f32, dtype::bf16})
      for (const int window : {0, 32, 270}) {
        if (cuda::is_emulated() && (window == 32 || (type == dtype::bf16) != (s.head_dim == 64)))
          continue; // slow: one case for each kernel
        const int tokens = 290;
        const sequence from(s, tokens, 5);
        generator random(7);
        const auto run = [&](std::vector<int> chunks) {
          machine m(s, type, tokens, true, random.below(1000));
          return m.run(from, type, window, std::move(chunks));
        };
        const auto at_once = run({tokens});
        const auto what = name(s, type, tokens, window);
        CHECK_MESSAGE(run(random_chunks(tokens, random)) == at_once, what, ", in chunks");
        CHECK_MESSAGE(run({257, 1, 1, 30, 1}) == at_once, what, ", decode at the end");
      }
}

TEST_CASE("CUDA: sequences that share a prefix get what each gets alone, bit for bit where deterministic") {
  const shape s{8, 2, 64};
  const int common = 2 * partition_tokens, members = 5, blocks_each = 3;
  for (const bool deterministic : {false, true}) {
    machine m(s, dtype::bf16, common + 40, deterministic, 3, 3 + members * blocks_each);
    const sequence prefix(s, common, 11);
    const int common_blocks = common / block_tokens;
    m.run(prefix, dtype::f32, 0, {common});

    std::vector<std::int32_t> tables;
    std::vector<sequence_rows> batch;
    std::vector<sequence> wholes;
    std::vector<float> together;
    for (int i = 0; i < members; ++i) {
      const int own = 1 + 9 * i, rows = i == 2 ? 5 : 1; // own tokens, of which the last rows are in the step
      sequence whole(s, common + own + rows - 1, 20 + unsigned(i));
      std::copy(prefix.qkv.begin(), prefix.qkv.end(), whole.qkv.begin());
      const auto first_block = static_cast<std::int32_t>(tables.size());
      tables.insert(tables.end(), m.table.begin(), m.table.begin() + common_blocks);
      for (int b = 0; b < blocks_each; ++b)
        tables.push_back(m.table[common_blocks + i * blocks_each + b]);
      batch.push_back(
        {batch.empty() ? 0 : batch.back().first_row + batch.back().rows, rows, common + own - 1, first_block});
      if (own > 1) { // what precedes the step
        const device_tensor before(*m.device, wide(whole.rows(common, own - 1)), own - 1);
        const sequence_rows who{0, own - 1, common, first_block};
        m.device->rope_write_kv(before.view, s.heads, {}, m.rope.floats(), *m.cache, 1, {{&who, 1}, tables});
      }
      const auto now = whole.rows(common + own - 1, rows);
      together.insert(together.end(), now.begin(), now.end());
      wholes.push_back(std::move(whole));
    }
    const int rows = batch.back().first_row + batch.back().rows;
    const auto attend = [&](std::span<const sequence_rows> who, const std::vector<float>& values, int count) {
      const device_tensor qkv(*m.device, wide(values), count), out(*m.device, dtype::f32, count, s.width());
      m.device->rope_write_kv(qkv.view, s.heads, {}, m.rope.floats(), *m.cache, 1, {who, tables});
      m.device->attention(out.view, qkv.view, s.heads, 0.125f, 0, *m.cache, 1, {who, tables});
      return out.read();
    };
    const auto all = attend(batch, together, rows);
    for (int i = 0; i < members; ++i) {
      auto alone = batch[i];
      const auto mine = all.slice(std::size_t(alone.first_row) * s.width(), std::size_t(alone.rows) * s.width());
      alone.first_row = 0;
      check_against_reference(mine, wholes[i], dtype::bf16, 0, false, "member " + std::to_string(i),
                              wholes[i].tokens - alone.rows);
      if (deterministic)
        CHECK(attend({&alone, 1}, wholes[i].rows(wholes[i].tokens - alone.rows, alone.rows), alone.rows) == mine);
    }
  }
}

TEST_SUITE_END();
