#include "runtime/kv/kv_store.hpp"

#include "kernels/cpu/thread_pool.hpp"
#include "runtime/kv/chain_fetch.hpp"
#include "runtime/support/error.hpp"
#include "tests/rounds.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <numeric>
#include <random>
#include <sys/resource.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include <xxhash.h>

using namespace troupe;
namespace fs = std::filesystem;

namespace {

constexpr std::size_t bytes_of_block = 4096;

struct kv_folder {
  kv_folder() {
    std::string name = (fs::temp_directory_path() / "troupe-kv-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~kv_folder() {
    std::error_code ignored;
    fs::permissions(path, fs::perms::owner_all, ignored);
    fs::remove_all(path, ignored);
  }
  fs::path path;
};

numerics_id some_numerics(const std::string& model = "abc") {
  return {0, 16, "cpu", "avx2", "bf16", "bf16 8x64", model};
}

std::unique_ptr<kv_store> open_store(const fs::path& folder, std::size_t most = std::size_t(1) << 30,
                                     std::vector<std::string>* lines = nullptr,
                                     const numerics_id& id = some_numerics()) {
  return kv_store::open({folder, most}, id, bytes_of_block, [lines](std::string line) {
    if (lines)
      lines->push_back(std::move(line));
  });
}

/// The blocks of a chain: tokens, keys, and bytes that follow from them.
class test_chain {
public:
  test_chain(const kv_store& store, int first_token, int blocks, prefix_salt salt = 0)
    : pool_(bytes_of_block, static_cast<std::size_t>(blocks)), tokens(static_cast<std::size_t>(blocks) * 16) {
    std::iota(tokens.begin(), tokens.end(), first_token);
    auto key = root = store.keys().root(salt);
    for (int i = 0; i < blocks; ++i) {
      const auto part = std::span<const token_id>(tokens).subspan(static_cast<std::size_t>(i) * 16, 16);
      key = store.keys().next(key, part);
      auto image = pool_.take();
      image->key = key;
      image->place = i;
      std::ranges::copy(part, image->tokens.begin());
      fill(*image);
      images.push_back(std::move(image));
    }
  }

  static void fill(const block_image& image) {
    std::mt19937_64 random(image.key.low);
    for (std::size_t i = 0; i + 8 <= image.bytes.size(); i += 8) {
      const auto word = random();
      std::memcpy(image.bytes.data() + i, &word, 8);
    }
  }

private:
  image_pool pool_;

public:
  std::vector<token_id> tokens;
  block_key root;
  std::vector<block_image_ptr> images;
};

/// What a store has of a block.
kv_store::outcome read_back(kv_store& store, const block_image& of, bool* equal = nullptr) {
  static const image_pool pool(bytes_of_block, 4);
  const auto image = pool.take();
  image->key = of.key;
  image->place = of.place;
  image->tokens = of.tokens;
  std::ranges::fill(image->bytes, std::byte{0});
  const auto outcome = store.read(*image);
  if (equal)
    *equal = std::ranges::equal(image->bytes, of.bytes);
  return outcome;
}

using enum kv_store::outcome;

} // namespace

TEST_CASE(
  "a block that was written is read by the next process, byte for byte; another salt or model does not have it") {
  const kv_folder folder;
  {
    const auto store = open_store(folder.path / "kv");
    REQUIRE(store);
    const test_chain chain(*store, 0, 3);
    for (const auto& image : chain.images)
      CHECK(store->write(*image));
    CHECK(store->counters().written == 3);
    CHECK(store->write(*chain.images[0])); // is there
    CHECK(store->counters().written == 3);
  }
  const auto store = open_store(folder.path / "kv");
  CHECK(store->counters().bytes > 3 * bytes_of_block);
  const test_chain chain(*store, 0, 3), salted_chain(*store, 0, 3, salted(0, 7));
  for (const auto& image : chain.images) {
    bool equal = false;
    CHECK(store->contains(image->key));
    CHECK(read_back(*store, *image, &equal) == found);
    CHECK(equal);
  }
  CHECK(read_back(*store, *salted_chain.images[0]) == absent);
  const auto other = open_store(folder.path / "kv", std::size_t(1) << 30, nullptr, some_numerics("other"));
  const test_chain same_tokens(*other, 0, 1);
  CHECK(read_back(*other, *same_tokens.images[0]) == absent);
  CHECK(same_tokens.images[0]->key != chain.images[0]->key);
}

TEST_CASE("folders and files are for their owner alone") {
  const kv_folder folder;
  const auto store = open_store(folder.path / "a" / "kv");
  const test_chain chain(*store, 0, 1);
  REQUIRE(store->write(*chain.images[0]));
  const auto mode = [](const fs::path& path) {
    struct stat s {};
    REQUIRE(stat(path.c_str(), &s) == 0);
    return s.st_mode & 0777;
  };
  const auto file = store->file_of(chain.images[0]->key);
  CHECK(mode(file) == 0600);
  CHECK(mode(file.parent_path()) == 0700);
  CHECK(mode(folder.path / "a" / "kv") == 0700);
  CHECK(mode(folder.path / "a" / "kv" / "secret") == 0600);
}

TEST_CASE("what is not a folder is refused; a folder that cannot be made, or read, is told of in a sentence") {
  const kv_folder folder;
  std::ofstream(folder.path / "file") << "x";
  CHECK_THROWS_AS(open_store(folder.path / "file"), failure);
  std::vector<std::string> lines;
  CHECK(open_store(folder.path / "file" / "below", 1, &lines) == nullptr);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].find("cached prefixes are not kept in ") == 0);
}

