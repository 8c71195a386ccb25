// Models in several GGUF files: the parts of one file give its bits, and parts that do not belong together are refused.
#include "runtime/checkpoint/gguf_file.hpp"
#include "runtime/checkpoint/gguf_writer.hpp"
#include "runtime/import/gguf/gguf_export.hpp"
#include "runtime/import/gguf_model.hpp"
#include "runtime/model/tensor_names.hpp"
#include "tests/runtime/model/decoder_checks.hpp"

#include <functional>
#include <map>

using namespace troupe;
using namespace troupe::test;

namespace {

namespace fs = std::filesystem;

/// What the files of a split model say; by default, what is true.
struct split_changes {
  int number = 0; // of the part that is changed
  std::map<std::string, int> keys = {};
  std::string architecture = {}; // added to it, if not empty
  std::string again = {};        // a tensor that it has too
};

fs::path part_path(const fs::path& folder, int number, int count) {
  return gguf_part_name{(folder / "m").string(), 1, count}.part(number);
}

/// Writes a test file as `count` parts, the first without tensors if so told. Returns the first one's path.
fs::path write_parts(const fs::path& folder, int count, bool empty_first = false, const split_changes& changes = {}) {
  const gguf_file from(data() / "gguf/llama3-q8_0.gguf");
  const int holders = empty_first ? count - 1 : count;
  for (int number = 1; number <= count; ++number) {
    gguf_writer out;
    if (number == 1)
      for (const auto& [key, value] : from.metadata().all())
        out.add(key, value);
    const auto value = [&](const char* key, std::size_t truth) {
      const auto found = changes.keys.find(key);
      return changes.number == number && found != changes.keys.end() ? found->second : static_cast<int>(truth);
    };
    if (changes.number == number && !changes.architecture.empty())
      out.add("general.architecture", changes.architecture);
    out.add("split.no", static_cast<std::uint32_t>(value("split.no", static_cast<std::size_t>(number - 1))));
    out.add("split.count", static_cast<std::uint32_t>(value("split.count", static_cast<std::size_t>(count))));
    out.add("split.tensors.count", static_cast<std::uint32_t>(value("split.tensors.count", from.tensors().size())));
    std::vector<const gguf_tensor*> tensors;
    int index = 0;
    for (const auto& [name, tensor] : from.tensors()) {
      const int holder = index++ % holders + (empty_first ? 2 : 1);
      if (holder != number && (changes.number != number || changes.again != name))
        continue;
      out.add_tensor(name, tensor.info.type, tensor.info.shape);
      tensors.push_back(&tensor);
    }
    out.write(part_path(folder, number, count), [&](std::size_t i) { return from.bytes_of(*tensors[i]); });
  }
  return part_path(folder, 1, count);
}

std::vector<row_logits> logits_of_model(const std::string& model) {
  const auto source = open_model(model);
  CHECK(check_tensors(*source.tensors, source.config).empty());
  std::mt19937 random(4);
  const auto ids = random_tokens(random, 40, source.config.vocab);
  engine e(source, targets().back(), 1, dtype::bf16);
  return e.step({{ids, 0, first_blocks(ids.size())}});
}

} // namespace

TEST_CASE("A model in several GGUF files gives the bits that it gives in one") {
  const auto whole = (data() / "gguf/llama3-q8_0.gguf").string();
  const auto expected = logits_of_model(whole);
  const auto original = open_model(whole);
  for (const int count : {2, 3, 7})
    for (const bool empty_first : {false, true}) {
      CAPTURE(count);
      CAPTURE(empty_first);
      const temp_folder folder;
      const auto first = write_parts(folder.path(), count, empty_first);
      write(folder.path() / "mmproj-m.gguf", "not looked at");
      CHECK(logits_of_model(first.string()) == expected);
      CHECK(logits_of_model(folder.path().string()) == expected); // the only model in its folder
      const auto source = open_model(first.string());
      CHECK(source.name == "m");
      CHECK(source.config == original.config);
      CHECK(source.tensors->tensors() == original.tensors->tensors());
      CHECK(source.files.size() == static_cast<std::size_t>(count));
      CHECK(source.tensors->files().size() == static_cast<std::size_t>(count));
      CHECK(open_tokenizer(first.string())->encode("one two", false) ==
            open_tokenizer(whole)->encode("one two", false));
    }
}

TEST_CASE("An export of a model in several GGUF files is one file, which replaces none of them") {
  const temp_folder folder;
  const auto first = write_parts(folder.path(), 3);
  const auto to = folder.path() / "whole.gguf";
  kernels::thread_pool pool(1);
  export_gguf(first.string(), *find_export_format("q4_0"), to, pool, {.requantise = true});
  const gguf_file written(to);
  CHECK(!written.metadata().find("split.count"));
  CHECK(written.files().size() == 1);
  CHECK(written.tensors().size() == gguf_file(first).tensors().size());
  for (int number = 1; number <= 3; ++number) {
    const auto part = part_path(folder.path(), number, 3);
    CHECK(failure_of([&] {
            export_gguf(first.string(), *find_export_format("q4_0"), part, pool, {.requantise = true});
          }) == part.string() + ": is the file being read; give the result another name");
  }
}

