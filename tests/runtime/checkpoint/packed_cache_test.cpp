#include "runtime/checkpoint/packed/packed_cache.hpp"

#include "kernels/cpu/thread_pool.hpp"
#include "runtime/support/files/atomic_file.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <map>
#include <optional>
#include <sys/resource.h>
#include <sys/wait.h>

using namespace troupe;
using namespace troupe::test;

namespace {

namespace fs = std::filesystem;

constexpr std::size_t page = 4096;

packed_contents some_contents() {
  return {"tiny model",
          "bf16 int8",
          "avx512",
          3,
          {{"/models/a.safetensors", 1000, 17, 18}, {"/models/config.json", 10, 19, 20}},
          {{"first", 128}, {"second", 2 * page}, {"third", 64 * 3}}};
}

/// Made-up bytes of the packed matrix `name`, in two parts.
struct matrix_bytes {
  std::vector<std::byte> bytes;
  std::vector<std::span<const std::byte>> parts;

  explicit matrix_bytes(const packed_entry& entry) : bytes(entry.bytes) {
    for (std::size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<std::byte>(i * 7 + entry.name.size());
    const auto all = std::span<const std::byte>(bytes);
    parts = {all.first(64), all.subspan(64)};
  }
};

struct outcome {
  std::vector<std::string> lines;
  std::size_t found = 0, wrong = 0; // matrices
  fs::path file;
  std::string failed; // what reading the file threw
};

packed_cache cache_in(
  const fs::path& folder, const packed_contents& contents, kernels::thread_pool& pool, log_sink log = [](auto) {}) {
  return packed_cache({.folder = folder, .most_bytes = std::size_t(1) << 40}, contents, pool, std::move(log));
}

/// A load: matrices that are not found are added.
outcome attempt(const fs::path& folder, const packed_contents& contents = some_contents()) {
  outcome result;
  kernels::thread_pool pool(2);
  auto cache = cache_in(folder, contents, pool, [&](std::string line) { result.lines.push_back(std::move(line)); });
  result.file = cache.name();
  for (const auto& entry : contents.matrices) {
    const matrix_bytes made(entry);
    if (const auto found = cache.find(entry.name)) {
      ++result.found;
      try {
        const auto place = cache.file()->layout().place_of(entry.name);
        cache.file()->read({&place, 1}, pool);
      } catch (const failure& f) {
        result.failed = f.what();
      }
      result.wrong += reinterpret_cast<std::uintptr_t>(found.get()) % page != 0 ||
        std::memcmp(found.get(), made.bytes.data(), made.bytes.size()) != 0;
    } else {
      cache.add(entry.name, made.parts);
    }
  }
  cache.finish();
  return result;
}

outcome load(const fs::path& folder, const packed_contents& contents = some_contents()) {
  auto result = attempt(folder, contents);
  CHECK(result.wrong == 0);
  return result;
}

/// Beside the folder's secret.
std::size_t files_in(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator())) - 1;
}

/// While it lives, files cannot grow beyond `bytes`: simulates a full disk.
class small_disk {
public:
  explicit small_disk(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~small_disk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

private:
  rlimit before_ = {};
  void (*handler_)(int);
};

} // namespace

TEST_CASE("Packed weights kept by one load are found by the next, bit for bit") {
  const temp_folder folder;
  const auto deep = folder.path() / "a" / "b"; // is made
  const auto cold = load(deep);
  const auto name = cold.file.string();
  CHECK(cold.found == 0);
  CHECK(cold.lines ==
        std::vector<std::string>{"packed weights will be kept in " + name,
                                 "packed weights, 24.0 KiB, are kept in " + name});
  CHECK(cold.file.filename().string().starts_with("tiny_model-"));
  CHECK(fs::file_size(cold.file) == 6 * page);
  for (int i = 0; i < 2; ++i) {
    const auto warm = load(deep);
    CHECK(warm.found == 3);
    CHECK(warm.lines == std::vector<std::string>{"packed weights come from " + name});
  }
  CHECK(files_in(deep) == 1);
}

TEST_CASE("Memory lent by a packed cache outlives the cache and the file's removal") {
  const temp_folder folder;
  const auto file = load(folder.path()).file;
  kernels::buffer third;
  {
    kernels::thread_pool pool(1);
    auto cache = cache_in(folder.path(), some_contents(), pool);
    third = cache.find("third");
    REQUIRE(third);
  }
  fs::remove(file);
  const matrix_bytes made({"third", 64 * 3});
  CHECK(std::memcmp(third.get(), made.bytes.data(), made.bytes.size()) == 0);
}

