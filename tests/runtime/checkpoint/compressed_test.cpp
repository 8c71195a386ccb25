// Checkpoints of compressed-tensors: packed integers, int8, FP4, and 2 of 4 weights.
#include "runtime/checkpoint/quantised/compressed_checkpoint.hpp"

#include "kernels/formats/e4m3.hpp"
#include "runtime/checkpoint/quantised/fp8_checkpoint.hpp"
#include "tests/runtime/checkpoint/memory_checkpoint.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include <cmath>

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::size_t ct_outputs = 6, ct_inputs = 64;
const std::string ct_stem = "model.layers.0.mlp.up_proj.", ct_weight = ct_stem + "weight";

int ct_code(std::size_t i, int levels) { return int(i * 29 % static_cast<std::size_t>(levels)) - levels / 2; }

/// Codes in words, by which compressed-tensors' versions differ where 32 is no multiple of `bits`.
template <class Code>
std::vector<std::uint32_t> ct_words(std::size_t count, std::size_t bits, bool dense, const Code& code) {
  const std::size_t per_word = 32 / bits;
  std::vector<std::uint32_t> words(dense ? (count * bits + 31) / 32 : (count + per_word - 1) / per_word);
  for (std::size_t i = 0; i < count; ++i)
    for (std::size_t b = 0; b < bits; ++b) {
      const auto at = dense ? i * bits + b : i / per_word * 32 + i % per_word * bits + b;
      const auto value = static_cast<std::uint32_t>(code(i) + (1 << (bits - 1)));
      words[at / 32] |= (value >> b & 1) << at % 32;
    }
  return words;
}

std::vector<float> ct_scales(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = 0.0078125f * float(1 + i % 5); // exact in every type
  return values;
}

memory_checkpoint packed_integers(int bits, std::size_t groups, bool dense = false) {
  memory_checkpoint stored;
  std::vector<std::uint32_t> words;
  for (std::size_t o = 0; o < ct_outputs; ++o)
    for (const auto word : ct_words(ct_inputs, static_cast<std::size_t>(bits), dense,
                                    [&](std::size_t i) { return ct_code(o * ct_inputs + i, 1 << bits); }))
      words.push_back(word);
  stored.put(ct_weight + "_packed", tensor_type::i32, {ct_outputs, words.size() / ct_outputs}, words);
  stored.put(ct_weight + "_scale", tensor_type::f32, {ct_outputs, groups}, ct_scales(ct_outputs * groups));
  stored.put(ct_weight + "_shape", tensor_type::i64, {2}, std::vector<std::int64_t>{ct_outputs, ct_inputs});
  stored.put("model.norm.weight", tensor_type::f32, {1}, std::vector<float>{1});
  return stored;
}

std::unique_ptr<const checkpoint> open_ct(const memory_checkpoint& stored, const std::vector<int>& bits = {4}) {
  return open_compressed(std::make_unique<memory_checkpoint>(stored), bits);
}

} // namespace

TEST_CASE("Packed integers of compressed-tensors hold what their scales and zero points say") {
  for (const int bits : {1, 2, 3, 4, 5, 6, 7, 8})
    for (const bool dense : {false, true})
      for (const std::size_t groups : {1, 2}) {
        CAPTURE(bits);
        CAPTURE(dense);
        CAPTURE(groups);
        auto stored = packed_integers(bits, groups, dense);
        const auto scales = ct_scales(ct_outputs * groups);
        auto opened = open_ct(stored, {bits, bits == 3 ? 2 : 3});
        CHECK(opened->tensors() == std::vector<std::string>{ct_weight, "model.norm.weight"});
        CHECK(opened->find(ct_weight)->type == (bits > 4 ? tensor_type::q8_0 : tensor_type::q4_0));
        auto weights = presented_weights(*opened, ct_weight);
        REQUIRE(weights.size() == ct_outputs * ct_inputs);
        for (std::size_t i = 0; i < weights.size(); ++i)
          CHECK(weights[i] == scales[i / (ct_inputs / groups)] * float(ct_code(i, 1 << bits)));

        // Zero points are packed along the outputs.
        std::vector<std::uint32_t> zeros;
        const auto zero = [&](std::size_t o, std::size_t g) {
          return int((o + 2 * g) % (bits < 3 ? 2 : 4)) - (bits < 3 ? 1 : 2);
        };
        for (std::size_t g = 0; g < groups; ++g) {
          const auto column = ct_words(ct_outputs, static_cast<std::size_t>(bits), dense,
                                       [&](std::size_t o) { return zero(o, g); });
          zeros.resize(column.size() * groups);
          for (std::size_t r = 0; r < column.size(); ++r)
            zeros[r * groups + g] = column[r];
        }
        stored.put(ct_weight + "_zero_point", tensor_type::i32, {zeros.size() / groups, groups}, zeros);
        opened = open_ct(stored, {bits});
        CHECK(opened->find(ct_weight)->type == (bits > 4 ? tensor_type::f16 : tensor_type::q4_1));
        weights = presented_weights(*opened, ct_weight);
        for (std::size_t i = 0; i < weights.size(); ++i) {
          const auto o = i / ct_inputs, g = i % ct_inputs / (ct_inputs / groups);
          CHECK(std::abs(weights[i] - scales[o * groups + g] * float(ct_code(i, 1 << bits) - zero(o, g))) < 2e-3);
        }
      }
}