TEST_CASE("a folder that cannot be written to is still read, with one sentence") {
  if (geteuid() == 0) // whom permissions do not stop
    return;
  const kv_folder folder;
  {
    const auto store = open_store(folder.path);
    const test_chain chain(*store, 0, 1);
    store->write(*chain.images[0]);
  }
  fs::permissions(folder.path, fs::perms::owner_read | fs::perms::owner_exec);
  std::vector<std::string> lines;
  const auto store = open_store(folder.path, std::size_t(1) << 30, &lines);
  REQUIRE(store);
  CHECK(lines.size() == 1);
  const test_chain chain(*store, 0, 2);
  CHECK(read_back(*store, *chain.images[0]) == found);
  CHECK_FALSE(store->write(*chain.images[1]));
  CHECK_FALSE(store->write(*chain.images[1]));
  CHECK(store->counters().unwritten == 2);
  CHECK_FALSE(store->take_trouble());
}

TEST_CASE("a disk that takes no more is told of once, leaves no part of a file, and writing rests") {
  const kv_folder folder;
  const auto store = open_store(folder.path);
  const test_chain chain(*store, 0, 2);
  // The limit of file sizes stands for the end of the disk.
  struct rlimit usual {};
  getrlimit(RLIMIT_FSIZE, &usual);
  const struct rlimit little { 2000, usual.rlim_max };
  const auto ignored = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &little);
  CHECK_FALSE(store->write(*chain.images[0]));
  setrlimit(RLIMIT_FSIZE, &usual);
  std::signal(SIGXFSZ, ignored);
  const auto line = store->take_trouble();
  REQUIRE(line);
  CHECK(line->find("cached prefixes cannot be kept in ") == 0);
  CHECK_FALSE(store->write(*chain.images[1])); // it rests
  CHECK_FALSE(store->take_trouble());
  CHECK(store->counters().unwritten == 2);
  const auto place = store->file_of(chain.images[0]->key).parent_path();
  CHECK(fs::is_empty(place));
}

TEST_CASE("of too many files those used longest ago are removed, the end of a chain before its beginning") {
  const kv_folder folder;
  const auto each = 2 * bytes_of_block; // with its head, in whole pages
  const auto store = open_store(folder.path, 10 * each);
  const test_chain old_chain(*store, 0, 5), young(*store, 1000, 6);
  for (const auto& image : old_chain.images)
    REQUIRE(store->write(*image));
  for (const auto& image : old_chain.images) { // an hour passes
    const auto file = store->file_of(image->key);
    fs::last_write_time(file, fs::last_write_time(file) - std::chrono::hours(1));
  }
  for (const auto& image : young.images)
    REQUIRE(store->write(*image));
  CHECK(store->counters().removed == 2); // down to nine tenths
  CHECK(store->counters().bytes <= 9 * each);
  CHECK(store->contains(old_chain.images[0]->key));
  CHECK_FALSE(store->contains(old_chain.images[4]->key));
  for (const auto& image : young.images)
    CHECK(store->contains(image->key));
}

