#include "kernels/formats/weight_groups.hpp"
#include "tests/rounds.hpp"
#include "tests/runtime/checkpoint/gguf_test_data.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include "runtime/import/gguf_model.hpp"
#include "runtime/import/model_source.hpp"

#include <cmath>
#include <random>

using namespace troupe;
using namespace troupe::test;

namespace {

/// The error message for a file.
std::string said(const std::string& file) {
  return failure_of([&] { read_gguf(bytes_of(file), "m.gguf"); });
}

std::string said(const gguf_text& file) { return said(file.str()); }

} // namespace

TEST_CASE("GGUF: metadata of every type, nested arrays and tensors are read, in versions 2 and 3") {
  for (std::uint32_t version : {2u, 3u}) {
    gguf_text text{{entry("u8", gguf_type::u8, std::uint8_t{200}), entry("i8", gguf_type::i8, std::int8_t{-3}),
                    entry("u16", gguf_type::u16, std::uint16_t{60000}),
                    entry("i16", gguf_type::i16, std::int16_t{-300}), entry("u32", gguf_type::u32, 4'000'000'000u),
                    entry("i32", gguf_type::i32, -70000), entry("u64", gguf_type::u64, std::uint64_t{1} << 40),
                    entry("i64", gguf_type::i64, -(std::int64_t{1} << 40)), entry("f32", gguf_type::f32, 0.5f),
                    entry("f64", gguf_type::f64, 0.25), entry("yes", gguf_type::boolean, char{1}), entry("text", "é"),
                    array_entry("numbers", gguf_type::i32, 2, packed(7) + packed(-8)),
                    array_entry("words", gguf_type::string, 2, packed_string("a") + packed_string("")),
                    array_entry("none", gguf_type::string, 0, ""),
                    array_entry("nested", gguf_type::array, 2,
                                packed_type(gguf_type::u8) + packed(std::uint64_t{1}) + "x" +
                                  packed_type(gguf_type::string) + packed(std::uint64_t{1}) + packed_string("y")),
                    array_entry("per layer", gguf_type::u32, 3, packed(5) + packed(5) + packed(5))},
                   {tensor_entry("a", {32, 3}, 8, 0), tensor_entry("b", {4}, 0, 128)},
                   128 + 16,
                   version};
    const auto file = text.str();
    const auto read = read_gguf(bytes_of(file), "m.gguf");
    const auto& m = read.metadata;
    constexpr auto low = INT64_MIN, high = INT64_MAX;
    CHECK(m.size() == text.keys.size());
    CHECK(m.integer("u8", low, high) == 200);
    CHECK(m.integer("i8", low, high) == -3);
    CHECK(m.integer("u16", low, high) == 60000);
    CHECK(m.integer("i16", low, high) == -300);
    CHECK(m.integer("u32", low, high) == 4'000'000'000);
    CHECK(m.integer("i32", low, high) == -70000);
    CHECK(m.integer("u64", low, high) == std::int64_t{1} << 40);
    CHECK(m.integer("i64", low, high) == -(std::int64_t{1} << 40));
    CHECK(m.integer("per layer", low, high) == 5);
    CHECK(m.number("f32", 0, 1) == 0.5);
    CHECK(m.number("f64", 0, 1) == 0.25);
    CHECK(m.number("i8", -10, 10) == -3);
    CHECK(m.boolean("yes") == true);
    CHECK(m.string("text") == "é");
    CHECK(m.integers("numbers") == std::vector<std::int32_t>{7, -8});
    CHECK(m.strings("words") == std::vector<std::string_view>{"a", ""});
    CHECK(m.strings("none")->empty());
    CHECK_FALSE(m.integer("absent", low, high));
    CHECK(m.find("nested")->count == 2);
    REQUIRE(read.tensors.size() == 2);
    const auto& a = read.tensors.at("a");
    CHECK(a.info.type == tensor_type::q8_0);
    CHECK(a.info.shape == std::vector<std::size_t>{3, 32});
    CHECK(a.info.bytes == 3 * 34);
    CHECK(a.offset == file.size() - 128 - 16);
    CHECK(read.tensors.at("b").offset == file.size() - 16);
  }
}

TEST_CASE("GGUF: malformed files are refused naming file, key or tensor, with what was found and expected") {
  CHECK(said("") == "m.gguf: not a GGUF file: it does not begin with `GGUF`");
  CHECK(said("GGML1234") == "m.gguf: not a GGUF file: it does not begin with `GGUF`");
  CHECK(said("GGUF") == "m.gguf: truncated: the version takes 4 bytes from byte 4, but only 0 are left");
  CHECK(said(gguf_text{{}, {}, 0, 1}) == "m.gguf: its version is 1, supported are 2 and 3");
  CHECK(said(gguf_text{{}, {}, 0, 3u << 24}) ==
        "m.gguf: its numbers are big-endian, only little-endian files are supported");
  const auto header = [](std::uint64_t tensors, std::uint64_t keys) {
    return "GGUF" + packed(3u) + packed(tensors) + packed(keys);
  };
  CHECK(said(header(UINT64_MAX, 0)) ==
        "m.gguf: truncated: the length of the name of tensor 0 of 18446744073709551615 "
        "takes 8 bytes from byte 24, but only 0 are left");
  CHECK(said(header(0, UINT64_MAX)).find("metadata key 0 of 18446744073709551615") != std::string::npos);
  CHECK(said(header(0, 1) + packed(UINT64_MAX)).find("takes 18446744073709551615 bytes from byte 32") !=
        std::string::npos);
  CHECK(said(gguf_text{{packed_string("\xff") + packed_type(gguf_type::u8) + "x"}, {}}) ==
        "m.gguf: metadata key 0 of 1 is not valid UTF-8");
  CHECK(said(gguf_text{{packed_string("k") + packed(13u)}, {}}) ==
        "m.gguf: `k` has the unknown type 13, types from 0 to 12 are known");
  CHECK(said(gguf_text{{entry("k", gguf_type::boolean, char{2})}, {}}) ==
        "m.gguf: `k` is a boolean of value 2, expected 0 or 1");
  CHECK(said(gguf_text{{entry("k", gguf_type::u8, 'a'), entry("k", gguf_type::u8, 'a')}, {}}) ==
        "m.gguf: `k` is there twice");
  CHECK(said(header(0, 1) + array_entry("k", gguf_type::f64, UINT64_MAX / 4, "")) ==
        "m.gguf: `k` has 4611686018427387903 elements of 8 bytes, but only 0 bytes are left");
  CHECK(said(header(0, 1) + array_entry("k", gguf_type::string, UINT64_MAX, "")) ==
        "m.gguf: `k` has 18446744073709551615 elements, but only 0 bytes are left");
  CHECK(said(header(0, 1) + array_entry("k", gguf_type::string, 2, packed(std::uint64_t{3}) + "abc12345")) ==
        "m.gguf: truncated: the length of `k` takes 8 bytes from byte 60, but only 5 are left");
  std::string nested = packed_type(gguf_type::u8) + packed(std::uint64_t{0});
  for (int i = 0; i < 5; ++i)
    nested = packed_type(gguf_type::array) + packed(std::uint64_t{1}) + nested;
  CHECK(said(gguf_text{{packed_string("k") + packed_type(gguf_type::array) + nested}, {}}) ==
        "m.gguf: `k` nests arrays more than 4 deep");
  CHECK(said(gguf_text{{entry("general.alignment", gguf_type::u32, 48u)}, {}}) ==
        "m.gguf: `general.alignment` must be a power of 2, found 48");
  CHECK(said(gguf_text{{entry("general.alignment", gguf_type::u32, 0u)}, {}}) ==
        "m.gguf: `general.alignment` must be from 8 to 1048576, found 0");
  const auto tensors = [](std::vector<std::string> list, std::size_t data) {
    return said(gguf_text{{}, std::move(list), data});
  };
  CHECK(tensors({tensor_entry("t", {}, 0, 0)}, 0) == "m.gguf: tensor `t` has 0 dimensions, expected 1 to 4");
  CHECK(tensors({tensor_entry("t", {1, 1, 1, 1, 1}, 0, 0)}, 4) ==
        "m.gguf: tensor `t` has 5 dimensions, expected 1 to 4");
  CHECK(tensors({tensor_entry("t", {256}, 31, 0)}, 256)
          .starts_with("m.gguf: tensor `t` is stored as Q4_0_4_4, supported are F32, "));
  CHECK(
    tensors({tensor_entry("t", {256}, 24, 0)}, 256).starts_with("m.gguf: tensor `t` is stored as I8, supported are"));
  CHECK(tensors({tensor_entry("t", {256}, 4711, 0)}, 256)
          .starts_with("m.gguf: tensor `t` is stored as the unknown type 4711, supported are"));
  CHECK(tensors({tensor_entry("t", {48, 2}, 8, 0)}, 256) ==
        "m.gguf: tensor `t` has rows of 48 weights, expected a multiple of the 32 in a block of Q8_0");
  CHECK(tensors({tensor_entry("t", {128}, 12, 0)}, 256) ==
        "m.gguf: tensor `t` has rows of 128 weights, expected a multiple of the 256 in a block of Q4_K");
  CHECK(tensors({tensor_entry("t", {128}, 16, 0)}, 256) ==
        "m.gguf: tensor `t` has rows of 128 weights, expected a multiple of the 256 in a block of IQ2_XXS");
  CHECK(tensors({tensor_entry("t", {std::uint64_t{1} << 32, std::uint64_t{1} << 32}, 0, 0)}, 4) ==
        "m.gguf: tensor `t` has the shape [4294967296, 4294967296], which is more than memory can hold");
  CHECK(tensors({tensor_entry("t", {4}, 0, 8)}, 64) == "m.gguf: tensor `t` begins at 8, expected a multiple of 32");
  CHECK(tensors({tensor_entry("t", {9}, 0, 0)}, 32) ==
        "m.gguf: tensor `t` takes 36 bytes from 0, but the file holds 32 bytes of tensors (truncated?)");
  CHECK(tensors({tensor_entry("t", {1}, 0, UINT64_MAX / 32 * 32)}, 32).find("(truncated?)") != std::string::npos);
  CHECK(tensors({tensor_entry("t", {16}, 0, 0), tensor_entry("u", {8}, 0, 32)}, 64) ==
        "m.gguf: tensor `u` begins at 32, inside another tensor that ends at 64");
  CHECK(tensors({tensor_entry("t", {1}, 0, 0), tensor_entry("t", {1}, 0, 32)}, 64) ==
        "m.gguf: tensor `t` is there twice");
}

TEST_CASE("GGUF: metadata of the wrong kind or out of range is refused naming the key") {
  const auto file = gguf_text{
    {entry("text", "x"), entry("n", gguf_type::u64, UINT64_MAX), entry("nan", gguf_type::f32, NAN),
     array_entry("mixed", gguf_type::u32, 2, packed(1u) + packed(2u)), entry("bad", "\xc3"),
     array_entry("bad words", gguf_type::string, 1, packed_string("\xff"))},
    {}}.str();
  const auto m = read_gguf(bytes_of(file), "m.gguf").metadata;
  CHECK(failure_of([&] { m.integer("text", 0, 1); }) == "m.gguf: `text` must be an integer, found string");
  CHECK(failure_of([&] { m.integer("n", 0, 9); }) == "m.gguf: `n` must be from 0 to 9, found 18446744073709551615");
  CHECK(failure_of([&] { m.integer("mixed", 0, 9); }) ==
        "m.gguf: `mixed` differs from layer to layer, which is not supported");
  CHECK(failure_of([&] { m.number("nan", 0, 0.5); }) == "m.gguf: `nan` must be from 0 to 0.5, found nan");
  CHECK(failure_of([&] { m.number("text", 0, 1); }) == "m.gguf: `text` must be a number, found string");
  CHECK(failure_of([&] { m.boolean("n"); }) == "m.gguf: `n` must be a boolean, found u64");
  CHECK(failure_of([&] { m.string("n"); }) == "m.gguf: `n` must be a string, found u64");
  CHECK(failure_of([&] { m.string("bad"); }) == "m.gguf: `bad` is not valid UTF-8");
  CHECK(failure_of([&] { m.strings("mixed"); }) ==
        "m.gguf: `mixed` must be an array of strings, found an array of u32");
  CHECK(failure_of([&] { m.strings("bad words"); }) ==
        "m.gguf: `bad words` holds text that is not valid UTF-8 at index 0");
  CHECK(failure_of([&] { m.floats("mixed"); }) == "m.gguf: `mixed` must be an array of f32, found an array of u32");
}

TEST_CASE("GGUF: a file with any bytes changed is read or refused") {
  std::mt19937 random(11);
  const temp_folder folder;
  const auto file = folder.path() / "m.gguf";
  int refused = 0, read = 0;
  for (const char* name : {"spm-vocab.gguf", "blocks.gguf", "mixed.gguf"}) {
    const auto original = content(data() / "gguf" / name);
    const auto header = std::min<std::size_t>(original.size(), 20'000);
    for (int round = 0; round < rounds(1000); ++round) {
      auto text = original;
      // Mostly numbers near the start, which is dense with them; sometimes the file ends early.
      for (int changes = 1 + static_cast<int>(random() % 4); changes > 0; --changes) {
        const auto at = random() % (random() % 2 ? std::min<std::size_t>(header, 1200) : header);
        text[at] = random() % 2 ? static_cast<char>(random()) : "\0\1\x7f\x80\xff"[random() % 5];
      }
      if (random() % 4 == 0)
        text.resize(random() % text.size());
      write(file, text);
      try {
        const auto source = open_gguf(file);
        for (const auto& tensor : source.tensors->tensors())
          (void)source.tensors->read(tensor);
        ++read;
      } catch (const failure& f) {
        CHECK(std::string_view(f.what()).starts_with(file.string()));
        ++refused;
      }
      try {
        const gguf_file opened(file);
        (void)make_gguf_tokenizer(opened)->encode("Hello <s> world", true);
        (void)make_gguf_chat_template(opened);
      } catch (const failure&) {
      }
    }
  }
  CHECK(refused > 100);
  CHECK(read > 10);
}

TEST_CASE("Quantised blocks of every format expand to the values of ggml's reference, bit for bit") {
  const gguf_file file(data() / "gguf/blocks.gguf");
  int formats = 0;
  for (const auto& [name, tensor] : file.tensors()) {
    const auto format = *weight_format_of(tensor.info.type);
    if (kernels::is_float(format))
      continue;
    CAPTURE(name);
    CHECK(name == to_string(tensor.info.type));
    const auto& expected = file.tensors().at(name + ".f32");
    const auto count = expected.info.bytes / sizeof(float);
    CHECK(count == 5 * kernels::block_inputs(format));
    CHECK(tensor.info.bytes == 5 * kernels::block_bytes(format));
    std::vector<float> got(count), wanted(count);
    std::memcpy(wanted.data(), file.bytes_of(expected).data(), expected.info.bytes);
    kernels::expand(format, file.bytes_of(tensor).data(), 0, count, got.data());
    std::size_t different = 0;
    for (std::size_t i = 0; i < count; ++i)
      different += std::memcmp(&got[i], &wanted[i], sizeof(float)) != 0;
    CHECK(different == 0);
    ++formats;
  }
  CHECK(formats == std::ranges::count_if(kernels::weight_formats, [](auto& f) { return has_groups(f.format); }));
}
