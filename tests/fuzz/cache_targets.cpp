// Files that we wrote ourselves and that somebody may have damaged: K and V on disk, packed weights, lengths of answers.
#include "kernels/cpu/thread_pool.hpp"
#include "runtime/checkpoint/packed/packed_cache.hpp"
#include "runtime/engine/kept_lengths.hpp"
#include "runtime/kv/kv_store.hpp"
#include "runtime/scheduling/lengths/length_model.hpp"
#include "tests/fuzz/fuzz_target.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace troupe::test {

namespace fs = std::filesystem;

namespace {

/// An input is what happens to a good file: each 4 bytes are a place and a value that is added there; behind the mark
/// the file is cut, or goes on.
std::string damaged(std::string good, std::string_view input) {
  const auto mark = input.find("===");
  auto edits = input.substr(0, mark);
  for (; edits.size() >= 4; edits.remove_prefix(4)) {
    std::uint16_t place = 0, value = 0;
    std::memcpy(&place, edits.data(), 2);
    std::memcpy(&value, edits.data() + 2, 2);
    if (!good.empty())
      good[place % good.size()] = static_cast<char>(good[place % good.size()] + value);
  }
  if (mark != input.npos) {
    const auto rest = input.substr(mark + 3);
    if (rest.size() % 2 == 0)
      good += rest;
    else
      good.resize(good.size() - std::min(good.size(), rest.size() * 7));
  }
  return good;
}

texts edits() { return {"", std::string("\0\0\1\0", 4), std::string("\x40\1\1\0====", 8), "===x"}; }

std::string kv_file(std::string_view input) {
  constexpr std::size_t block = 512;
  static const auto store = kv_store::open({fuzz_folder() / "kv", std::size_t(1) << 20},
                                           {0, 16, "cpu", "avx2", "bf16", "bf16 8x64", "abc"}, block, [](log_line) {});
  static const image_pool pool(block, 2);
  const auto image = pool.take();
  image->place = 0;
  std::iota(image->tokens.begin(), image->tokens.end(), 7);
  image->key = store->keys().next(store->keys().root(0), image->tokens);
  for (std::size_t i = 0; i < block; ++i)
    image->bytes[i] = static_cast<std::byte>(i * 5);
  if (!store->write(*image))
    broken("a block that cannot be written");
  const auto file = store->file_of(image->key);
  const auto good = data_file(file);
  const auto bad = damaged(good, input);
  fs::remove(file);
  fuzz_file(fs::relative(file, fuzz_folder()).string(), bad);
  fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
  std::ranges::fill(image->bytes, std::byte{0});
  const auto outcome = store->read(*image);
  // The clock of the last use is not part of what is checked.
  for (std::size_t i = 0; outcome == kv_store::outcome::found && i < block; ++i)
    if (image->bytes[i] != static_cast<std::byte>(i * 5))
      broken("a damaged block that is believed");
  if (outcome == kv_store::outcome::damaged && fs::exists(file))
    broken("a damaged block that is kept");
  if (bad == good && outcome != kv_store::outcome::found)
    broken("a good block that is not believed");
  return outcome == kv_store::outcome::found ? "found" : outcome == kv_store::outcome::absent ? "absent" : "damaged";
}

std::string packed_file(std::string_view input) {
  static const packed_contents contents{"tiny model",
                                        "bf16 int8",
                                        "avx512",
                                        3,
                                        {{"/models/a.safetensors", 1000, 17, 18}},
                                        {{"first", 128}, {"second", 4224}}};
  static const auto folder = fuzz_folder() / "packed";
  static kernels::thread_pool pool(1);
  const auto bytes_of = [](std::size_t count) {
    std::vector<std::byte> bytes(count);
    for (std::size_t i = 0; i < count; ++i)
      bytes[i] = static_cast<std::byte>(i * 7);
    return bytes;
  };
  const auto load = [&] {
    std::size_t found = 0;
    packed_cache cache({.folder = folder, .most_bytes = std::size_t(1) << 30}, contents, pool, [](log_line) {});
    for (const auto& entry : contents.matrices) {
      const auto bytes = bytes_of(entry.bytes);
      if (const auto kept = cache.find(entry.name)) {
        const auto place = cache.file()->layout().place_of(entry.name);
        cache.file()->read({&place, 1}, pool);
        if (std::memcmp(kept.get(), bytes.data(), bytes.size()) != 0)
          broken("a damaged matrix that is believed");
        ++found;
      } else {
        const std::span<const std::byte> part(bytes);
        cache.add(entry.name, {&part, 1});
      }
    }
    cache.finish();
    return found;
  };
  static const std::string good = [&] {
    load();
    return data_file(packed_file_name(folder, contents));
  }();
  const auto file = packed_file_name(folder, contents);
  const auto bad = damaged(good, input);
  fs::remove(file);
  fuzz_file(fs::relative(file, fuzz_folder()).string(), bad);
  fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
  return std::to_string(load());
}

std::string lengths_file(std::string_view input) {
  static const std::string good = [] {
    length_model model;
    const length_signs of{.chain = {1, 2}, .prompt_tokens = 40, .most = 100, .variant = 3, .client = 4};
    model.learn(of, 17, false, model.predict(of));
    return model.saved();
  }();
  const bool whole = input.starts_with("troupe lengths ");
  const auto file = fuzz_file("lengths", whole ? std::string(input) : damaged(good, input));
  std::string said;
  const kept_lengths kept(file, [&](const log_line& line) { said = line.text; });
  length_model model;
  if (!kept.learned().empty() && !model.load(kept.learned()))
    broken("lengths that are kept and cannot be loaded");
  return said.empty() ? "kept" : "damaged";
}

} // namespace

std::vector<fuzz_target> cache_targets() {
  return {{"packed", packed_file, edits}, {"kv_files", kv_file, edits}, {"lengths", lengths_file, edits}};
}

} // namespace troupe::test