TEST_CASE("Packed weights of another model, type or target have a file of their own; of changed files, layouts and "
          "shapes they are replaced") {
  const temp_folder folder;
  const auto first = load(folder.path());
  const auto change = [&](const auto& how) {
    auto contents = some_contents();
    how(contents);
    return contents;
  };
  std::size_t files = 1;
  for (const auto& other :
       {change([](auto& c) { c.model = "other"; }), change([](auto& c) { c.precision = "f32 int8"; }),
        change([](auto& c) { c.target = "avx2"; }),
        change([](auto& c) { c.files[0].path = "/models/b.safetensors"; })}) {
    CHECK(load(folder.path(), other).found == 0);
    CHECK(load(folder.path(), other).found == 3);
    CHECK(files_in(folder.path()) == ++files);
    CHECK(load(folder.path()).found == 3);
  }
  const std::string changed = "was made of the model's files before they changed",
                    version = "was made by another version of this program", damaged = "is damaged";
  using changed_contents = std::pair<packed_contents, std::string>;
  for (const auto& [other, why] : {changed_contents{change([](auto& c) { c.layout = 4; }), version},
                                   {change([](auto& c) { c.files[0].bytes = 1001; }), changed},
                                   {change([](auto& c) { c.files[1].modified_ns = 190; }), changed},
                                   {change([](auto& c) { c.files[0].changed_ns = -18; }), changed},
                                   {change([](auto& c) { c.matrices[1].bytes = 3 * page; }), damaged},
                                   {change([](auto& c) { c.matrices[2].name = "fourth"; }), damaged},
                                   {change([](auto& c) { c.matrices.pop_back(); }), damaged}}) {
    CAPTURE(why);
    const auto replaced = load(folder.path(), other);
    CHECK(replaced.file == first.file);
    CHECK(replaced.found == 0);
    CHECK(replaced.lines[0] == first.file.string() + " " + why + "; weights are packed again");
    CHECK(load(folder.path(), other).found == other.matrices.size());
    CHECK(load(folder.path()).found == 0);
    CHECK(files_in(folder.path()) == files);
  }
}

TEST_CASE("A malformed or incomplete file of packed weights is replaced") {
  const temp_folder folder;
  const auto file = load(folder.path()).file;
  const auto good = content(file);
  const std::string alien = "is not a file of packed weights", damaged = "is damaged";
  const auto size = [&](std::size_t bytes) { return "has " + std::to_string(bytes) + " bytes, expected 24576"; };
  const auto with = [&](std::string_view old, std::string_view text) {
    auto bad = good;
    REQUIRE(bad.find(old) != bad.npos);
    return bad.replace(bad.find(old), old.size(), text);
  };
  std::vector<std::pair<std::string, std::string>> bad{
    {"", alien},
    {"GGUF", alien},
    {std::string(6 * page, '\0'), alien},
    {with("weights 5", "weights 4"), "was made by another version of this program"},
    {with("weights 5", "weightz 5"), alien},
    {with("numbers bf16", "numbers f16 "), damaged},
    {with("layout 3", "layout 2"), "was made by another version of this program"},
    {with("matrix 128 ", "matrix 129 "), damaged},
    {with("matrix 8192 second", "matrix 18446744073709551615 second"), damaged},
    {with("matrix 192 third\nend\n", "matrix -1 third\nend\n  "), damaged},
    {with("end\n", std::string(4, '\0')), damaged},
    {good + "x", size(6 * page + 1)},
    {good + good, size(12 * page)},
  };
  auto padding = good;
  padding[page - 1] = 1;
  bad.emplace_back(padding, damaged);
  const auto text = good.find('\0');
  for (const auto length :
       {text, page - 1, page, page + 1, 2 * page - 1, 2 * page, 5 * page - 1, 5 * page, 6 * page - 1})
    bad.emplace_back(good.substr(0, length), size(length));
  for (std::size_t length = 1; length < text; ++length)
    bad.emplace_back(good.substr(0, length), size(length));
  for (const auto& [bytes, why] : bad) {
    CAPTURE(bytes.size());
    write(file, bytes);
    const auto again = load(folder.path());
    CHECK(again.found == 0);
    CHECK(again.lines[0] == file.string() + " " + why + "; weights are packed again");
    CHECK(content(file) == good);
  }
  CHECK(load(folder.path()).found == 3);
}

