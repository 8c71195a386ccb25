// Importance matrices in llama.cpp's formats.
#include "runtime/checkpoint/importance_file.hpp"

#include "runtime/checkpoint/gguf_file.hpp"
#include "runtime/checkpoint/gguf_writer.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include <cmath>
#include <cstring>
#include <functional>

using namespace troupe;
using namespace troupe::test;

namespace {

importance_table two_tensors() {
  importance_table table;
  table.tensors["blk.0.attn_q.weight"] = {{0.5f, 2, 0, 8}, {100}};
  table.tensors["blk.0.ffn_down_exps.weight"] = {{1, 2, 3, 0, 0, 0, 7, 8, 9}, {10, 0, 5}};
  table.text = "book.txt";
  table.chunks = 4;
  table.chunk_tokens = 512;
  return table;
}

/// Bytes of the older format.
struct older {
  std::string bytes;
  older& number(std::int32_t n) {
    bytes.append(reinterpret_cast<const char*>(&n), sizeof n);
    return *this;
  }
  older& text(const std::string& t) {
    number(static_cast<std::int32_t>(t.size()));
    bytes += t;
    return *this;
  }
  older& values(std::initializer_list<float> v) {
    number(static_cast<std::int32_t>(v.size()));
    for (const float x : v)
      bytes.append(reinterpret_cast<const char*>(&x), sizeof x);
    return *this;
  }
};

std::string importance_refusal(const std::string& bytes) {
  const temp_folder folder;
  write(folder.path() / "m.dat", bytes);
  auto said = failure_of([&] { read_importance(folder.path() / "m.dat"); });
  const auto at = said.find("m.dat: ");
  return at == said.npos ? said : said.substr(at + 7);
}

} // namespace

TEST_CASE("An importance matrix reads back as it was written, in both formats") {
  const temp_folder folder;
  const auto table = two_tensors();
  for (const char* name : {"m.gguf", "m.dat"}) {
    CAPTURE(name);
    const bool newer = std::string(name) == "m.gguf";
    write_importance(folder.path() / name, table);
    const auto read = read_importance(folder.path() / name);
    CHECK(read.text == "book.txt");
    CHECK(read.chunks == 4);
    CHECK(read.chunk_tokens == (newer ? 512 : 0));
    REQUIRE(read.tensors.size() == 2);
    for (const auto& [tensor, values] : table.tensors) {
      const auto* found = read.find(tensor);
      REQUIRE(found);
      for (std::size_t i = 0; i < values.mean_squares.size(); ++i)
        CHECK(found->mean_squares[i] == doctest::Approx(values.mean_squares[i]).epsilon(1e-6));
      if (newer)
        CHECK(found->counts == values.counts);
    }
  }
  CHECK(read_importance(folder.path() / "m.gguf").find("blk.1.attn_q.weight") == nullptr);
  // What llama.cpp looks for in the newer one: sums rather than means, and a count for each expert.
  const gguf_file file(folder.path() / "m.gguf");
  CHECK(file.metadata().string("general.type") == "imatrix");
  CHECK(file.metadata().strings("imatrix.datasets") == std::vector<std::string_view>{"book.txt"});
  CHECK(file.metadata().integer("imatrix.chunk_count", 0, 100) == 4);
  CHECK(file.metadata().integer("imatrix.chunk_size", 0, 1000) == 512);
  CHECK(file.tensors().at("blk.0.ffn_down_exps.weight.in_sum2").info.shape == std::vector<std::size_t>{3, 3});
  CHECK(file.tensors().at("blk.0.ffn_down_exps.weight.counts").info.shape == std::vector<std::size_t>{3, 1});
}

TEST_CASE("The older format has means times calls; the oldest files end behind the last tensor") {
  const temp_folder folder;
  const auto file = folder.path() / "m.dat";
  write(file, older().number(1).text("blk.0.attn_q.weight").number(4).values({2, 4, 0}).bytes);
  auto read = read_importance(file);
  CHECK(read.find("blk.0.attn_q.weight")->mean_squares == std::vector<float>{0.5f, 1, 0});
  CHECK(read.chunks == 0);
  write(file, older().number(1).text("a").number(0).values({2}).number(3).text("wiki").bytes);
  read = read_importance(file);
  CHECK(read.find("a")->mean_squares == std::vector<float>{2}); // never called: as it is
  CHECK(read.chunks == 3);
  CHECK(read.text == "wiki");
}