TEST_CASE("Files that are not the first part of a model, or parts that are missing or of another, are refused") {
  const auto refusal = [](const split_changes& changes, const std::function<void(const fs::path&)>& then = {}) {
    const temp_folder folder;
    const auto first = write_parts(folder.path(), 3, false, changes);
    if (then)
      then(folder.path());
    auto said = failure_of([&] { open_model(first.string()); });
    const auto path = folder.path().string() + "/"; // left out
    for (auto at = said.find(path); at != said.npos; at = said.find(path))
      said.erase(at, path.size());
    return said;
  };
  CHECK(refusal({}) == "");
  CHECK(refusal({}, [](const fs::path& folder) { fs::remove(part_path(folder, 2, 3)); }) ==
        "m-00002-of-00003.gguf: no such file, but m-00001-of-00003.gguf is the first part of 3");
  CHECK(refusal({.number = 3, .keys = {{"split.no", 1}}}) ==
        "m-00003-of-00003.gguf: `split.no` is 1, expected 2, as this is part 3 of m-00001-of-00003.gguf");
  CHECK(refusal({.number = 2, .keys = {{"split.count", 4}}}) ==
        "m-00002-of-00003.gguf: `split.count` is 4, expected 3, as this is part 2 of m-00001-of-00003.gguf");
  CHECK(refusal({.number = 2, .keys = {{"split.tensors.count", 4}}})
          .starts_with("m-00002-of-00003.gguf: `split.tensors.count` is 4, expected "));
  CHECK(refusal({.number = 1, .keys = {{"split.tensors.count", 4}}})
          .starts_with("m-00002-of-00003.gguf: `split.tensors.count` is "));
  CHECK(refusal({.number = 2, .architecture = "qwen2"}) ==
        "m-00002-of-00003.gguf: `general.architecture` is `qwen2`, expected `llama`, as this is part 2 of "
        "m-00001-of-00003.gguf");
  const auto first_tensor = gguf_file(data() / "gguf/llama3-q8_0.gguf").tensors().begin()->first;
  CHECK(refusal({.number = 3, .again = first_tensor}) ==
        "m-00003-of-00003.gguf: tensor `" + first_tensor + "` is there, but also in m-00001-of-00003.gguf");
  CHECK(refusal({}, [](const fs::path& folder) {
          write(part_path(folder, 3, 3), "GGUF");
        }).starts_with("m-00003-of-00003.gguf: truncated"));

  // All say the same number of tensors, which is wrong.
  const temp_folder folder;
  const auto first = write_parts(folder.path(), 2);
  const auto edit = [&](int number) {
    const auto part = part_path(folder.path(), number, 2);
    auto bytes = content(part);
    bytes[bytes.find("split.tensors.count") + 19 + 4] += 1;
    write(part, bytes);
  };
  edit(1);
  edit(2);
  const auto said = failure_of([&] { open_model(first.string()); });
  CHECK(said.starts_with(first.string() + ": `split.tensors.count` is "));
  CHECK(said.find(", but all parts have ") != said.npos);

  const auto second = part_path(folder.path(), 2, 2);
  const auto own = second.string() + ": is part 2 of 2 of a model, name the first, " + first.string();
  CHECK(failure_of([&] { open_model(second.string()); }) == own);
  CHECK(failure_of([&] { open_tokenizer(second.string()); }) == own);
  const auto renamed = folder.path() / "other.gguf";
  fs::rename(second, renamed);
  CHECK(failure_of([&] { open_model(renamed.string()); }) ==
        renamed.string() + ": is part 2 of 2 of a model, name the first");
  fs::rename(first, renamed);
  CHECK(failure_of([&] { open_model(renamed.string()); }) ==
        renamed.string() +
          ": `split.count` is 2, but the name does not end in `-00001-of-00002.gguf`, as other parts are found by it");
}

TEST_CASE("Names of parts are those of llama.cpp's programs") {
  const auto part = gguf_part_name::of("a/b-00002-of-00012.gguf");
  REQUIRE(part);
  CHECK(part->stem == "a/b");
  CHECK(part->number == 2);
  CHECK(part->count == 12);
  CHECK(part->part(11) == fs::path("a/b-00011-of-00012.gguf"));
  for (const char* other : {"b.gguf", "-00001-of-00002.gguf", "b-0001-of-0002.gguf", "b-00000-of-00002.gguf",
                            "b-00001-of-0000x.gguf", "b-+0001-of-00002.gguf", "b-00001-of-00002.bin", ""})
    CHECK(!gguf_part_name::of(other));
}
