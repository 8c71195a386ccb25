// Ops divided among ranks: bit by bit what one rank gives.
#include "kernels/activation_sparsity.hpp"
#include "kernels/block_transfer.hpp"
#include "kernels/low_rank.hpp"
#include "kernels/planned_steps.hpp"
#include "tests/kernels/sharded/sharded_support.hpp"

#include <algorithm>
#include <numeric>

using namespace troupe::kernels;
using namespace troupe::kernels::testing;

namespace {

constexpr std::size_t most_ranks = 4;

/// Calls check(backend, what) for one rank, which comes first, and for more, of one and of two threads.
template <class Check>
void for_ranks(isa target, const Check& check) {
  const std::string name(to_string(target));
  check(*make_backend(target), name + ", alone");
  for (std::size_t ranks = 1; ranks <= most_ranks; ++ranks)
    check(*make_ranks(target, ranks, ranks == 2 ? 2 : 1), name + ", " + std::to_string(ranks) + " ranks");
}

/// That all of a test's results are the first one.
struct first_result {
  numbers first;
  void add(const numbers& got, const std::string& what) {
    if (first.size() == 0)
      first = got;
    CHECK_MESSAGE(got == first, what);
  }
};

struct weight_choice {
  dtype stored, compute;
  quantization how;
};
const weight_choice choices[] = {
  {dtype::f32, dtype::f32, quantization::none},   {dtype::f16, dtype::f32, quantization::none},
  {dtype::bf16, dtype::bf16, quantization::none}, {dtype::bf16, dtype::bf16, quantization::int8},
  {dtype::f32, dtype::f32, quantization::int4},   {dtype::bf16, dtype::bf16, quantization::fp8}};

} // namespace

TEST_CASE("ranks describe themselves") {
  const auto target = available_isas().back();
  const std::string set(to_string(target));
  CHECK(make_ranks(target, 2)->description() == "cpu, " + set + ", 2 ranks of 1 thread");
  CHECK(make_ranks(target, 3, 2)->description() == "cpu, " + set + ", 3 ranks of 2 threads");
}

TEST_CASE("products divided by columns have the bits of the whole, also stacked, gated, added, and with biases") {
  for (const isa target : tested_isas())
    for (const auto& choice : choices)
      for (const std::size_t rows : {1, 3, 40})
        for (const std::size_t inputs : {64, 97}) {
          generator random(3);
          const std::size_t outputs[] = {75, 16, 17};
          std::vector<numbers> values;
          std::vector<stored_matrix> stack;
          for (const auto n : outputs)
            values.emplace_back(choice.stored, random.normal(n * inputs, 1 / std::sqrt(float(inputs))));
          for (std::size_t i = 0; i < std::size(outputs); ++i)
            stack.emplace_back(values[i].data(), choice.stored, outputs[i], inputs);
          const numbers up(choice.stored, random.normal(75 * inputs, 1 / std::sqrt(float(inputs))));
          numbers in(choice.compute, random.normal(rows * inputs));
          const auto bias = random.normal(150), start = random.normal(rows * 108);
          first_result linear, activated;
          for_ranks(target, [&](backend& device, const std::string& what) {
            const auto w = device.pack(stack, choice.compute, choice.how);
            CHECK(w->outputs == 108);
            CHECK(w->bytes == device.packed_bytes(stack, choice.compute, choice.how, false));
            numbers out(dtype::f32, start);
            device.linear(out.rows(rows), in.rows(rows), *w, bias.data(), store::add);
            linear.add(out, what);
            const auto both = device.pack_gate_up(stack[0], {up.data(), choice.stored, 75, inputs}, choice.compute,
                                                  choice.how);
            numbers gated(choice.compute, rows * 75);
            device.linear_activated(gated.rows(rows), in.rows(rows), *both, {activation_type::gelu}, true, bias.data());
            activated.add(gated, what);
          });
        }
}