TEST_CASE("Damaged importance matrices are refused with a sentence") {
  CHECK(importance_refusal("").find("ends within") == 0);
  CHECK(importance_refusal("abc") == "ends within the number of entries (truncated, or no importance matrix)");
  CHECK(importance_refusal(older().number(0).bytes) == "the number of entries is 0, expected at least 1");
  CHECK(importance_refusal(older().number(-5).bytes) == "the number of entries is -5, expected at least 1");
  CHECK(importance_refusal(older().number(1).number(-1).bytes) ==
        "the length of the name of entry 0 is -1, expected at least 0");
  CHECK(importance_refusal(older().number(1).number(1 << 30).bytes) ==
        "the length of the name of entry 0 is 1073741824, expected at most 4096");
  CHECK(importance_refusal(older().number(1).text("\xff\xfe").bytes) == "the name of entry 0 is not valid UTF-8");
  CHECK(importance_refusal(older().number(1).text("a").number(1).number(0x7fffffff).bytes) ==
        "ends within the values of tensor `a` (truncated, or no importance matrix)");
  CHECK(importance_refusal(older().number(1).text("a").number(1).values({1, NAN}).bytes) ==
        "tensor `a` has the mean square nan, expected a number that is not negative");
  CHECK(importance_refusal(older().number(1).text("a").number(1).values({-1}).bytes) ==
        "tensor `a` has the mean square -1.000000, expected a number that is not negative");
  CHECK(importance_refusal(older().number(2).text("a").number(1).values({1}).text("a").number(1).values({1}).bytes) ==
        "tensor `a` is there twice");
  const auto whole = older().number(1).text("a").number(1).values({1, 2, 3}).number(1).text("wiki").bytes;
  for (std::size_t length = 0; length < whole.size(); ++length)
    if (length != whole.size() - 12 && length != whole.size() - 8) // where older files end
      CHECK(!importance_refusal(whole.substr(0, length)).empty());

  const temp_folder folder;
  const auto file = folder.path() / "m.gguf";
  const auto refused = [&](const std::function<void(gguf_writer&)>& fill, std::vector<std::vector<float>> values) {
    gguf_writer out;
    fill(out);
    out.write(file, [&](std::size_t i) { return std::as_bytes(std::span(values[i])); });
    auto said = failure_of([&] { read_importance(file); });
    return said.substr(std::min(said.size(), file.string().size() + 2));
  };
  CHECK(refused([](gguf_writer& out) { out.add("general.architecture", "llama"); }, {}) ==
        "`general.type` is missing, expected `imatrix`");
  CHECK(refused([](gguf_writer& out) { out.add("general.type", "model"); }, {}) ==
        "`general.type` is `model`, expected `imatrix`");
  const auto kind = [](gguf_writer& out) { out.add("general.type", "imatrix"); };
  CHECK(refused(kind, {}) == "has no sums (tensors that end in .in_sum2)");
  CHECK(refused(
          [&](gguf_writer& out) {
            kind(out);
            out.add_tensor("a.in_sum2", tensor_type::f32, {1, 2});
          },
          {{1, 2}}) == "tensor `a.counts` is missing");
  for (const float count : {-1.0f, NAN, INFINITY, 4e30f})
    CHECK(refused(
            [&](gguf_writer& out) {
              kind(out);
              out.add_tensor("a.in_sum2", tensor_type::f32, {1, 1});
              out.add_tensor("a.counts", tensor_type::f32, {1, 1});
            },
            {{1}, {count}}) ==
          "tensor `a.counts` has the count " + std::to_string(count) + ", expected a number from 0 to 1e15");
  CHECK(refused(
          [&](gguf_writer& out) {
            kind(out);
            out.add_tensor("a.stats", tensor_type::f32, {1, 2});
          },
          {{1, 2}}) == "has no sums (tensors that end in .in_sum2)");
  CHECK(refused(
          [&](gguf_writer& out) {
            kind(out);
            out.add_tensor("a.in_sum2", tensor_type::f32, {1, 3});
            out.add_tensor("a.counts", tensor_type::f32, {2, 1});
          },
          {{1, 2, 3}, {1, 1}}) ==
        "tensor `a.counts` has the shape [2, 1], and `a.in_sum2` [1, 3]; there must be a count for each matrix");
}
