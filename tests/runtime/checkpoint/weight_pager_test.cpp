// What the pager reads, keeps and drops, seen from the system's side.
#include "runtime/checkpoint/packed/weight_pager.hpp"

#include "kernels/cpu/thread_pool.hpp"
#include "runtime/checkpoint/packed/packed_cache.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include <chrono>
#include <cstring>
#include <functional>
#include <memory>

#include <sys/vfs.h>

using namespace troupe;
using namespace troupe::test;

namespace {

namespace fs = std::filesystem;

constexpr std::size_t unit_size = 256 << 10;

/// A file with a matrix per unit, or several experts of them, which the system does not have in memory.
class packed_test_file {
public:
  packed_test_file(const fs::path& folder, std::size_t units, std::size_t experts = 0) : pool(2) {
    packed_contents contents{"m", "f32", "any", 1, {}, {}};
    for (std::size_t u = 0; u < units; ++u) {
      contents.matrices.push_back({"dense " + std::to_string(u), unit_size});
      for (std::size_t e = 0; e < experts; ++e)
        contents.matrices.push_back({expert_name(u, e), unit_size});
    }
    for (int attempt = 0; attempt < 2; ++attempt) {
      packed_cache cache({.folder = folder, .most_bytes = std::size_t(1) << 40}, contents, pool, [](auto) {});
      for (const auto& [name, bytes] : contents.matrices)
        if (!cache.find(name)) {
          const std::vector<std::byte> made(bytes, static_cast<std::byte>(name.size()));
          const std::span<const std::byte> all(made);
          cache.add(name, {&all, 1});
        }
      cache.finish();
      file = cache.file();
      name = cache.name();
    }
    for (std::size_t u = 0; u < units; ++u) {
      this->units.push_back({.dense = {place("dense " + std::to_string(u))}});
      for (std::size_t e = 0; e < experts; ++e)
        this->units[u].experts.push_back({place(expert_name(u, e))});
    }
    drop();
  }

  packed_place place(const std::string& matrix) const { return file->layout().place_of(matrix); }

  void drop() const {
    for (const auto& unit : units) {
      file->drop(unit.dense[0]);
      for (const auto& e : unit.experts)
        file->drop(e[0]);
    }
  }

  /// Whether the system forgets what it is told to drop: not where files are in memory anyway.
  bool can_be_dropped() const { return !file->is_in_memory(units[0].dense[0]); }

  bool has(std::size_t unit) const { return file->is_in_memory(units[unit].dense[0]); }
  bool has(std::size_t unit, std::size_t expert) const { return file->is_in_memory(units[unit].experts[expert][0]); }