TEST_CASE("what another process removes is a miss, and what it has written is found") {
  const kv_folder folder;
  const auto one = open_store(folder.path), other = open_store(folder.path);
  const test_chain chain(*one, 0, 2);
  REQUIRE(one->write(*chain.images[0]));
  CHECK(read_back(*other, *chain.images[0]) == found);
  CHECK(other->write(*chain.images[0]));
  CHECK(other->counters().written == 0);
  fs::remove_all(folder.path); // by hand, while both run
  CHECK(read_back(*one, *chain.images[0]) == absent);
  CHECK_FALSE(one->write(*chain.images[1])); // its folder is gone
}

TEST_CASE("two processes write the same blocks at once") {
  const kv_folder folder;
  const auto one = open_store(folder.path), other = open_store(folder.path);
  const test_chain chain(*one, 0, 64);
  const auto write_all = [&](kv_store& store) {
    for (const auto& image : chain.images)
      store.write(*image);
  };
  std::thread beside([&] { write_all(*other); });
  write_all(*one);
  beside.join();
  for (const auto& image : chain.images) {
    bool equal = false;
    CHECK(read_back(*one, *image, &equal) == found);
    CHECK(equal);
  }
  CHECK(one->counters().damaged + other->counters().damaged == 0);
}

TEST_CASE("a secret of a wrong size is replaced, and whatever was kept under it is not found") {
  const kv_folder folder;
  block_key key;
  {
    const auto store = open_store(folder.path);
    const test_chain chain(*store, 0, 1);
    store->write(*chain.images[0]);
    key = chain.images[0]->key;
  }
  fs::resize_file(folder.path / "secret", 17);
  const auto store = open_store(folder.path);
  REQUIRE(store);
  const test_chain chain(*store, 0, 1);
  CHECK(chain.images[0]->key != key);
  CHECK(read_back(*store, *chain.images[0]) == absent);
  CHECK(fs::file_size(folder.path / "secret") == block_keys::secret_bytes);
}

TEST_CASE("names that are no files, or of any size, cost a look") {
  const kv_folder folder;
  const auto store = open_store(folder.path);
  const test_chain chain(*store, 0, 4);
  REQUIRE(store->write(*chain.images[0]));
  const auto place = [&](int i) {
    const auto file = store->file_of(chain.images[static_cast<std::size_t>(i)]->key);
    fs::create_directories(file.parent_path());
    return file;
  };
  fs::create_directory(place(1));
  fs::create_symlink("/dev/zero", place(2));
  REQUIRE(mkfifo(place(3).c_str(), 0600) == 0);
  fs::resize_file(place(0), std::uintmax_t(1) << 40); // sparse
  CHECK(read_back(*store, *chain.images[0]) == damaged);
  CHECK(read_back(*store, *chain.images[1]) == damaged);
  CHECK(read_back(*store, *chain.images[2]) == absent);
  CHECK(read_back(*store, *chain.images[3]) == damaged);
}

// 100,000 files were damaged once; CI damages fewer. TROUPE_DAMAGED_FILES says how many.
TEST_CASE("a file damaged at random is never believed: it is skipped, counted and removed") {
  const kv_folder folder;
  const auto store = open_store(folder.path);
  const test_chain chain(*store, 0, 64);
  std::mt19937 random(5);
  const auto* asked = std::getenv("TROUPE_DAMAGED_FILES");
  const int files = asked ? std::atoi(asked) : rounds(1500);
  std::uint64_t really_damaged = 0;
  for (int n = 0; n < files; ++n) {
    const auto& image = *chain.images[random() % chain.images.size()];
    REQUIRE(store->write(image));
    const auto file = store->file_of(image.key);
    std::string content;
    {
      std::ifstream in(file, std::ios::binary);
      content.assign(std::istreambuf_iterator<char>(in), {});
    }
    const auto whole = content;
    const auto& donor = *chain.images[random() % chain.images.size()];
    switch (random() % 7) {
      case 0: content[random() % content.size()] ^= static_cast<char>(1 << random() % 8); break; // a bit
      case 1: content.resize(random() % content.size()); break;
      case 2: content.append(1 + random() % 5000, 'x'); break;
      case 3: { // a stretch of zeros, as after a loss of power
        const auto at = random() % content.size();
        std::fill_n(content.begin() + static_cast<std::ptrdiff_t>(at),
                    std::min<std::size_t>(random() % 2000, content.size() - at), '\0');
        break;
      }
      case 4: content[random() % 136] ^= static_cast<char>(1 + random() % 255); break; // in the head
      case 5: { // the file of another block under this name
        store->write(donor);
        std::ifstream in(store->file_of(donor.key), std::ios::binary);
        content.assign(std::istreambuf_iterator<char>(in), {});
        break;
      }
      default: // anything
        for (auto& c : content)
          c = static_cast<char>(random());
    }
    std::ofstream(file, std::ios::binary | std::ios::trunc) << content;
    bool equal = false;
    const auto outcome = read_back(*store, image, &equal);
    if (content == whole) {
      CHECK(outcome == found);
      CHECK(equal);
      continue;
    }
    ++really_damaged;
    REQUIRE(outcome == damaged);
    REQUIRE_FALSE(store->contains(image.key));
  }
  CHECK(store->counters().damaged == really_damaged);
  CHECK(really_damaged > static_cast<std::uint64_t>(files) / 2);
}

