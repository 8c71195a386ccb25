#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/support/json/json.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include <cstring>
#include <random>

using namespace troupe;
using namespace troupe::test;

namespace {

safetensors_header header_of(const std::string& file) {
  return read_safetensors_header(std::as_bytes(std::span(file)), "m.safetensors");
}

/// `"name": {...}` of an F32 tensor.
std::string entry(const std::string& name, const std::string& shape, const std::string& offsets,
                  const std::string& type = "F32") {
  return std::string("\"")
    .append(name)
    .append(R"(": {"dtype": ")")
    .append(type)
    .append(R"(", "shape": )")
    .append(shape)
    .append(R"(, "data_offsets": )")
    .append(offsets)
    .append("}");
}

/// A header of these entries.
std::string header(std::initializer_list<std::string> entries) {
  std::string text = "{";
  for (const auto& e : entries)
    text.append(text.size() > 1 ? "," : "").append(e);
  return text.append("}");
}

const std::string two = header({entry("a", "[2]", "[0,8]"), entry("b", "[1,3]", "[8,20]")});

} // namespace

TEST_CASE("A well-formed safetensors header gives types, shapes and offsets into the file") {
  const auto read = header_of(safetensors(two, 20));
  REQUIRE(read.size() == 2);
  CHECK(read.at("b").info.type == tensor_type::f32);
  CHECK(read.at("b").info.shape == std::vector<std::size_t>{1, 3});
  CHECK(read.at("b").info.bytes == 12);
  CHECK(read.at("b").offset == 8 + two.size() + 8);
}

TEST_CASE("Unusual but valid safetensors headers are read") {
  CHECK(header_of(safetensors("{}", 0)).empty());
  CHECK(header_of(safetensors(two + "     ", 20)).size() == 2); // padded, as writers do for alignment
  CHECK(header_of(safetensors(R"({"__metadata__": {"format": "pt"}})", 0)).empty());
  const auto scalars = header_of(safetensors(
    header({entry("s", "[]", "[0,4]"), entry("none", "[0,5]", "[0,0]"), entry("tail", "[7,0]", "[4,4]")}), 4));
  CHECK(scalars.at("s").info.shape.empty());
  CHECK(scalars.at("none").info.bytes == 0);
  const auto types = header_of(
    safetensors(header({entry("b", "[3]", "[0,3]", "BOOL"), entry("q", "[2]", "[3,19]", "I64"),
                        entry("h", "[1]", "[19,21]", "BF16")}),
                21));
  CHECK(types.at("q").info.type == tensor_type::i64);
}

TEST_CASE("Every malformed safetensors header is refused with a sentence that says what is wrong") {
  struct corruption {
    std::string file;
    std::string message; // part of it
  };
  const auto with = [](const std::string& entries, std::size_t data) { return safetensors(header({entries}), data); };
  std::string huge = safetensors(two, 20), beyond = huge, negative = huge, cut = huge, cut_header = huge;
  huge.replace(0, 8, std::string("\x01\xe1\xf5\x05\0\0\0\0", 8)); // 100'000'001
  beyond.replace(0, 8, std::string("\xff\xff\0\0\0\0\0\0", 8));
  negative.replace(0, 8, std::string(8, '\xff'));
  cut.pop_back();
  cut_header.resize(40);
  const corruption table[] = {
    {"", "0 bytes, at least 8 expected"},
    {std::string(7, '\0'), "7 bytes, at least 8 expected"},
    {huge, "a header of 100000001 bytes, at most 100000000"},
    {negative, "a header of 18446744073709551615 bytes"},
    {beyond, "truncated: a header of 65535 bytes, but only"},
    {cut_header, "truncated: a header of"},
    {cut, "tensor `b`: its bytes end at 20, but the file holds 19 bytes"},
    {safetensors("", 0), "does not begin with `{`"},
    {safetensors(" {}", 0), "does not begin with `{`"},
    {safetensors("[]", 0), "does not begin with `{`"},
    {safetensors("{", 0), "not valid JSON"},
    {safetensors("{\"a\": \"\xff\"}", 0), "not valid JSON"},
    {safetensors("{}{}", 0), "not valid JSON"},
    {safetensors(two, 21), "end at byte 20 of the data, but 21 bytes are there"},
    {with(R"("a": 1)", 0), "tensor `a`: its header entry must be an object, found an integer"},
    {with(R"("a": {})", 0), "tensor `a`: no `dtype`"},
    {with(R"("a": {"dtype": 3, "shape": [], "data_offsets": [0,4]})", 4), "`dtype` must be a string, found an integer"},
    {with(entry("a", "[2]", "[0,8]", "F33"), 8), "tensor `a`: unknown `dtype` `F33`"},
    {with(entry("a", "[2]", "[0,8]", "f32"), 8), "unknown `dtype` `f32`"},
    {with(R"("a": {"dtype": "F32", "data_offsets": [0,4]})", 4), "tensor `a`: no `shape`"},
    {with(entry("a", "2", "[0,8]"), 8), "`shape` must be an array, found an integer"},
    {with(entry("a", "[-2]", "[0,8]"), 8), "`shape` must hold non-negative integers, found -2"},
    {with(entry("a", "[2.0]", "[0,8]"), 8), "`shape` must hold non-negative integers, found 2.0"},
    {with(entry("a", "[\"2\"]", "[0,8]"), 8), "`shape` must hold non-negative integers, found \"2\""},
    {with(entry("a", "[4294967296,4294967296]", "[0,0]"), 0), "has more elements than memory can hold"},
    {with(entry("a", "[4611686018427387904]", "[0,0]"), 0), "has more elements than memory can hold"},
    {with(entry("a", "[18446744073709551616]", "[0,0]"), 0), "tensor `a`: `shape` must hold non-negative integers"},
    {with(R"("a": {"dtype": "F32", "shape": [1]})", 4), "tensor `a`: no `data_offsets`"},
    {with(entry("a", "[1]", "[0]"), 4), "`data_offsets` must hold 2 numbers, found 1"},
    {with(entry("a", "[1]", "[0,4,8]"), 4), "`data_offsets` must hold 2 numbers, found 3"},
    {with(entry("a", "[1]", "[4,0]"), 4), "`data_offsets` must be ordered, found [4, 0]"},
    {with(entry("a", "[1]", "[-4,0]"), 4), "`data_offsets` must hold non-negative integers"},
    {with(entry("a", "[2]", "[0,4]"), 4), "span 4 bytes, but F32 [2] takes 8"},
    {with(entry("a", "[1]", "[18446744073709551611,18446744073709551615]"), 4), "leaving a hole after 0"},
    {with(entry("a", "[9]", "[0,36]"), 20), "its bytes end at 36, but the file holds 20 bytes"},
    {with(entry("a", "[2]", "[0,8]") + "," + entry("b", "[2]", "[4,12]"), 12),
     "tensor `b`: its bytes begin at 4, inside"},
    {with(entry("a", "[2]", "[0,8]") + "," + entry("b", "[2]", "[0,8]"), 8), "inside another tensor that ends at 8"},
    {with(entry("a", "[2]", "[0,8]") + "," + entry("b", "[1]", "[12,16]"), 16), "leaving a hole after 8"},
    {with(entry("a", "[1]", "[4,8]"), 8), "tensor `a`: its bytes begin at 4, leaving a hole after 0"},
    {with(entry("a", "[1]", "[0,4]") + "," + entry("a", "[1]", "[4,8]"), 8),
     "m.safetensors: header: `a` is given twice"},
    {with(R"("__metadata__": 1)", 0), "`__metadata__` must be"},
    {with(R"("__metadata__": {"x": 1})", 0), "`__metadata__`: `x` must be a string, found an integer"},
    {with(R"("__metadata__": {}, "__metadata__": {})", 0), "header: `__metadata__` is given twice"},
    {with(entry("a\\u0007\\n", "[1]", "[0,8]"), 8), "tensor `a\\x07\\n`: "},
    {with(entry(std::string(119, 'x') + "\u00e9", "[1]", "[0,8]"), 8), "xxx...`: "}, // no half of a character
  };
  for (const auto& [file, message] : table) {
    const auto said = failure_of([&] { header_of(file); });
    CHECK_MESSAGE(said.starts_with("m.safetensors: "), message, " in: ", said);
    CHECK_MESSAGE(said.find(message) != said.npos, message, " in: ", said);
    CHECK(said.find('\n') == said.npos);
  }
}

TEST_CASE("Randomly damaged safetensors files give a failure or a header that lies within the file") {
  const auto original = content(data() / "golden/llama-mha-tied/model.safetensors");
  // The header's end and a little data: damage beyond it changes values only.
  std::uint64_t length = 0;
  std::memcpy(&length, original.data(), 8);
  std::mt19937 random(1);
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string file = round % 2 ? safetensors(two, 20) : original;
    const std::size_t reach = round % 2 ? file.size() : 8 + length;
    for (int hits = 1 + static_cast<int>(random() % 4); hits > 0; --hits) {
      const auto at = random() % std::min(reach, file.size());
      switch (random() % 5) {
        case 0: file[at] = static_cast<char>(random()); break;
        case 1: file[at] = static_cast<char>(file[at] ^ 1 << random() % 8); break;
        case 2: file[at] = "0123456789[]{},:\"-"[random() % 18]; break;
        case 3: file.erase(at, 1 + random() % 3); break;
        default: file.insert(at, 1, "0123456789[]{},:\"-"[random() % 18]);
      }
    }
    if (random() % 8 == 0)
      file.resize(random() % file.size());
    std::optional<safetensors_header> read;
    if (!failure_of([&] { read = header_of(file); }).empty())
      ++refused;
    else
      for (const auto& [name, e] : *read)
        REQUIRE((e.offset <= file.size() && e.info.bytes <= file.size() - e.offset));
  }
  CHECK(refused > 1500);
}