TEST_CASE("low-rank pairs are added to the columns of all ranks") {
  for (const isa target : tested_isas())
    for (const dtype compute : {dtype::f32, dtype::bf16}) {
      generator random(5);
      constexpr std::size_t rows = 6, inputs = 48, outputs = 90;
      const numbers gate(compute, random.normal(outputs * inputs)), up(compute, random.normal(outputs * inputs));
      const stored_matrix first{gate.data(), compute, outputs, inputs}, second{up.data(), compute, outputs, inputs};
      numbers in(compute, random.normal(rows * inputs));
      const auto a = random.normal(5 * inputs), b = random.normal(5 * outputs);
      const low_rank_pair pairs[] = {{0, 50, 5, a.data(), b.data()}, {70, 20, 3, a.data(), b.data()}};
      const low_rank_pair halves[] = {{0, outputs, 5, a.data(), b.data()}, {outputs, outputs, 4, a.data(), b.data()}};
      const std::vector<std::int32_t> who{0, 2, 3};
      first_result linear, activated;
      for_ranks(target, [&](backend& device, const std::string& what) {
        auto& products = dynamic_cast<low_rank_products&>(device);
        const auto w = device.pack({&first, 1}, compute);
        const auto plain = products.pack_low_rank(pairs, inputs, outputs, compute);
        numbers out(dtype::f32, rows * outputs);
        const row_group added{plain.get(), nullptr, who};
        products.linear_plus(out.rows(rows), in.rows(rows), *w, nullptr, store::set, {&added, 1});
        linear.add(out, what);
        const auto both = device.pack_gate_up(first, second, compute);
        const auto gated = products.pack_low_rank(halves, inputs, 2 * outputs, compute, true);
        numbers active(compute, rows * outputs);
        const row_group to_both{gated.get(), nullptr, who};
        products.linear_activated_plus(active.rows(rows), in.rows(rows), *both, {activation_type::silu}, true, nullptr,
                                       {&to_both, 1});
        activated.add(active, what);
      });
    }
}

TEST_CASE("experts divided by columns have the bits of whole ones, with biases and factors") {
  for (const isa target : tested_isas())
    for (const auto& choice : choices) {
      generator random(7);
      constexpr std::size_t rows = 9, hidden = 70, ffn = 58, experts = 3;
      std::vector<numbers> gate, up, down;
      std::vector<std::vector<float>> up_bias, down_bias, factors;
      std::vector<std::vector<std::int32_t>> who{{0, 1, 5}, {1, 2, 3, 4, 8}, {6, 7, 0}};
      for (std::size_t e = 0; e < experts; ++e) {
        gate.emplace_back(choice.stored, random.normal(ffn * hidden, 0.1f));
        up.emplace_back(choice.stored, random.normal(ffn * hidden, 0.1f));
        down.emplace_back(choice.stored, random.normal(ffn * hidden, 0.1f));
        up_bias.push_back(random.normal(2 * ffn));
        down_bias.push_back(random.normal(hidden));
        factors.push_back(random.normal(who[e].size()));
      }
      numbers in(choice.compute, random.normal(rows * hidden));
      first_result result;
      for_ranks(target, [&](backend& device, const std::string& what) {
        std::vector<std::unique_ptr<matrix>> packed;
        std::vector<row_group> first, second;
        std::size_t all = 0;
        for (std::size_t e = 0; e < experts; ++e) {
          packed.push_back(device.pack_gate_up({gate[e].data(), choice.stored, ffn, hidden},
                                               {up[e].data(), choice.stored, ffn, hidden}, choice.compute, choice.how));
          first.push_back({packed.back().get(), e == 1 ? nullptr : up_bias[e].data(), who[e]});
          const stored_matrix m{down[e].data(), choice.stored, hidden, ffn};
          packed.push_back(device.pack({&m, 1}, choice.compute, choice.how));
          second.push_back({packed.back().get(), down_bias[e].data(), who[e], factors[e]});
          all += who[e].size();
        }
        numbers middle(choice.compute, all * ffn), out(dtype::f32, rows * hidden);
        device.grouped_activated(middle.rows(all), in.rows(rows), first, {activation_type::silu}, true);
        device.grouped_sum(out.rows(rows), middle.rows(all), second);
        result.add(out, what);
        device.grouped_sum(out.rows(rows), {nullptr, choice.compute, 0, ffn, ffn}, {}, store::set);
        CHECK(out == numbers(dtype::f32, std::vector<float>(rows * hidden)));
      });
    }
}