TEST_CASE("Packed integers whose shape leaves open how many bits they have are refused by tensor") {
  const std::string at = "m.safetensors: tensor `" + ct_weight + "_packed` has the shape ";
  const auto seven = packed_integers(7, 1); // as many words as 8 bits take
  CHECK(failure_of([&] {
          open_ct(seven, {8, 7});
        }) == at + "[6, 16], which may hold several rows of 64 codes of 7 or 8 bits");
  CHECK(failure_of([&] {
          open_ct(packed_integers(3, 1, true), {2, 4});
        }) == at + "[6, 6], which holds no rows of 64 codes of 2 or 4 bits");
}

TEST_CASE("Groups whose inputs are not in order are expanded; an order that says nothing is none") {
  auto stored = packed_integers(4, 2);
  const auto scales = ct_scales(ct_outputs * 2);
  std::vector<std::int32_t> order(ct_inputs, -1);
  stored.put(ct_weight + "_g_idx", tensor_type::i32, {ct_inputs}, order);
  CHECK(open_ct(stored)->find(ct_weight)->type == tensor_type::q4_0);
  for (std::size_t i = 0; i < ct_inputs; ++i)
    order[i] = static_cast<std::int32_t>(i / 32);
  stored.put(ct_weight + "_g_idx", tensor_type::i32, {ct_inputs}, order);
  CHECK(open_ct(stored)->find(ct_weight)->type == tensor_type::q4_0);
  for (std::size_t i = 0; i < ct_inputs; ++i)
    order[i] = static_cast<std::int32_t>(i % 2);
  stored.put(ct_weight + "_g_idx", tensor_type::i32, {ct_inputs}, order);
  const auto opened = open_ct(stored);
  CHECK(opened->find(ct_weight)->type == tensor_type::f32);
  const auto weights = presented_weights(*opened, ct_weight);
  for (std::size_t i = 0; i < weights.size(); ++i)
    CHECK(weights[i] == scales[i / ct_inputs * 2 + i % 2] * float(ct_code(i, 16)));
  order[9] = 2;
  stored.put(ct_weight + "_g_idx", tensor_type::i32, {ct_inputs}, order);
  CHECK(failure_of([&] { open_ct(stored); }) ==
        "m.safetensors: tensor `" + ct_weight + "_g_idx` names the group 2, expected one of 2");
}

TEST_CASE("int8 for int8 activations has a scale for each output, or one; scales of activations are left out") {
  memory_checkpoint stored;
  std::vector<std::int8_t> codes(ct_outputs * ct_inputs);
  for (std::size_t i = 0; i < codes.size(); ++i)
    codes[i] = static_cast<std::int8_t>(ct_code(i, 256));
  stored.put(ct_weight, tensor_type::i8, {ct_outputs, ct_inputs}, codes);
  stored.put(ct_stem + "input_scale", tensor_type::f32, {1}, std::vector<float>{1});
  for (const std::size_t count : {ct_outputs, std::size_t(1)}) {
    stored.put(ct_weight + "_scale", tensor_type::f32, {count, 1}, ct_scales(count));
    if (count == 1)
      stored.put(ct_weight + "_scale", tensor_type::f32, {1}, ct_scales(1));
    const auto opened = open_ct(stored);
    CHECK(opened->tensors() == std::vector<std::string>{ct_weight});
    CHECK(opened->find(ct_weight)->type == tensor_type::q8_0);
    const auto weights = presented_weights(*opened, ct_weight);
    for (std::size_t i = 0; i < weights.size(); ++i)
      CHECK(weights[i] == ct_scales(ct_outputs)[count == 1 ? 0 : i / ct_inputs] * float(ct_code(i, 256)));
  }
  stored.put(ct_weight + "_zero_point", tensor_type::i8, {3}, std::vector<char>(3));
  CHECK(failure_of([&] { open_ct(stored); }) ==
        "m.safetensors: tensor `" + ct_weight + "_zero_point` has the shape [3], expected as many as there are scales");
}