TEST_CASE("A damaged block is noticed when it is read, once; the file is removed and the next load packs again") {
  const temp_folder folder;
  const auto file = load(folder.path()).file;
  const auto good = content(file);
  std::map<std::string, std::pair<std::size_t, std::size_t>> matrices; // first byte, bytes
  auto begin = 2 * page;
  for (const auto& [name, bytes] : some_contents().matrices) {
    matrices[name] = {begin, bytes};
    begin += (bytes + page - 1) / page * page;
  }
  const auto check = [&](const std::string& bad, const std::string& matrix) {
    write(file, bad);
    const auto found = attempt(folder.path());
    CHECK(found.found == 3);
    CHECK(found.failed ==
          file.string() + " is damaged, in the matrix `" + matrix +
            "` (block 0 of 1 MiB): it was removed, and the next start packs the weights again");
    CHECK(!fs::exists(file));
    CHECK(load(folder.path()).found == 0);
    CHECK(content(file) == good);
  };
  for (const auto& [name, place] : matrices)
    for (std::size_t i = 0; i < place.second; i = i * 3 / 2 + 1)
      for (const int bit : {0, 7}) {
        CAPTURE(i);
        auto bad = good;
        bad[place.first + i] = static_cast<char>(bad[place.first + i] ^ 1 << bit);
        check(bad, name);
      }
  auto bad = good; // words that have changed places
  std::swap_ranges(bad.begin() + 3 * page, bad.begin() + 3 * page + 8, bad.begin() + 3 * page + 64);
  check(bad, "second");
  bad = good;
  std::fill(bad.begin() + 3 * page, bad.begin() + 4 * page, '\0');
  check(bad, "second");
  // Damaged checksums are no reason to believe that matrices are damaged: the file is replaced at once.
  for (std::size_t i = 0; i < 4 * 8; ++i) {
    bad = good;
    bad[page + i] = static_cast<char>(bad[page + i] ^ 1);
    write(file, bad);
    const auto again = load(folder.path());
    CHECK(again.found == 0);
    CHECK(again.lines[0] == file.string() + " is damaged, in its checksums; weights are packed again");
  }
  CHECK(load(folder.path()).found == 3);
  CHECK(load(folder.path()).failed.empty());
}

TEST_CASE("Matrices of several blocks are compared block by block, wherever their parts are cut") {
  const temp_folder folder;
  kernels::thread_pool pool(2);
  auto contents = some_contents();
  const std::size_t bytes = 2 * checksum::chunk + 320;
  contents.matrices = {{"large", bytes}};
  const matrix_bytes made(contents.matrices[0]);
  const std::span<const std::byte> all(made.bytes);
  fs::path file;
  {
    auto cache = cache_in(folder.path(), contents, pool);
    file = cache.name();
    const std::vector<std::span<const std::byte>> parts{all.first(192), all.subspan(192, checksum::chunk),
                                                        all.subspan(192 + checksum::chunk)};
    CHECK(cache.add("large", parts) == nullptr);
    cache.finish();
  }
  auto bad = content(file);
  const auto start = bad.size() - (bytes + page - 1) / page * page;
  CHECK(std::memcmp(bad.data() + start, made.bytes.data(), bytes) == 0);
  const auto read = [&] {
    auto cache = cache_in(folder.path(), contents, pool);
    REQUIRE(cache.find("large") != nullptr);
    const auto place = cache.file()->layout().place_of("large");
    return failure_of([&] { cache.file()->read({&place, 1}, pool); });
  };
  CHECK(read().empty());
  bad[start + bytes - 1] ^= 4;
  write(file, bad);
  CHECK(read().find("(block 2 of 1 MiB)") != std::string::npos);
}