TEST_CASE("ops on rows are divided by rows, in order or by a list") {
  const auto target = available_isas().back();
  generator random(9);
  constexpr std::size_t rows = 61, cols = 40;
  const auto x = random.normal(rows * cols), weight = random.normal(cols), start = random.normal(rows * cols),
             factors = random.normal(rows);
  std::vector<std::int32_t> list(rows);
  std::iota(list.begin(), list.end(), 0);
  std::shuffle(list.begin(), list.end(), random.engine);
  for (const auto* named : {static_cast<const std::int32_t*>(nullptr), static_cast<const std::int32_t*>(list.data())}) {
    first_result norms, layers, sums, copies, tables;
    for_ranks(target, [&](backend& device, const std::string& what) {
      numbers from(dtype::f32, x), out(dtype::f32, rows * cols), narrow(dtype::bf16, rows * cols),
        to(dtype::f32, start);
      device.rms_norm(out.rows(rows), from.rows(rows), weight.data(), 1e-5f, named);
      norms.add(out, what);
      device.layer_norm(out.rows(rows), from.rows(rows), weight.data(), weight.data(), 1e-5f, named);
      layers.add(out, what);
      device.add_rows(to.rows(rows), from.rows(rows), 0.5f, named, factors.data());
      device.scale(to.rows(rows), 0.3f, 20);
      device.clamp(to.rows(rows), 0.5f);
      sums.add(to, what);
      device.gather_rows(narrow.rows(rows), from.rows(rows), named);
      copies.add(narrow, what);
      const auto table = device.load_table({x.data(), dtype::f32, rows, cols});
      device.embed(out.rows(rows), *table, list.data());
      device.embed_add(out.rows(rows), *table, list.data());
      tables.add(out, what);
    });
  }
}

TEST_CASE("skipping zeros, and making them, gives ranks the bits and the savings of one") {
  const auto target = available_isas().back();
  generator random(11);
  constexpr std::size_t rows = 2, inputs = 256, outputs = 96;
  const numbers w(dtype::f32, random.normal(inputs * outputs));
  const stored_matrix stored{w.data(), dtype::f32, outputs, inputs};
  const auto x = random.normal(rows * inputs);
  first_result dropped, products;
  std::vector<std::size_t> skipped;
  for_ranks(target, [&](backend& device, const std::string& what) {
    auto& sparsity = dynamic_cast<activation_sparsity&>(device);
    const auto packed = device.pack({&stored, 1}, dtype::f32);
    numbers in(dtype::f32, x), out(dtype::f32, rows * outputs);
    REQUIRE(sparsity.skips_zeros(*packed));
    sparsity.drop_smallest(in.rows(rows), 0.95f, *packed);
    dropped.add(in, what);
    device.linear(out.rows(rows), in.rows(rows), *packed);
    products.add(out, what);
    skipped.push_back(sparsity.skipped_bytes());
  });
  CHECK(skipped.front() > 0);
  for (std::size_t i = 1; i < skipped.size(); ++i) // ranks pad their panels
    CHECK(skipped[i] >= skipped.front());
}