TEST_CASE("NVFP4 is expanded, MXFP4 keeps its blocks") {
  constexpr float values[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  std::vector<std::uint8_t> codes(ct_outputs * ct_inputs / 2);
  for (std::size_t i = 0; i < codes.size(); ++i)
    codes[i] = static_cast<std::uint8_t>(i * 37 + 5);
  const auto value = [&](std::size_t i) { return values[i % 2 == 0 ? codes[i / 2] % 16 : codes[i / 2] / 16]; };
  memory_checkpoint nv;
  std::vector<std::uint8_t> scales(ct_outputs * ct_inputs / 16);
  for (std::size_t i = 0; i < scales.size(); ++i)
    scales[i] = kernels::to_e4m3(float(1 + i % 9) * 16);
  nv.put(ct_weight + "_packed", tensor_type::u8, {ct_outputs, ct_inputs / 2}, codes);
  nv.put(ct_weight + "_scale", tensor_type::f8_e4m3, {ct_outputs, ct_inputs / 16}, scales);
  nv.put(ct_weight + "_global_scale", tensor_type::f32, {1}, std::vector<float>{3000});
  nv.put(ct_stem + "input_global_scale", tensor_type::f32, {1}, std::vector<float>{3000});
  auto opened = open_ct(nv);
  CHECK(opened->tensors() == std::vector<std::string>{ct_weight});
  CHECK(opened->find(ct_weight)->type == tensor_type::f16);
  auto weights = presented_weights(*opened, ct_weight);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double want = double(value(i)) * kernels::from_e4m3(scales[i / 16]) / 3000;
    CHECK(std::abs(weights[i] - want) <= std::abs(want) * 0x1p-10);
  }
  nv.put(ct_weight + "_global_scale", tensor_type::f32, {1}, std::vector<float>{0});
  CHECK(failure_of([&] { open_ct(nv); }) == "m.safetensors: tensor `" + ct_weight + "_global_scale` is no scale");
  nv.put(ct_weight + "_global_scale", tensor_type::f32, {1}, std::vector<float>{1});
  nv.put(ct_weight + "_scale", tensor_type::f8_e4m3, {ct_outputs, 3}, std::vector<char>(3 * ct_outputs));
  CHECK(failure_of([&] { open_ct(nv); }) ==
        "m.safetensors: tensor `" + ct_weight + "_scale` has the shape [6, 3], expected [6, 4]");

  memory_checkpoint mx;
  std::vector<std::uint8_t> exponents(ct_outputs * ct_inputs / 32);
  for (std::size_t i = 0; i < exponents.size(); ++i)
    exponents[i] = static_cast<std::uint8_t>(120 + i);
  mx.put(ct_weight + "_packed", tensor_type::u8, {ct_outputs, ct_inputs / 2}, codes);
  mx.put(ct_weight + "_scale", tensor_type::u8, {ct_outputs, ct_inputs / 32}, exponents);
  opened = open_ct(mx);
  CHECK(opened->find(ct_weight)->type == tensor_type::mxfp4);
  weights = presented_weights(*opened, ct_weight);
  for (std::size_t i = 0; i < weights.size(); ++i)
    CHECK(weights[i] == value(i) * std::ldexp(1.0f, int(exponents[i / 32]) - 127));
}

namespace {

/// Every way to keep 2 of 4, with values [rows, inputs / 2], and where they belong.
struct kept_weights {
  std::size_t inputs;
  std::vector<std::uint8_t> mask;
  std::vector<float> kept, whole;

