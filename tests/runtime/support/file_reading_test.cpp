// Pipes, devices, huge files and Git LFS pointers in place of the files that a user names.
#include "tests/runtime/model/model_test_data.hpp"

#include "runtime/import/model_source.hpp"
#include "runtime/support/files/file_reading.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace troupe;
using namespace troupe::test;
namespace fs = std::filesystem;

namespace {

constexpr std::string_view lfs_pointer =
  "version https://git-lfs.github.com/spec/v1\noid sha256:4665465465\nsize 1234\n";

/// Everything that a load reads, except for the values of weights.
void load(const fs::path& folder) {
  const auto source = open_model(folder.string());
  source.load_tokenizer();
  source.load_chat_template({});
}

} // namespace

TEST_CASE("Only a regular file within the size limit of its kind is read") {
  const temp_folder folder;
  const auto file = folder.path() / "f";
  const file_kind small{"a note", 1000};
  const auto told = [&] { return failure_of([&] { read_file(file, small); }); };
  CHECK(told() == file.string() + ": no such file");
  write(file, std::string(1000, 'x'));
  CHECK(read_file(file, small) == std::string(1000, 'x'));
  CHECK(read_start(file, 7) == "xxxxxxx");
  write(file, std::string(1001, 'x'));
  CHECK(told() == file.string() + ": has 1001 B, a note has at most 1000 B");
  fs::resize_file(file, std::uintmax_t(1) << 40); // sparse: takes no disk space
  CHECK(told() == file.string() + ": has 1.0 TiB, a note has at most 1000 B");
  write(file, lfs_pointer);
  CHECK(told() ==
        file.string() + ": is a Git LFS pointer, not the file itself; `git lfs pull` in its folder fetches that");
  fs::remove(file);
  REQUIRE(mkfifo(file.c_str(), 0600) == 0);
  CHECK(told() == file.string() + ": is a named pipe, not a regular file");
  fs::remove(file);
  fs::create_symlink("/dev/zero", file);
  CHECK(told() == file.string() + ": is a device, not a regular file");
  fs::remove(file);
  fs::create_directory(file);
  CHECK(told() == file.string() + ": is a folder, not a regular file");
  // Files of /proc report no size and can have any length.
  CHECK(read_file("/proc/self/statm", small).size() > 10);
  CHECK(failure_of([&] {
          read_file("/proc/self/maps", small);
        }).ends_with(": has more than 1000 B, a note has at most 1000 B"));
}

TEST_CASE("A pipe is read to its end, up to its size limit") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const file_kind small{"a note", 1000};
  REQUIRE(::write(ends[1], std::string(1500, 'x').data(), 1500) == 1500);
  close(ends[1]);
  CHECK(failure_of([&] { read_all(ends[0], "stdin", small); }) ==
        "stdin: has more than 1000 B, a note has at most 1000 B");
  CHECK(read_all(ends[0], "stdin", small) == std::string(499, 'x'));
  close(ends[0]);
  CHECK(failure_of([&] { read_all(ends[0], "stdin", small); }) == "stdin: cannot be read: Bad file descriptor");
}

TEST_CASE("No file in a checkpoint can block a load or exhaust memory") {
  const temp_folder folder;
  const auto copy = folder.path() / "copy";
  fs::copy(data() / "golden/llama-mha-tied", copy);
  write(copy / "chat_template.jinja", "{{ messages }}");
  write(copy / "special_tokens_map.json", "{}");
  write(copy / "generation_config.json", "{}");
  fs::create_directory(copy / "additional_chat_templates");
  write(copy / "additional_chat_templates/tool_use.jinja", "{{ tools }}");
  CHECK(failure_of([&] { load(copy); }).empty());
  for (const char* name :
       {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
        "chat_template.jinja", "additional_chat_templates/tool_use.jinja", "model.safetensors"}) {
    CAPTURE(name);
    const auto file = copy / name, kept = folder.path() / "kept";
    fs::rename(file, kept);
    REQUIRE(mkfifo(file.c_str(), 0600) == 0);
    CHECK(failure_of([&] { load(copy); }) == file.string() + ": is a named pipe, not a regular file");
    fs::remove(file);
    fs::create_symlink("/dev/zero", file);
    CHECK(failure_of([&] { load(copy); }) == file.string() + ": is a device, not a regular file");
    fs::remove(file);
    write(file, lfs_pointer);
    CHECK(failure_of([&] { load(copy); }).find("is a Git LFS pointer") != std::string::npos);
    fs::resize_file(file, std::uintmax_t(1) << 40);
    CHECK(failure_of([&] { load(copy); }).starts_with(file.string() + ": "));
    fs::rename(kept, file);
  }
  const auto index = copy / "model.safetensors.index.json";
  fs::remove(copy / "model.safetensors");
  REQUIRE(mkfifo(index.c_str(), 0600) == 0);
  CHECK(failure_of([&] { load(copy); }) == index.string() + ": is a named pipe, not a regular file");
  const auto gguf = folder.path() / "m.gguf";
  REQUIRE(mkfifo(gguf.c_str(), 0600) == 0);
  CHECK(failure_of([&] { load(gguf); }).starts_with(gguf.string() + ": "));
  fs::remove(gguf);
  write(gguf, lfs_pointer);
  CHECK(failure_of([&] { load(gguf); }).find("is a Git LFS pointer") != std::string::npos);
}

TEST_CASE("A chat template is bounded in size, in every place that may hold it") {
  const temp_folder folder;
  write(folder.path() / "chat_template.json", R"({"chat_template": ")" + std::string((1 << 20) + 1, 'x') + "\"}");
  CHECK(failure_of([&] {
          chat_template::load(folder.path());
        }).ends_with("`chat_template`: has 1048577 bytes, a chat template has at most 1048576"));
}