TEST_CASE("attention divided by heads, by queries of one head or by rows has the bits of one rank") {
  struct shape {
    int heads, kv_heads, dim;
  };
  for (const isa target : tested_isas())
    for (const auto& s : {shape{6, 3, 16}, shape{8, 4, 24}, shape{5, 5, 32}, shape{5, 1, 64}, shape{4, 2, 16}})
      for (const kv_type type : {kv_type::f32, kv_type::bf16, s.heads % 2 == 0 ? kv_type::int8 : kv_type::fp8}) {
        generator random(13);
        constexpr int context = 300, blocks = 45;
        const auto cols = std::size_t(s.heads + 2 * s.kv_heads) * std::size_t(s.dim),
                   width = std::size_t(s.heads) * std::size_t(s.dim);
        std::vector<std::int32_t> tables(2 * blocks);
        std::iota(tables.begin(), tables.end(), 0);
        std::shuffle(tables.begin(), tables.end(), random.engine);
        const auto rope = random.normal(std::size_t(context + 64) * std::size_t(s.dim));
        const auto prompt = random.normal(context * cols), mixed = random.normal(23 * cols),
                   weight = random.normal(std::size_t(s.dim)), slopes = random.normal(std::size_t(s.heads)),
                   sinks = random.normal(std::size_t(s.heads));
        const sequence_rows first{0, context, 0, 0, context};
        const sequence_rows step[] = {{0, 1, context, 0, context + 1}, {1, 20, 0, blocks, 20}, {21, 2, 20, blocks, 22}};
        const attention_scores scores[] = {
          {0.3f, 0}, {0.2f, 100, 0, slopes.data(), nullptr}, {0.2f, 0, 30, nullptr, sinks.data()}};
        first_result rotated, attended, moved;
        for_ranks(target, [&](backend& device, const std::string& what) {
          const auto cache = device.make_kv_cache({2, s.kv_heads, s.dim, type, 2 * blocks + 1});
          CHECK(cache->shape.kv_heads == s.kv_heads);
          numbers long_rows(dtype::f32, prompt), rows(dtype::f32, mixed), all(dtype::f32, std::size_t(0));
          const head_norm norm{weight.data(), weight.data(), 1e-5f};
          device.rope_write_kv(long_rows.rows(context), s.heads, norm, rope.data(), *cache, 1, {{&first, 1}, tables});
          device.rope_write_kv(rows.rows(23), s.heads, norm, rope.data(), *cache, 1, {step, tables});
          auto queries = rows.rows(23);
          numbers q(dtype::f32, 23 * width);
          queries.cols = width;
          device.gather_rows(q.rows(23), queries);
          rotated.add(q, what);
          const auto attend = [&](const batch& who) {
            for (const auto& score : scores) {
              numbers out(dtype::bf16, 23 * width);
              auto qkv = rows.rows(23);
              device.shaped_attention(out.rows(23), qkv, s.heads, score, *cache, 1, who);
              const auto wide = out.values();
              all.wide.insert(all.wide.end(), wide.begin(), wide.end());
            }
          };
          attend({step, tables});
          attended.add(all, what);
          auto other = tables;
          const block_copy copies[] = {{tables[0], 2 * blocks}};
          device.copy_blocks(*cache, copies);
          other[0] = 2 * blocks;
          all.wide.clear();
          attend({step, other});
          moved.add(all, what);
        });
        CHECK(moved.first == attended.first);
      }
}

TEST_CASE("the bytes of a packed matrix make it again for as many ranks") {
  const auto target = available_isas().back();
  generator random(15);
  constexpr std::size_t inputs = 64, outputs = 100, rows = 3;
  const numbers a(dtype::bf16, random.normal(inputs * outputs)), b(dtype::f16, random.normal(inputs * 20));
  const stored_matrix stack[] = {{a.data(), dtype::bf16, outputs, inputs}, {b.data(), dtype::f16, 20, inputs}};
  for (std::size_t ranks = 1; ranks <= most_ranks; ++ranks) {
    const auto device = make_ranks(target, ranks);
    const auto& storable = *device->storable();
    CHECK(storable.shards() == static_cast<int>(ranks));
    const auto packed = device->pack(stack, dtype::bf16);
    std::size_t size = 0;
    for (const auto& part : storable.bytes_of(*packed))
      size += part.size();
    REQUIRE(size == packed->bytes);
    const auto kept = device->allocate(size);
    auto* to = static_cast<std::byte*>(kept.get());
    for (const auto& part : storable.bytes_of(*packed))
      to = std::copy(part.begin(), part.end(), to);
    const auto restored = storable.restore(stack, dtype::bf16, quantization::none, false, kept);
    CHECK(restored->bytes == size);
    numbers in(dtype::bf16, random.normal(rows * inputs)), first(dtype::f32, rows * 120),
      second(dtype::f32, rows * 120);
    device->linear(first.rows(rows), in.rows(rows), *packed);
    device->linear(second.rows(rows), in.rows(rows), *restored);
    CHECK(first == second);
  }
}