TEST_CASE("Tensors of a checkpoint are read as stored, from one file or several") {
  for (const std::string model : {"golden/llama-gqa", "tiny/llama-linear"}) {
    const auto checkpoint = open_safetensors(data() / model);
    const auto names = checkpoint->tensors();
    CHECK(names.size() == (model == "golden/llama-gqa" ? 30 : 20));
    std::map<std::filesystem::path, std::pair<std::string, safetensors_header>> files;
    for (const auto& name : names) {
      const auto* info = checkpoint->find(name);
      REQUIRE(info);
      const auto path = checkpoint->where(name);
      if (!files.contains(path)) {
        auto text = content(path);
        const auto header = header_of(text);
        files.emplace(path, std::pair(std::move(text), header));
      }
      const auto& [file, entries] = files.at(path);
      const auto& entry = entries.at(name);
      const auto bytes = checkpoint->read(name);
      CHECK(info->shape == entry.info.shape);
      CHECK(std::memcmp(bytes.get(), file.data() + entry.offset, info->bytes) == 0);
    }
    CHECK(checkpoint->find("model.norm.bias") == nullptr);
  }
}

TEST_CASE("Tensor data outlives its checkpoint and survives the release of its pages") {
  auto checkpoint = open_safetensors(data() / "golden/llama-gqa");
  const auto kept = checkpoint->read("lm_head.weight");
  const auto* info = checkpoint->find("lm_head.weight");
  const std::string before(static_cast<const char*>(kept.get()), info->bytes);
  const auto bytes = info->bytes;
  checkpoint->read("lm_head.weight").reset(); // another owner lets the pages go
  checkpoint.reset();
  CHECK(std::memcmp(kept.get(), before.data(), bytes) == 0);
}