  explicit kept_weights(std::size_t inputs)
    : inputs(inputs), mask(ct_outputs * ((inputs + 7) / 8)), whole(ct_outputs * inputs) {
    constexpr unsigned pairs[6] = {0b0011, 0b0101, 0b1001, 0b0110, 0b1010, 0b1100};
    for (std::size_t r = 0; r < ct_outputs; ++r)
      for (std::size_t first = 0; first < inputs; first += 4) {
        const auto pair = pairs[(r + first / 4) % 6];
        mask[r * ((inputs + 7) / 8) + first / 8] |= static_cast<std::uint8_t>(pair << first % 8);
        for (std::size_t i = 0; i < 4; ++i)
          if (pair >> i & 1)
            kept.push_back(whole[r * inputs + first + i] = float(int(kept.size() * 7 % 15) - 7) + 0.5f);
      }
  }

  /// As compressed-tensors 0.12 calls them, or older versions.
  void put(memory_checkpoint& to, const std::string& stem, bool column) const {
    to.put(stem + "compressed", tensor_type::f32, {ct_outputs, inputs / 2}, kept);
    to.put(stem + "bitmask", tensor_type::u8, {ct_outputs, (inputs + 7) / 8}, mask);
    to.put(stem + "shape", tensor_type::i64, column ? std::vector<std::size_t>{2, 1} : std::vector<std::size_t>{2},
           std::vector<std::int64_t>{ct_outputs, std::int64_t(inputs)});
  }
};

} // namespace

TEST_CASE("Of each four weights, the two that are stored stay alone, and come to their places") {
  for (const auto& [stem, column] : {std::pair{ct_stem, true}, {ct_weight + ".", false}})
    for (const std::size_t inputs : {std::size_t(64), std::size_t(12)}) {
      CAPTURE(stem);
      CAPTURE(inputs);
      memory_checkpoint stored;
      const kept_weights weights(inputs);
      weights.put(stored, stem, column);
      const auto opened = open_ct(stored);
      CHECK(opened->tensors() == std::vector<std::string>{ct_weight});
      CHECK(opened->find(ct_weight)->type == (inputs == 64 ? tensor_type::f32_24 : tensor_type::f32));
      CHECK(opened->find(ct_weight)->bytes == (inputs == 64 ? ct_outputs * 64 / 8 * 17 : ct_outputs * 12 * 4));
      CHECK(presented_weights(*opened, ct_weight) == weights.whole);
    }
}

TEST_CASE("int8 and fp8 of which 2 of 4 are stored get their zeros back") {
  const kept_weights weights(64);
  memory_checkpoint stored;
  weights.put(stored, ct_stem, true);
  std::vector<std::int8_t> codes;
  for (const float v : weights.kept)
    codes.push_back(static_cast<std::int8_t>(2 * v));
  stored.put(ct_stem + "compressed", tensor_type::i8, {ct_outputs, 32}, codes);
  CHECK(failure_of([&] { open_ct(stored); }) == "m.safetensors: tensor `" + ct_weight + "_scale` is missing");
  stored.put(ct_weight + "_scale", tensor_type::f32, {ct_outputs, 1}, std::vector<float>(ct_outputs, 0.5f));
  auto opened = open_ct(stored);
  CHECK(opened->tensors() == std::vector<std::string>{ct_weight});
  CHECK(opened->find(ct_weight)->type == tensor_type::q8_0);
  CHECK(presented_weights(*opened, ct_weight) == weights.whole);

  std::vector<std::uint8_t> narrow;
  for (const float v : weights.kept)
    narrow.push_back(kernels::to_e4m3(2 * v));
  stored.put(ct_stem + "compressed", tensor_type::f8_e4m3, {ct_outputs, 32}, narrow);
  opened = open_fp8(open_ct(stored));
  CHECK(opened->find(ct_weight)->type == tensor_type::fp8);
  CHECK(presented_weights(*opened, ct_weight) == weights.whole);
}

