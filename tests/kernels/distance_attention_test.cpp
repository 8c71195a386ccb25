// Attention whose scores have learned numbers for distances: against the reference, and the same bits under every schedule
// and on every number of ranks.
#include "tests/kernels/distance_checks.hpp"
#include "tests/kernels/sharded/sharded_support.hpp"

using namespace troupe::kernels;
using namespace troupe::kernels::testing;

namespace {

const distance_case distance_cases[] = {
  {},
  {.width = 1, .extent = 1},
  {.heads = 3, .kv_heads = 3, .dim = 24, .width = 8, .extent = 64, .window = 64},
  {.heads = 6, .kv_heads = 2, .width = 16, .extent = 17, .window = 40},
  {.heads = 7, .kv_heads = 1, .dim = 64, .width = 5, .extent = 300, .tokens = 700}, // more than a partition
  {.heads = 2, .kv_heads = 2, .dim = 128, .width = 16, .extent = 1000, .tokens = 270},
};

} // namespace

TEST_CASE("Distances: attention agrees with the reference for every target and cache type") {
  for (const isa target : tested_isas())
    for (auto c : distance_cases)
      for (const kv_type type : {kv_type::f32, kv_type::bf16, kv_type::int8}) {
        c.type = type;
        const distance_rows of(c, 3);
        // As in attention_test.cpp; scores are up to about sqrt(width) * 4 here.
        const double relative = type == kv_type::f32 ? 400 * unit(dtype::f32)
          : type == kv_type::bf16                    ? 2 * unit(dtype::bf16)
                                                     : 4 * unit(dtype::bf16);
        check_distances(of, attend_in_chunks(*make_backend(target), of, {c.tokens}, 1), relative,
                        c.name() + ", " + std::string(to_string(target)));
      }
}

TEST_CASE("Distances: the same bits at once, in chunks, with any threads, block table and ranks") {
  for (const isa target : tested_isas())
    for (auto c : distance_cases)
      for (const kv_type type : {kv_type::f32, kv_type::bf16, kv_type::int8}) {
        c.type = type;
        const distance_rows of(c, 5);
        generator random(7);
        const auto whole = attend_in_chunks(*make_backend(target, 1), of, {c.tokens}, 1);
        const auto what = c.name() + ", " + std::string(to_string(target));
        CHECK_MESSAGE(attend_in_chunks(*make_backend(target, 3), of, {c.tokens}, 2) == whole, what, ", three threads");
        CHECK_MESSAGE(attend_in_chunks(*make_backend(target, 2), of, distance_chunks(c.tokens, random), 3) == whole,
                      what, ", in chunks");
        for (const std::size_t ranks : {2, 3})
          CHECK_MESSAGE(attend_in_chunks(*make_ranks(target, ranks), of, distance_chunks(c.tokens, random), 4) == whole,
                        what, ", on ", ranks, " ranks");
      }
}

TEST_CASE("Distances: a threshold leaves out what weighs little, under every schedule alike") {
  const auto target = tested_isas().back();
  const distance_rows of({.width = 5, .extent = 300, .tokens = 700}, 9);
  generator random(11);
  const auto exact = attend_in_chunks(*make_backend(target), of, {700}, 1);
  const auto whole = attend_in_chunks(*make_backend(target), of, {700}, 1, 0.05f);
  CHECK(whole != exact);
  CHECK(attend_in_chunks(*make_backend(target, 3), of, distance_chunks(700, random), 2, 0.05f) == whole);
  double worst = 0;
  for (std::size_t i = 0; i < exact.size(); ++i)
    worst = std::max(worst, std::abs(double(exact[i]) - whole[i]));
  CHECK(worst < 2);
}

TEST_CASE("Distances: mixes of other heads, and caps, are refused") {
  const auto device = make_backend(tested_isas().back());
  const distance_case c{.tokens = 16};
  const auto cache = device->make_kv_cache({1, c.kv_heads, c.dim, c.type, 1});
  std::vector<float> qkv(c.columns()), mixes(12), out(64);
  const auto table = distance_table(std::vector<float>(15), c.width, c.extent);
  const sequence_rows who{0, 1, 0, 0, 1};
  const std::vector<std::int32_t> blocks{0};
  const auto attend = [&](std::size_t mixed, const attention_scores& scores) {
    dynamic_cast<distance_attention&>(*device).attend_by_distance(
      {out.data(), dtype::f32, 1, 64, 64}, {qkv.data(), dtype::f32, 1, c.columns(), c.columns()}, c.heads, scores,
      {{mixes.data(), dtype::f32, 1, mixed, mixed}, table.data(), c.width, c.extent}, *cache, 0, {{&who, 1}, blocks});
  };
  CHECK_NOTHROW(attend(12, {1}));
  CHECK_THROWS_AS(attend(11, {1}), std::invalid_argument);
  CHECK_THROWS_AS(attend(12, {1, 0, 30}), std::invalid_argument);
}