TEST_CASE("A tensor at an odd offset is read aligned") {
  const temp_folder folder;
  auto file = safetensors(header({entry("x", "[1]", "[0,1]", "U8"), entry("y", "[2]", "[1,9]")}), 9);
  file.replace(file.size() - 8, 8, "abcdefgh");
  write(folder.path() / "model.safetensors", file);
  const auto y = open_safetensors(folder.path())->read("y");
  CHECK(reinterpret_cast<std::uintptr_t>(y.get()) % 4 == 0);
  CHECK(std::memcmp(y.get(), "abcdefgh", 8) == 0);
}

TEST_CASE("A folder without weights, and an index that does not fit its files, are refused by name") {
  const temp_folder folder;
  const auto open = [&] { return failure_of([&] { open_safetensors(folder.path()); }); };
  const auto says = [&](const std::string& part) {
    const auto said = open();
    CHECK_MESSAGE(said.find(part) != said.npos, part, " in: ", said);
  };
  const auto index = folder.path() / "model.safetensors.index.json";
  says("holds neither model.safetensors nor model.safetensors.index.json");
  write(folder.path() / "one.safetensors", safetensors(two, 20));
  write(folder.path() / "two.safetensors", safetensors(header({entry("c", "[1]", "[0,4]")}), 4));
  write(folder.path() / "again.safetensors", safetensors(header({entry("a", "[1]", "[0,4]")}), 4));
  const auto map = [&](const std::string& entries) {
    write(index, std::string(R"({"metadata": {}, "weight_map": {)").append(entries).append("}}"));
  };
  map(R"("a": "one.safetensors", "b": "one.safetensors", "c": "two.safetensors")");
  CHECK(open() == "");
  write(index, "{");
  says("index.json: not valid JSON");
  write(index, "{}");
  says("`weight_map` must be an object");
  map(R"("a": 1)");
  says("the file of `a` must be a string, found an integer");
  map(R"("a": "../one.safetensors")");
  says("`../one.safetensors` is not the name of a file beside it");
  map(R"("a": "..")");
  says("`..` is not the name of a file beside it");
  map(R"("a": "")");
  says("is not the name of a file beside it");
  map(R"("a": "one.safetensors", "a": "two.safetensors")");
  says("`weight_map.a` is given twice");
  map(R"("a": "three.safetensors")");
  says("three.safetensors: no such file");
  map(R"("a": "one.safetensors", "d": "two.safetensors")");
  says("two.safetensors: lacks tensor `d`");
  map(R"("a": "two.safetensors", "b": "one.safetensors")");
  says("two.safetensors: lacks tensor `a`");
  map(R"("b": "one.safetensors", "c": "two.safetensors")");
  CHECK(open() == ""); // `a` is there once
  write(folder.path() / "two.safetensors",
        safetensors(header({entry("a", "[1]", "[0,4]"), entry("c", "[1]", "[4,8]")}), 8));
  says("tensor `a` is also in");
  std::filesystem::create_directory(folder.path() / "model.safetensors");
  says("model.safetensors: is a folder, not a regular file");
}

TEST_CASE("Of a tensor in two files, that in the file which the index names is meant") {
  const temp_folder folder;
  auto one = safetensors(two, 20), again = safetensors(header({entry("a", "[1]", "[0,4]")}), 4);
  one.replace(one.size() - 20, 4, "1111");
  again.replace(again.size() - 4, 4, "2222");
  write(folder.path() / "one.safetensors", one);
  write(folder.path() / "again.safetensors", again);
  const auto a_of = [&](const std::string& file, const std::string& other) {
    write(folder.path() / "model.safetensors.index.json",
          R"({"weight_map": {"b": "one.safetensors", )" + other + R"("a": ")" + file + "\"}}");
    const auto tensors = open_safetensors(folder.path());
    CHECK(tensors->where("a") == (folder.path() / file).string());
    return std::string(static_cast<const char*>(static_cast<const void*>(tensors->read("a").get())), 4);
  };
  CHECK(a_of("again.safetensors", "") == "2222");
  write(folder.path() / "again.safetensors",
        safetensors(header({entry("a", "[1]", "[0,4]"), entry("c", "[1]", "[4,8]")}), 4) + "3333");
  CHECK(a_of("one.safetensors", R"("c": "again.safetensors", )") == "1111");
}