TEST_CASE("Packed weights can be copied into memory, and mapped while their file is still being written") {
  const temp_folder folder;
  kernels::thread_pool pool(2);
  const auto contents = some_contents();
  const auto options = [&](weight_home home, bool needed) {
    return packed_cache_options{
      .folder = folder.path(),
      .most_bytes = std::size_t(1) << 40,
      .home = [home](std::string_view name) { return name == "second" ? home : weight_home::found; },
      .needed = needed};
  };
  const auto same = [](const kernels::buffer& found, const matrix_bytes& made) {
    return found && std::memcmp(found.get(), made.bytes.data(), made.bytes.size()) == 0;
  };
  std::map<std::string, kernels::buffer> lent;
  {
    packed_cache cold(options(weight_home::file, true), contents, pool, [](auto) {});
    for (const auto& entry : contents.matrices) {
      CHECK(cold.find(entry.name) == nullptr);
      lent[entry.name] = cold.add(entry.name, matrix_bytes(entry).parts);
      CHECK(same(lent[entry.name], matrix_bytes(entry)));
      CHECK(cold.is_mapped(entry.name) == (entry.name == "second"));
    }
    cold.finish();
    const auto place = cold.file()->layout().place_of("second");
    CHECK_NOTHROW(cold.file()->read({&place, 1}, pool));
    CHECK(cold.file()->was_read(place));
  }
  CHECK(same(lent["second"], matrix_bytes(contents.matrices[1])));
  std::vector<std::string> lines;
  packed_cache warm(options(weight_home::memory, false), contents, pool,
                    [&](std::string line) { lines.push_back(std::move(line)); });
  const auto copy = warm.find("second");
  CHECK(same(copy, matrix_bytes(contents.matrices[1])));
  CHECK(!warm.is_mapped("second"));
  CHECK(warm.file() == nullptr);
  // What is damaged is packed again, as is the rest.
  auto bad = content(warm.name());
  bad[4 * page] ^= 1;
  write(warm.name(), bad);
  packed_cache damaged(options(weight_home::memory, false), contents, pool,
                       [&](std::string line) { lines.push_back(std::move(line)); });
  CHECK(damaged.find("second") == nullptr);
  CHECK(lines.back().find(" is damaged, in the matrix `second`") != std::string::npos);
  CHECK(damaged.find("first") == nullptr);
  CHECK_NOTHROW(damaged.finish());
}

TEST_CASE("A file that is needed and cannot be kept is an error; one that nobody asked for is not worth a word") {
  const temp_folder folder;
  kernels::thread_pool pool(1);
  const auto contents = some_contents();
  std::vector<std::string> lines;
  const auto make = [&](packed_cache_options options) {
    packed_cache cache(std::move(options), contents, pool, [&](std::string line) { lines.push_back(std::move(line)); });
    return cache.find("first") != nullptr || cache.add("first", matrix_bytes(contents.matrices[0]).parts) != nullptr;
  };
  CHECK(failure_of([&] { make({.folder = "/proc/none/here", .needed = true}); })
          .starts_with("weights that are mapped (`weights`) are read from a file, which cannot be kept: "
                       "/proc/none/here: cannot be created: "));
  CHECK(lines.empty());
  CHECK(!make({.folder = "/proc/none/here", .asked = false}));
  CHECK(!make({.folder = folder.path() / "unasked", .asked = false})); // small: not kept
  CHECK(lines.empty());
  CHECK(!fs::exists(folder.path() / "unasked"));
  const auto writer = cache_in(folder.path(), contents, pool);
  CHECK(failure_of([&] {
          make({.folder = folder.path(), .most_bytes = std::size_t(1) << 40, .needed = true});
        }).ends_with("another process is writing " + writer.name().string()));
}

TEST_CASE("A folder that cannot be written costs one log line and is not an error") {
  const temp_folder folder;
  const auto lines = [&](const fs::path& place) {
    const auto result = load(place);
    CHECK(result.found == 0);
    return result.lines;
  };
  const auto nowhere = lines("/proc/none/here");
  REQUIRE(nowhere.size() == 1);
  CHECK(nowhere[0].starts_with("packed weights are not kept: /proc/none/here: cannot be created: "));
  // Something that cannot be replaced has the file's name.
  const auto file = load(folder.path()).file;
  fs::remove(file);
  fs::create_directories(file / "full");
  const auto said = lines(folder.path());
  REQUIRE(said.size() == 2);
  CHECK(said[0] == file.string() + " is not a regular file of this user's alone; weights are packed again");
  CHECK(said[1] ==
        "packed weights are not kept: " + file.string() + ": cannot be written: it is there, and not a regular file");
  CHECK(files_in(folder.path()) == 1);
  fs::remove_all(file);
  fs::create_directories(folder.path() / ("." + file.filename().string() + ".troupe-partial") / "full");
  CHECK(
    lines(folder.path()) ==
    std::vector<std::string>{"packed weights are not kept: " + file.string() + ": cannot be written: Is a directory"});
}

