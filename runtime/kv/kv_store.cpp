#include "runtime/kv/kv_store.hpp"

#include "runtime/support/error.hpp"
#include "runtime/support/fault_injection.hpp"
#include "runtime/support/text/byte_size.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <new>
#include <optional>
#include <span>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include <xxhash.h>

namespace troupe {

namespace fs = std::filesystem;

namespace {

constexpr std::array<char, 8> kv_magic{'t', 'r', 'o', 'u', 'p', 'e', 'k', 'v'};
constexpr std::uint32_t kv_file_version = 2;
constexpr std::size_t kv_piece = 128 << 10;      // bytes read before they are summed, still in a core's cache
constexpr std::int64_t rest_ns = 60'000'000'000; // between attempts to write, after a failure
constexpr std::int64_t age_step_ms = 600'000;
constexpr std::string_view kv_aside = ".partial-", kv_ending = ".kv";

std::int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

std::int64_t unix_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

/// The checksum of a file, under the folder's secret, which outlives it.
class block_sum {
public:
  explicit block_sum(const own_folder::secret_bytes& secret) : state_(XXH3_createState()) {
    if (!state_)
      throw std::bad_alloc();
    XXH3_64bits_reset_withSecret(state_.get(), secret.data(), secret.size());
  }
  void add(const void* data, std::size_t bytes) { XXH3_64bits_update(state_.get(), data, bytes); }
  std::uint64_t value() const { return XXH3_64bits_digest(state_.get()); }

private:
  struct free_state {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, free_state> state_;
};

/// What a file takes of the disk, about.
std::size_t on_disk(std::size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

bool is_hex(std::string_view name, std::size_t digits) {
  return name.size() == digits && name.find_first_not_of("0123456789abcdef") == name.npos;
}

/// "xx/rest-of-key.kv"
std::string name_of(const block_key& key) {
  const auto name = to_hex({key.high, key.low});
  return name.substr(0, 2) + "/" + name.substr(2) + std::string(kv_ending);
}

struct kept_file {
  std::shared_ptr<const own_folder> numerics;
  std::string name; // within it
  std::size_t bytes = 0;
  std::int64_t used = 0;
};

/// The files of blocks of all who share the folder. What else lies there is not touched, except what writers have
/// left behind that died.
std::vector<kept_file> files_in(const own_folder& all) {
  std::vector<kept_file> found;
  for (const auto& id : all.names()) {
    if (!is_hex(id, 32))
      continue;
    auto opened = all.within(id, false);
    if (!opened)
      continue;
    const auto numerics = std::make_shared<const own_folder>(std::move(*opened));
    for (const auto& part : numerics->names()) {
      const auto folder = is_hex(part, 2) ? numerics->within(part, false) : std::nullopt;
      if (!folder)
        continue;
      for (const auto& name : folder->names()) {
        struct stat s {};
        if (fstatat(folder->get(), name.c_str(), &s, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(s.st_mode))
          continue;
        if (name.starts_with(kv_aside)) {
          if (std::time(nullptr) - s.st_mtim.tv_sec > 600)
            folder->remove(name);
        } else if (name.ends_with(kv_ending) && is_hex(std::string_view(name).substr(0, name.size() - 3), 30)) {
          found.push_back({numerics, part + "/" + name, on_disk(static_cast<std::size_t>(s.st_size)),
                           std::int64_t{s.st_mtim.tv_sec} * 1'000'000'000 + s.st_mtim.tv_nsec});
        }
      }
    }
  }
  return found;
}

/// Whether a file begins as those of blocks do, or as what a loss of power has left of one.
bool is_block(const kept_file& file) {
  const auto opened = file.numerics->open(file.name);
  std::array<char, kv_magic.size()> start{};
  if (!opened)
    return false;
  read_whole(opened, start.data(), start.size());
  return start == kv_magic || std::ranges::all_of(start, [](char c) { return c == 0; });
}

} // namespace

/// The beginning of a file, little-endian as all machines that this runs on. The checksum is over what is before it and
/// over the block.
struct kv_store::head {
  std::array<char, 8> magic = kv_magic;
  std::uint32_t version = kv_file_version;
  std::uint32_t bytes = sizeof(head);
  std::array<std::uint64_t, 2> numerics{};
  block_key key;
  std::int32_t place = 0;
  std::int32_t reserved = 0;
  std::array<token_id, kernels::block_tokens> tokens{};
  std::uint64_t block_bytes = 0;
  std::uint64_t checksum = 0;
};

std::unique_ptr<kv_store> kv_store::open(kv_store_options options, const numerics_id& id, std::size_t block_bytes,
                                         const log_sink& log) {
  static_assert(sizeof(head) == 16 + 16 + 16 + 8 + 64 + 16);
  try {
    own_folder folder(options.folder);
    const auto secret = folder.secret();
    std::unique_ptr<kv_store> store(new kv_store(std::move(folder), options.most_bytes, id, block_bytes, secret));
    if (const auto line = store->take_trouble())
      log(warning(*line));
    return store;
  } catch (const failure& f) {
    std::error_code failed; // something above it may be no folder
    if (f.what_failed().code == errc::bad_request && fs::exists(options.folder, failed))
      refuse_field("kv_disk", "must name a folder, which " + options.folder.string() + " is not");
    log(warning("cached prefixes are not kept in " + f.what_failed().message));
    return nullptr;
  }
}

kv_store::kv_store(own_folder folder, std::size_t most_bytes, const numerics_id& id, std::size_t block_bytes,
                   const own_folder::secret_bytes& secret)
  : folder_(std::move(folder)),
    most_bytes_(most_bytes),
    numerics_(id.hash()),
    own_(folder_.within(to_hex(numerics_), true)),
    block_bytes_(block_bytes),
    secret_(secret),
    keys_(secret, numerics_) {
  if (const auto where = folder_.path() / to_hex(numerics_); !own_ || access(where.c_str(), W_OK) != 0)
    trouble(where.string(), errno);
  // Written for people who look into the folder.
  else if (const auto text = id.text() + "\n"; const auto made = own_->create("numerics"))
    write_whole(made, text.data(), text.size());
  trim(most_bytes_);
}

kv_store::head kv_store::head_of(const block_image& image) const {
  head h;
  h.numerics = numerics_;
  h.key = image.key;
  h.place = image.place;
  h.tokens = image.tokens;
  h.block_bytes = image.bytes.size();
  return h;
}

fs::path kv_store::file_of(const block_key& key) const { return folder_.path() / to_hex(numerics_) / name_of(key); }

bool kv_store::contains(const block_key& key) const {
  return own_ && faccessat(own_->get(), name_of(key).c_str(), R_OK, 0) == 0;
}

kv_store::outcome kv_store::read(block_image& image) {
  if (!own_)
    return outcome::absent;
  const auto name = name_of(image.key);
  const auto opened = own_->open(name);
  if (!opened && errno != EPERM)
    return outcome::absent;
  // All of it at once: what is read ahead of small reads begins small.
  posix_fadvise(opened.get(), 0, 0, POSIX_FADV_WILLNEED);
  const auto expected = head_of(image);
  head found;
  block_sum sum(secret_);
  struct stat s {};
  const auto bytes = image.bytes.size();
  // Sizes are those expected, or nothing is read.
  bool good = opened && fstat(opened.get(), &s) == 0 && s.st_size == static_cast<off_t>(sizeof(head) + bytes) &&
    !fault_injection::refuses("disk") && read_whole(opened, &found, sizeof found);
  if (good) {
    auto same = expected;
    same.checksum = found.checksum;
    same.place = found.place; // of no matter to who reads it
    good = std::memcmp(&same, &found, sizeof same) == 0;
  }
  if (good)
    sum.add(&found, sizeof found - sizeof found.checksum);
  for (std::size_t at = 0; good && at < bytes; at += kv_piece) {
    const auto part = image.bytes.subspan(at, std::min(kv_piece, bytes - at));
    good = read_whole(opened, part.data(), part.size());
    if (good)
      sum.add(part.data(), part.size());
  }
  if (!good || sum.value() != found.checksum) {
    ++damaged_;
    own_->remove(name);
    return outcome::damaged;
  }
  if (std::int64_t{s.st_mtim.tv_sec} * 1000 < unix_ms() / age_step_ms * age_step_ms)
    touch(opened.get(), image.place);
  ++read_;
  return outcome::found;
}

// Times are those of ten minutes together; within these, what is further along a chain counts as older.
void kv_store::touch(int opened, std::int32_t place) const {
  const auto used = age_step_ms * (unix_ms() / age_step_ms + 1) -
    std::min<std::int64_t>(std::int64_t{place} * 9, age_step_ms - 1);
  const timespec at{static_cast<time_t>(used / 1000), static_cast<long>(used % 1000 * 1'000'000)};
  const timespec times[] = {at, at};
  futimens(opened, times);
}

bool kv_store::write(const block_image& image) {
  if (now_ns() < closed_until_.load()) {
    ++unwritten_;
    return false;
  }
  const auto name = name_of(image.key), part = name.substr(0, 2);
  const auto refuse = [&] {
    trouble((folder_.path() / to_hex(numerics_) / part).string(), errno);
    ++unwritten_;
    return false;
  };
  errno = EPERM;
  if (!own_)
    return refuse();
  if (faccessat(own_->get(), name.c_str(), F_OK, 0) == 0)
    return true;
  auto h = head_of(image);
  block_sum sum(secret_);
  sum.add(&h, sizeof h - sizeof h.checksum);
  sum.add(image.bytes.data(), image.bytes.size());
  h.checksum = sum.value();
  if (mkdirat(own_->get(), part.c_str(), 0700) != 0 && errno != EEXIST)
    return refuse();
  const auto beside = part + "/" + std::string(kv_aside) + std::to_string(getpid()) + "-" +
    std::to_string(++files_made_);
  const auto made = own_->create(beside);
  if (!made)
    return refuse();
  errno = ENOSPC;
  const bool whole = !fault_injection::refuses("disk") && write_whole(made, &h, sizeof h) &&
    write_whole(made, image.bytes.data(), image.bytes.size());
  if (whole)
    touch(made.get(), image.place);
  if (!whole || renameat(own_->get(), beside.c_str(), own_->get(), name.c_str()) != 0) {
    const auto why = errno;
    own_->remove(beside);
    errno = why;
    return refuse();
  }
  ++written_;
  if (bytes_ += on_disk(sizeof h + image.bytes.size()); bytes_.load() > most_bytes_)
    trim(most_bytes_ / 10 * 9);
  return true;
}

// Writing rests for a while. Told once: the server goes on.
void kv_store::trouble(const std::string& what, int error) {
  closed_until_ = now_ns() + rest_ns;
  const std::lock_guard lock(telling_);
  if (!std::exchange(told_, true))
    trouble_ = "cached prefixes cannot be kept in " + what + ": " + std::generic_category().message(error);
}

std::optional<std::string> kv_store::take_trouble() {
  const std::lock_guard lock(telling_);
  return std::exchange(trouble_, std::nullopt);
}

// Counts what is there and removes what was used longest ago until `most` bytes are left, if more than the limit are.
void kv_store::trim(std::size_t most) {
  const std::unique_lock lock(trimming_, std::try_to_lock);
  if (!lock)
    return;
  auto files = files_in(folder_);
  std::size_t all = 0;
  for (const auto& f : files)
    all += f.bytes;
  if (all > most_bytes_) {
    std::ranges::sort(files, {}, &kept_file::used);
    for (const auto& f : files) {
      if (all <= most)
        break;
      if (is_block(f) && f.numerics->remove(f.name))
        ++removed_;
      all -= f.bytes;
    }
  }
  bytes_ = all;
}

kv_store_counters kv_store::counters() const { return {bytes_, read_, damaged_, written_, unwritten_, removed_}; }

} // namespace troupe