  kernels::thread_pool pool;
  std::shared_ptr<const packed_file> file;
  fs::path name;
  std::vector<paged_unit> units;

private:
  static std::string expert_name(std::size_t u, std::size_t e) {
    return "expert " + std::to_string(u) + ":" + std::to_string(e);
  }
};

/// Waits for the pager's thread.
bool soon(const std::function<bool()>& condition) {
  for (int i = 0; i < 60'000 && !condition(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return condition();
}

} // namespace

TEST_CASE("A streamed unit is read while the one before is used, and dropped when the pass has gone on") {
  const temp_folder folder;
  packed_test_file f(folder.path(), 6);
  if (!f.can_be_dropped())
    return;
  auto units = f.units;
  for (auto& unit : units)
    unit.streamed = true;
  const auto pager = std::make_shared<weight_pager>(f.file, units, std::nullopt);
  weight_walk walk(pager, &f.pool);
  for (int pass = 0; pass < 3; ++pass)
    for (std::size_t u = 0; u < 6; ++u) {
      CAPTURE(u);
      walk.enter(u);
      CHECK(f.has(u));
      CHECK(soon([&] { return f.has((u + 1) % 6); }));
      if (pass > 0 || u > 0)
        CHECK(soon([&] { return !f.has((u + 5) % 6); }));
      CHECK(!f.has((u + 3) % 6));
    }
  // Each once a pass, and the next pass's first.
  CHECK(soon([&] { return pager->read_bytes() == (3 * 6 + 1) * unit_size; }));
}

TEST_CASE("Units that stay are not read again, and streamed ones are asked for across them") {
  const temp_folder folder;
  packed_test_file f(folder.path(), 6);
  if (!f.can_be_dropped())
    return;
  auto units = f.units;
  units[1].streamed = units[4].streamed = true;
  const auto pager = std::make_shared<weight_pager>(f.file, units, std::nullopt);
  weight_walk walk(pager, &f.pool);
  for (int pass = 0; pass < 3; ++pass)
    for (std::size_t u = 0; u < 6; ++u) {
      walk.enter(u);
      if (u == 2) // 1, and 4 ahead of its use; what is in memory, the system may drop at any time
        CHECK(soon([&] { return pager->read_bytes() >= 2 * unit_size; }));
      if (pass > 0)
        for (const std::size_t kept : {0, 2, 3, 5})
          CHECK(f.has(kept));
    }
  // Each at least once, and at most once a pass, with the first of the next one: less where its reader was late.
  CHECK(pager->read_bytes() >= 2 * unit_size);
  CHECK(pager->read_bytes() <= (3 * 2 + 1) * unit_size);
}

TEST_CASE("What the system has dropped of units that stay comes back, also ahead of the pass") {
  const temp_folder folder;
  packed_test_file f(folder.path(), 4);
  const auto pager = std::make_shared<weight_pager>(f.file, f.units, std::nullopt);
  weight_walk walk(pager, &f.pool);
  const auto* bytes = static_cast<const volatile char*>(
    std::const_pointer_cast<packed_file>(f.file)->lend(f.units[0].dense[0]).get());
  const bool drops = f.can_be_dropped();
  for (int pass = 0; pass < 3; ++pass)
    for (std::size_t u = 0; u < 4; ++u)
      walk.enter(u);
  const auto once = pager->read_bytes(); // less where the system reads ahead
  CHECK((once > 0) == drops);
  CHECK(once <= 4 * unit_size);
  f.drop();
  static_cast<void>(*bytes); // a fault that reads the disk
  for (std::size_t u = 0; u < 4; ++u) {
    walk.enter(u);
    if (f.can_be_dropped()) {
      CHECK(soon([&] { return f.has((u + 1) % 4); }));
      CHECK(pager->read_bytes() > once);
    }
  }
}

TEST_CASE("Of a mixture the chosen experts are read, and those that may stay do") {
  const temp_folder folder;
  packed_test_file f(folder.path(), 2, 4);
  if (!f.can_be_dropped())
    return;
  const auto pager = std::make_shared<weight_pager>(f.file, f.units, 3 * unit_size);
  weight_walk walk(pager, &f.pool);
  const auto choose = [&](std::vector<int> experts) { walk.choose(experts); };
  walk.enter(0);
  choose({1, 3});
  CHECK(f.has(0, 1));
  CHECK(f.has(0, 3));
  CHECK(!f.has(0, 0));
  CHECK(!f.has(0, 2));
  // Beside the experts there are the dense matrices of both units; the second's may be asked for ahead.
  const auto read = [&] { return pager->read_bytes(); };
  CHECK(read() > 2 * unit_size);
  CHECK(read() <= 4 * unit_size);
  walk.enter(1);
  choose({0});
  walk.enter(0);
  choose({1, 3});
  CHECK(read() <= 5 * unit_size); // nothing twice
  walk.enter(1);
  const auto before = read();
  choose({2}); // 1:0 was chosen once
  CHECK(!f.has(1, 0));
  CHECK(f.has(1, 2));
  CHECK(f.has(0, 1));
  CHECK(read() == before + unit_size);
}

TEST_CASE("A damaged block is told of when its unit is entered, and not before") {
  const temp_folder folder;
  packed_test_file f(folder.path(), 3);
  auto bytes = content(f.name);
  bytes[bytes.size() - 7] ^= 1; // of the last unit
  std::fstream(f.name, std::ios::binary | std::ios::in | std::ios::out).write(bytes.data(), std::ssize(bytes));
  f.drop();
  const auto pager = std::make_shared<weight_pager>(f.file, f.units, std::nullopt);
  weight_walk walk(pager, &f.pool);
  walk.enter(0);
  walk.enter(1);
  CHECK(failure_of([&] { walk.enter(2); }) ==
        f.name.string() +
          " is damaged, in the matrix `dense 2` (block 0 of 1 MiB): it was removed, and the next start "
          "packs the weights again");
  CHECK(failure_of([&] { walk.enter(2); }).find("is damaged") != std::string::npos); // whoever tries again is told, too
  CHECK(!fs::exists(f.name));
}

TEST_CASE("A file that was truncated while in use is told of where it is read") {
  const temp_folder folder;
  packed_test_file f(folder.path(), 4);
  auto units = f.units;
  for (auto& unit : units)
    unit.streamed = true;
  const auto pager = std::make_shared<weight_pager>(f.file, units, std::nullopt);
  weight_walk walk(pager, &f.pool);
  walk.enter(0);
  fs::resize_file(f.name, 4096);
  std::string why;
  for (std::size_t u = 1; u < 4 && why.empty(); ++u)
    why = failure_of([&] { walk.enter(u); });
  CHECK(why == f.name.string() + " can no longer be read: it was truncated while in use");
}

TEST_CASE("Several walks share a pager") {
  const temp_folder folder;
  packed_test_file f(folder.path(), 5);
  auto units = f.units;
  units[0].streamed = units[2].streamed = units[3].streamed = true;
  const auto pager = std::make_shared<weight_pager>(f.file, units, std::nullopt);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  const auto file = std::const_pointer_cast<packed_file>(f.file);
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      kernels::thread_pool pool(1);
      weight_walk walk(pager, &pool);
      for (int pass = 0; pass < 20 + t; ++pass)
        for (std::size_t u = 0; u < 5; ++u) {
          walk.enter(u);
          const auto memory = file->lend(units[u].dense[0]);
          wrong += static_cast<const char*>(memory.get())[unit_size - 1] != 7; // the length of "dense 0"
        }
    });
  for (auto& thread : threads)
    thread.join();
  CHECK(wrong == 0);
}
