// Numbers for distances on a GPU: against the reference, and the same bits however steps divide texts, alone and in a crowd
// that shares blocks.
#include "tests/kernels/cuda/support.hpp"
#include "tests/kernels/distance_checks.hpp"

using namespace troupe::kernels;
using namespace troupe::kernels::cuda::testing;

namespace {

/// Heads of 128 in other types than f32 take tensor cores.
const distance_case distance_device_cases[] = {
  {.extent = 300, .window = 33, .tokens = 290},
  {.heads = 3, .kv_heads = 3, .dim = 24, .width = 8, .extent = 5, .tokens = 50, .type = kv_type::int8},
  {.heads = 2, .kv_heads = 1, .dim = 128, .width = 16, .extent = 275, .tokens = 290, .type = kv_type::bf16},
  {.heads = 2, .kv_heads = 2, .dim = 128, .width = 3, .extent = 40, .window = 40, .tokens = 90, .type = kv_type::int8},
  {.heads = 3, .kv_heads = 1, .dim = 128, .width = 1, .extent = 1, .tokens = 40, .type = kv_type::fp8},
};

/// As in attention_test.cpp. K and V are not rounded in the reference; in fp8 they have three bits of mantissa.
double distance_tolerance(kv_type type) {
  return type == kv_type::f32 ? 400 * unit(dtype::f32) : type == kv_type::fp8 ? 0x1p-4 : 5 * unit(dtype::bf16);
}

} // namespace

TEST_SUITE_BEGIN("cuda");

TEST_CASE(
  "CUDA: attention with numbers for distances agrees with the reference, and the bits do not depend on chunks") {
  generator random(7);
  for (const auto& c : distance_device_cases) {
    const distance_rows of(c, 3);
    const auto whole = attend_in_chunks(*make_device(), of, {c.tokens}, 1);
    check_distances(of, whole, distance_tolerance(c.type), c.name());
    CHECK_MESSAGE(attend_in_chunks(*make_device(), of, distance_chunks(c.tokens, random), 2) == whole, c.name());
  }
}

TEST_CASE(
  "CUDA: rows with numbers for distances have the bits in a crowd that they have alone, also of shared quarters") {
  constexpr int tokens = 200, first = 130, members = 36; // least_common_quarters, and some more
  const distance_rows of(
    {.heads = 2, .kv_heads = 1, .dim = 128, .width = 2, .extent = 150, .tokens = tokens, .type = kv_type::bf16}, 5);
  const auto device = make_device();
  distance_run all(*device, of, 1);
  all.run(0, tokens);
  const auto alone = all.read();
  // Rows of sequences that end at different tokens and have the same blocks up to there.
  std::vector<std::int32_t> tables;
  std::vector<sequence_rows> who;
  for (int i = 0; i < members; ++i) {
    who.push_back({i, 1, first + i, static_cast<std::int32_t>(tables.size()), first + i + 1});
    tables.insert(tables.end(), all.table.begin(), all.table.end());
  }
  const distance_memory out(*device, std::vector<float>(members * all.width(), std::nanf("")), all.width());
  all.attend(out.some(0, members), all.qkv.some(first, members), all.mixes.some(first, members), {who, tables});
  std::vector<float> got(members * all.width());
  device->download(got.data(), out.some(0, members));
  CHECK(std::equal(got.begin(), got.end(), alone.begin() + std::ptrdiff_t(first * all.width())));
}

TEST_CASE("CUDA: mixes of other heads than attention's, and caps, are refused with numbers for distances") {
  const distance_rows of({.tokens = 3}, 1);
  const auto device = make_device();
  distance_run all(*device, of, 1);
  const auto attend = [&](const tensor& mixed) {
    const sequence_rows who{0, 3, 0, 0, 3};
    all.attend(all.out.some(0, 3), all.qkv.some(0, 3), mixed, {{&who, 1}, all.table});
  };
  auto narrow = all.mixes.some(0, 3);
  CHECK_NOTHROW(attend(narrow));
  --narrow.cols;
  CHECK_THROWS_AS(attend(narrow), std::invalid_argument);
  all.scores.soft_cap = 30;
  CHECK_THROWS_AS(attend(all.mixes.some(0, 3)), std::invalid_argument);
}

TEST_SUITE_END();