TEST_CASE("A full disk, at once or later, leaves no file behind") {
  const temp_folder folder;
  const auto file = load(folder.path()).file;
  fs::remove(file);
  const std::string why = "packed weights are not kept: " + file.string() + ": cannot be written: File too large";
  {
    const small_disk disk(page);
    CHECK(load(folder.path()).lines == std::vector<std::string>{why});
  }
  CHECK(files_in(folder.path()) == 0);
  std::vector<std::string> lines;
  {
    const auto contents = some_contents();
    kernels::thread_pool pool(1);
    auto cache = cache_in(folder.path(), contents, pool, [&](std::string line) { lines.push_back(std::move(line)); });
    cache.add("first", matrix_bytes(contents.matrices[0]).parts);
    CHECK(files_in(folder.path()) == 1);
    const small_disk disk(2 * page);
    cache.add("second", matrix_bytes(contents.matrices[1]).parts);
    CHECK(files_in(folder.path()) == 0);
    cache.add("third", matrix_bytes(contents.matrices[2]).parts);
    cache.finish();
  }
  CHECK(lines == std::vector<std::string>{"packed weights will be kept in " + file.string(), why});
  CHECK(files_in(folder.path()) == 0);
}

TEST_CASE("Packed weights that others could have put into the folder are not used") {
  const temp_folder folder;
  const auto here = folder.path() / "here", there = folder.path() / "there";
  const auto file = load(here).file;
  // A whole file of a folder with another secret.
  fs::remove(load(there).file);
  fs::copy_file(file, there / file.filename());
  const auto copied = load(there);
  CHECK(copied.found == 0);
  CHECK(copied.lines[0] ==
        (there / file.filename()).string() + " is damaged, in its checksums; weights are packed again");
  CHECK(load(there).found == 3);
  // A link, and a file that others may write to.
  const auto alien = (there / file.filename()).string() +
    " is not a regular file of this user's alone; weights are packed again";
  fs::rename(there / file.filename(), there / "moved");
  fs::create_symlink("moved", there / file.filename());
  CHECK(load(there).lines[0] == alien);
  fs::permissions(there / file.filename(), fs::perms::group_write, fs::perm_options::add);
  CHECK(load(there).lines[0] == alien);
  // The folder itself.
  fs::permissions(there, fs::perms::others_write, fs::perm_options::add);
  const auto open_to_all = load(there);
  CHECK(open_to_all.found == 0);
  REQUIRE(open_to_all.lines.size() == 1);
  CHECK(open_to_all.lines[0].find("everybody may write to it (mode 0702)") != std::string::npos);
}

TEST_CASE("A cache folder that is a file is refused") {
  const temp_folder folder;
  const auto file = folder.path() / "file";
  write(file, "x");
  for (const auto& place : {file, file / "below"})
    CHECK(failure_of([&] { load(place); }) == "`packed_cache` must be a folder, which " + place.string() + " is not");
  CHECK(content(file) == "x");
}

TEST_CASE("Of two concurrent loads one writes; an abandoned load leaves nothing") {
  const temp_folder folder;
  const auto contents = some_contents();
  std::vector<std::string> lines;
  fs::path file;
  {
    kernels::thread_pool pool(1);
    auto given_up = cache_in(folder.path(), contents, pool);
    file = given_up.name();
    given_up.add("first", matrix_bytes(contents.matrices[0]).parts);
    CHECK(load(folder.path()).lines ==
          std::vector<std::string>{"packed weights are not kept: another process is writing " + file.string()});
    CHECK(files_in(folder.path()) == 1);
  }
  CHECK(files_in(folder.path()) == 0);
  CHECK(load(folder.path()).found == 0);
  CHECK(load(folder.path()).found == 3);
}

TEST_CASE("The leftover of a process that died while writing is replaced") {
  const temp_folder folder;
  const auto contents = some_contents();
  const auto child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    kernels::thread_pool pool(1);
    auto cache = cache_in(folder.path(), contents, pool);
    cache.add("first", matrix_bytes(contents.matrices[0]).parts);
    _exit(0); // as when it is killed: no destructors
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(files_in(folder.path()) == 1);
  const auto taken = load(folder.path());
  CHECK(taken.found == 0);
  CHECK(taken.lines.back() == "packed weights, 24.0 KiB, are kept in " + taken.file.string());
  CHECK(files_in(folder.path()) == 1);
  CHECK(load(folder.path()).found == 3);
}

TEST_CASE("Many processes that start together with a cold cache all succeed, and leave one complete file") {
  const temp_folder folder;
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i) {
    const auto child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      int wrong = 0;
      for (int n = 0; n < 20; ++n) {
        const auto result = attempt(folder.path());
        wrong += result.wrong != 0 || (result.found != 0 && result.found != 3);
        if (n % 3 == i % 3)
          fs::remove(result.file);
      }
      _exit(wrong);
    }
    children.push_back(child);
  }
  for (const auto child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(status == 0);
  }
  load(folder.path());
  CHECK(load(folder.path()).found == 3);
  CHECK(files_in(folder.path()) == 1);
}