TEST_CASE("files that are not of blocks stay, whatever they are called") {
  const kv_folder folder;
  const auto put = [&](const fs::path& file, const char* text) {
    fs::create_directories(folder.path / file.parent_path());
    std::ofstream(folder.path / file) << text;
    fs::last_write_time(folder.path / file, fs::file_time_type::clock::now() - std::chrono::hours(9));
    return folder.path / file;
  };
  const auto id = to_hex(some_numerics().hash());
  const auto store = open_store(folder.path, 1);
  const std::string like_ours = std::string(30, 'a') + ".kv";
  std::vector mine{put("main.kv", "BoxLayout:"), put("app/ui/main.kv", "BoxLayout:"), put("a/b/c/.partial-1", "x"),
                   put(id + "/a0/main.kv", "BoxLayout:"), put(id + "/a0/" + like_ours, "BoxLayout:")};
  const auto empty = put(id + "/a0/b" + like_ours.substr(1), ""), left = put(id + "/a0/.partial-1-1", "x");
  const auto elsewhere = folder.path / "elsewhere" / "a0";
  fs::create_directories(elsewhere);
  mine.push_back(put("elsewhere/a0/" + like_ours, ""));
  fs::create_directory_symlink(elsewhere.parent_path(), folder.path / std::string(32, 'e'));
  const test_chain chain(*store, 0, 1);
  REQUIRE(store->write(*chain.images[0])); // one more than there is room for
  CHECK_FALSE(store->contains(chain.images[0]->key));
  CHECK_FALSE(fs::exists(empty)); // what a loss of power leaves
  CHECK_FALSE(fs::exists(left));
  for (const auto& file : mine) {
    CAPTURE(file);
    CHECK(fs::exists(file));
  }
}

TEST_CASE("nothing is written to, or read from, what others may have made") {
  const kv_folder folder;
  const auto id = to_hex(some_numerics().hash());
  // A link where a file of ours would be.
  std::ofstream(folder.path / "precious") << "precious";
  fs::create_directories(folder.path / "kv" / id);
  fs::permissions(folder.path / "kv" / id, fs::perms::owner_all);
  fs::create_symlink(folder.path / "precious", folder.path / "kv" / id / "numerics");
  const auto store = open_store(folder.path / "kv");
  REQUIRE(store);
  CHECK(fs::file_size(folder.path / "precious") == 8);
  const test_chain chain(*store, 0, 1);
  REQUIRE(store->write(*chain.images[0]));
  // A block that somebody made who cannot read the secret: its checksum is right, but for that.
  const auto file = store->file_of(chain.images[0]->key);
  std::ifstream in(file, std::ios::binary);
  std::string content(std::istreambuf_iterator<char>(in), {});
  content[200] ^= 1;
  auto summed = content;
  summed.erase(128, 8);
  const std::uint64_t sum = XXH3_64bits(summed.data(), summed.size());
  std::memcpy(content.data() + 128, &sum, sizeof sum);
  std::ofstream(file, std::ios::binary) << content;
  CHECK(read_back(*store, *chain.images[0]) == damaged);
  // Folders that others can write to.
  const auto refusal = [&](const fs::path& place) {
    std::vector<std::string> lines;
    CHECK(open_store(place, 1, &lines) == nullptr);
    return lines.empty() ? "" : lines[0];
  };
  fs::create_directory(folder.path / "open");
  fs::permissions(folder.path / "open", fs::perms::all);
  CHECK(refusal(folder.path / "open").find("everybody may write to it (mode 0777)") != std::string::npos);
  CHECK(fs::is_empty(folder.path / "open"));
  fs::permissions(folder.path / "kv" / "secret", fs::perms::others_read, fs::perm_options::add);
  CHECK(refusal(folder.path / "kv").find("others than this user could have written or read it") != std::string::npos);
  if (geteuid() != 0) // who alone can give folders away
    return;
  fs::create_directory(folder.path / "theirs");
  REQUIRE(chown((folder.path / "theirs").c_str(), 12345, 12345) == 0);
  CHECK(refusal(folder.path / "theirs").find("its owner is another user (uid 12345)") != std::string::npos);
  CHECK(fs::is_empty(folder.path / "theirs"));
}