TEST_CASE("what ranks cannot take is refused as one rank refuses it") {
  const auto device = make_ranks(available_isas().back(), 3);
  const std::vector<float> values(64 * 64);
  const stored_matrix square{values.data(), dtype::f32, 64, 64}, narrow{values.data(), dtype::f32, 64, 32},
    low{values.data(), dtype::f32, 32, 64};
  const stored_matrix uneven[] = {square, narrow};
  CHECK_THROWS_AS(device->pack({}, dtype::f32), std::invalid_argument);
  CHECK_THROWS_AS(device->pack(uneven, dtype::f32), std::invalid_argument);
  CHECK_THROWS_AS(device->pack_gate_up(square, low, dtype::f32), std::invalid_argument);
  CHECK_THROWS_AS(device->pack({&square, 1}, dtype::f16), std::invalid_argument);
  CHECK_THROWS_AS(device->make_kv_cache({1, 3, 7, kv_type::f32, 1}), std::invalid_argument);
  const auto w = device->pack({&square, 1}, dtype::f32);
  numbers in(dtype::f32, std::vector<float>(64)), out(dtype::f32, std::vector<float>(32));
  CHECK_THROWS_AS(device->linear(out.rows(1), in.rows(1), *w), std::invalid_argument);
}

TEST_CASE("blocks have the same canonical form with any number of ranks") {
  const int layers = 3, heads = 6, kv_heads = 3, dim = 16, blocks = 4;
  const std::size_t rows = blocks * block_tokens, columns = (heads + 2 * kv_heads) * dim;
  generator random;
  const auto values = random.normal(rows * columns);
  const std::vector<float> rope(rows * dim, 0.5f);
  std::vector<std::int32_t> table(blocks);
  std::iota(table.begin(), table.end(), 0);
  for (const auto type : {kv_type::f32, kv_type::bf16, kv_type::int8, kv_type::fp8}) {
    const kv_shape shape{layers, kv_heads, dim, type, blocks};
    const auto filled = [&](backend& device) {
      auto cache = device.make_kv_cache(shape);
      for (int layer = 0; layer < layers; ++layer) {
        auto qkv = values;
        qkv[0] = static_cast<float>(layer);
        const sequence_rows who{0, static_cast<std::int32_t>(rows), 0, 0};
        device.rope_write_kv({qkv.data(), dtype::f32, rows, columns, columns}, heads, {}, rope.data(), *cache, layer,
                             {{&who, 1}, table});
      }
      return cache;
    };
    const auto image_of = [&](backend& device, const kv_cache& cache, std::int32_t block) {
      std::vector<std::byte> image(shape.block_bytes());
      const block_export out[] = {{block, image.data()}};
      dynamic_cast<block_transfer&>(device).export_blocks(cache, out);
      return image;
    };
    const auto one = make_cpu_backend({.threads = 1, .target = available_isas().back()});
    const auto alone = filled(*one);
    for (const std::size_t ranks : {2, 3, 4}) { // with four, the heads are not divided
      CAPTURE(ranks);
      const auto several = make_ranks(available_isas().back(), ranks);
      const auto divided = filled(*several), other = several->make_kv_cache(shape);
      for (std::int32_t b = 0; b < blocks; ++b)
        CHECK(image_of(*several, *divided, b) == image_of(*one, *alone, b));
      const auto image = image_of(*one, *alone, 2);
      const block_import in[] = {{image.data(), 1}};
      dynamic_cast<block_transfer&>(*several).import_blocks(*other, in);
      CHECK(image_of(*several, *other, 1) == image);
    }
  }
}