TEST_CASE("Masks that do not keep 2 of every 4, and parts of other shapes, are refused by tensor") {
  kept_weights weights(64);
  memory_checkpoint stored;
  const auto refused = [&] { return failure_of([&] { presented_weights(*open_ct(stored), ct_weight); }); };
  const std::string at = "m.safetensors: tensor `" + ct_stem;
  weights.mask[8] |= 0xf0; // fours that make up for each other
  weights.mask[9] &= 0xf0;
  weights.put(stored, ct_stem, true);
  CHECK(refused() == at + "bitmask` keeps 4 of the four weights from 4 on in row 1, expected 2");
  stored.put(ct_stem + "compressed", tensor_type::i32, {ct_outputs, 32}, std::vector<std::int32_t>(ct_outputs * 32));
  CHECK(refused() == at + "compressed` is I32 [6, 32], expected F32 or BF16 or F16 or I8 or F8_E4M3");
  stored.drop(ct_stem + "compressed");
  CHECK(refused() == at + "compressed` is missing");
  kept_weights(64).put(stored, ct_stem, true);
  stored.put(ct_stem + "shape", tensor_type::i64, {2}, std::vector<std::int64_t>{6, -64});
  CHECK(refused() == at + "shape` says the size -64, expected 1 to 2^30");
  stored.put(ct_stem + "shape", tensor_type::i64, {2}, std::vector<std::int64_t>{6, 62});
  CHECK(refused() == at + "shape` says 62 inputs, expected a multiple of 4");
  stored.put(ct_stem + "shape", tensor_type::i64, {1, 2}, std::vector<std::int64_t>{6, 64});
  CHECK(refused() == at + "shape` has the shape [1, 2], expected [2]");
  stored.put(ct_stem + "shape", tensor_type::i64, {2, 1}, std::vector<std::int64_t>{6, 128});
  CHECK(refused() == at + "compressed` has the shape [6, 32], expected [6, 64]");
  kept_weights(64).put(stored, ct_stem, true);
  stored.put(ct_stem + "row_offsets", tensor_type::i64, {6}, std::vector<std::int64_t>(6));
  CHECK(refused().starts_with(at + "row_offsets` is there: weights that are zero anywhere (sparse-bitmask)"));
}

TEST_CASE("Hostile checkpoints of compressed-tensors are refused by tensor") {
  const std::string at = "m.safetensors: tensor `" + ct_weight;
  auto stored = packed_integers(4, 2);
  const auto refused = [&] { return failure_of([&] { presented_weights(*open_ct(stored), ct_weight); }); };
  CHECK(refused().empty());
  stored.drop(ct_weight + "_scale");
  CHECK(refused() == at + "_scale` is missing");
  stored.put(ct_weight + "_scale", tensor_type::f32, {ct_outputs, 3}, std::vector<float>(18));
  CHECK(refused() == at + "_scale` has the shape [6, 3], expected 6 rows of scales for groups that divide 64 inputs");
  stored.put(ct_weight + "_scale", tensor_type::i32, {ct_outputs, 2}, std::vector<std::int32_t>(12));
  CHECK(refused() == at + "_scale` is I32, expected F32, BF16 or F16");
  stored = packed_integers(4, 2);
  stored.drop(ct_weight + "_shape");
  CHECK(refused() == at + "_shape` is missing");
  stored.put(ct_weight + "_shape", tensor_type::i64, {2}, std::vector<std::int64_t>{ct_outputs, 1 << 20});
  CHECK(refused() == at + "_packed` has the shape [6, 8], which holds no rows of 1048576 codes of 4 bits");
  stored.put(ct_weight + "_shape", tensor_type::i64, {2}, std::vector<std::int64_t>{7, ct_inputs});
  CHECK(refused() == at + "_packed` has the shape [6, 8], which is none of [7, 64] packed");
  stored.put(ct_weight + "_shape", tensor_type::i64, {3}, std::vector<std::int64_t>{6, 64, 1});
  CHECK(refused() == at + "_shape` has the shape [3], expected [2]");
  stored.put(ct_weight + "_shape", tensor_type::i32, {2}, std::vector<std::int32_t>{6, 64});
  CHECK(refused() == at + "_shape` is I32 [2], expected I64");
  stored = packed_integers(4, 2);
  stored.put(ct_weight + "_zero_point", tensor_type::i32, {6, 2}, std::vector<std::int32_t>(12));
  CHECK(refused() == at + "_zero_point` has the shape [6, 2], expected [1, 2]");
  stored = packed_integers(4, 2);
  stored.put(ct_weight, tensor_type::f32, {1}, std::vector<float>{1});
  CHECK(refused() == at + "` is there beside `" + ct_weight + "_packed`");
}