TEST_CASE("a chain is read portion by portion up to its first gap, and not where computing is faster") {
  const kv_folder folder;
  const auto store = open_store(folder.path);
  const test_chain chain(*store, 0, 10);
  for (int i = 0; i < 10; ++i)
    if (i != 7)
      store->write(*chain.images[static_cast<std::size_t>(i)]);
  const image_pool images(bytes_of_block, 4);
  read_time times;
  {
    chain_fetch fetch(*store, times, chain.tokens, 1, chain.images[0]->key, 0);
    std::vector<std::int32_t> places;
    while (fetch.goes_on())
      for (const auto& image : fetch.next(images, 3)) {
        CHECK(std::ranges::equal(image->bytes, chain.images[static_cast<std::size_t>(image->place)]->bytes));
        places.push_back(image->place);
      }
    CHECK(places == std::vector<std::int32_t>{1, 2, 3, 4, 5, 6});
  }
  CHECK(times.block_ms() > 0);
  {
    chain_fetch fetch(*store, times, chain.tokens, 0, chain.root, 1e9);
    const auto held = fetch.next(images, 100);
    CHECK(held.size() == 4); // all images that there are
    CHECK(fetch.goes_on());
    CHECK(fetch.next(images, 100).empty());
  }
  CHECK_FALSE(chain_fetch(*store, times, chain.tokens, 0, chain.root, 1e-9).goes_on());
  times.observe(1e9); // the machine stood still
  int refused = 0;
  while (!chain_fetch(*store, times, chain.tokens, 0, chain.root, 1).goes_on())
    REQUIRE(++refused < 200);
  CHECK(refused > 10);
  chain_fetch nothing(*store, times, std::span<const token_id>(chain.tokens).first(10), 0, chain.root, 0);
  CHECK(nothing.next(images, 4).empty());
  CHECK_FALSE(nothing.goes_on());
}

namespace {

constexpr std::size_t bytes_of_state = 9000;

void write_state(kv_store& store, const block_image& behind, const image_pool& images) {
  const auto image = images.take();
  image->key = store.keys().of_state(behind.key);
  image->place = behind.place;
  image->tokens = behind.tokens;
  image->state = true;
  std::ranges::fill(image->bytes, static_cast<std::byte>(behind.place));
  CHECK(store.write(*image));
}

/// The places of blocks that a fetch reads, and that of the state behind them, or -1.
std::pair<std::vector<std::int32_t>, std::int32_t> read_all(chain_fetch fetch, const image_pool& images,
                                                            const image_pool& states) {
  std::vector<std::int32_t> places;
  std::int32_t state = -1;
  while (fetch.goes_on()) {
    for (const auto& image : fetch.next(images, 2))
      places.push_back(image->place);
    if (const auto last = fetch.state(states)) {
      CHECK(state == -1);
      state = last->place;
      CHECK(std::ranges::all_of(last->bytes, [&](std::byte b) { return b == static_cast<std::byte>(state); }));
    }
  }
  return {places, state};
}

} // namespace

TEST_CASE("with recurrent layers a chain is read as far as its last state, which comes behind it") {
  const kv_folder folder;
  const auto store = open_store(folder.path);
  const test_chain chain(*store, 0, 10);
  const image_pool images(bytes_of_block, 4), states(bytes_of_state, 2);
  read_time times;
  using places = std::vector<std::int32_t>;
  const auto read = [&](std::int32_t first, std::int32_t reached) {
    const auto& before = reached == 0 ? chain.root : chain.images[static_cast<std::size_t>(reached) - 1]->key;
    return read_all({*store, times, chain.tokens, first, before, 0, std::chrono::steady_clock::now, reached}, images,
                    states);
  };
  for (const auto& image : chain.images)
    store->write(*image);
  CHECK(read(0, 0) == std::pair(places{}, -1)); // blocks alone are of no use
  for (const std::size_t place : {2, 5, 9})     // the last token is computed: behind the last block none is wanted
    write_state(*store, *chain.images[place], states);
  CHECK(read(0, 0) == std::pair(places{0, 1, 2, 3, 4, 5}, 5));
  CHECK(read(4, 3) == std::pair(places{4, 5}, 5));
  CHECK(read(8, 1) == std::pair(places{}, 5)); // all blocks are cached, but no state
  CHECK(read(8, 6) == std::pair(places{}, -1));
  const auto damage = [&](const block_key& key) { fs::resize_file(store->file_of(key), 100); };
  damage(chain.images[4]->key);
  CHECK(read(0, 0) == std::pair(places{0, 1, 2, 3}, 2)); // as far as can be
  store->write(*chain.images[4]);
  damage(store->keys().of_state(chain.images[5]->key));
  CHECK(read(0, 0) == std::pair(places{0, 1, 2, 3, 4, 5}, 2));
  CHECK(read(0, 0) == std::pair(places{0, 1, 2}, 2)); // the damaged one is gone
}

TEST_CASE("a state is not taken for a block, and has a file of its own size") {
  const kv_folder folder;
  const auto store = open_store(folder.path);
  const test_chain chain(*store, 0, 1);
  const image_pool states(bytes_of_state, 2);
  write_state(*store, *chain.images[0], states);
  CHECK_FALSE(store->contains(chain.images[0]->key));
  const auto key = store->keys().of_state(chain.images[0]->key);
  CHECK(store->contains(key));
  CHECK(fs::file_size(store->file_of(key)) == bytes_of_state + 136);
  CHECK_FALSE(key == store->keys().root(0));
  const image_pool others(bytes_of_state + 1, 1); // another shape would be another id, but nothing is trusted
  const auto image = others.take();
  image->key = key;
  image->tokens = chain.images[0]->tokens;
  CHECK(store->read(*image) == kv_store::outcome::damaged);
}

TEST_CASE("an id is told by every part of it") {
  const auto id = some_numerics();
  CHECK(id.text().find("layers 0-15, cpu avx2, computed in bf16, K and V bf16 8x64, model abc, form 1") == 0);
  std::vector<numerics_id> others(7, id);
  others[0].first_layer = 1;
  others[1].end_layer = 17;
  others[2].backend = "cuda";
  others[3].instructions = "avx512";
  others[4].precision = "f32";
  others[5].kv = "int8 8x64";
  others[6].model = "abd";
  for (const auto& other : others)
    CHECK(other.hash() != id.hash());
}

TEST_CASE("a model's identity is of its files' bytes, not of their names") {
  const kv_folder folder;
  kernels::thread_pool pool(2);
  const auto write_file = [&](const char* name, std::string_view content) {
    std::ofstream(folder.path / name, std::ios::binary) << content;
    return state_of(folder.path / name);
  };
  const std::string large(3'000'000, 'w');
  const std::vector one{write_file("config.json", "{}"), write_file("model", large)};
  const std::vector renamed{write_file("b", "{}"), write_file("c", large)};
  auto changed = large;
  changed[2'500'000] = 'v';
  const std::vector other{write_file("d", "{}"), write_file("e", changed)};
  const std::vector divided{write_file("f", "{"), write_file("g", "}" + large)};
  CHECK(identity_of(one, pool).size() == 32);
  CHECK(identity_of(one, pool) == identity_of(renamed, pool));
  CHECK(identity_of(one, pool) != identity_of(other, pool));
  CHECK(identity_of(one, pool) != identity_of(divided, pool));
}
