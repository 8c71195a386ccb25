#include "runtime/kv/kv_store.hpp"

#include "runtime/support/byte_size.hpp"
#include "runtime/support/error.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <new>
#include <optional>
#include <random>
#include <span>
#include <sys/stat.h>
#include <sys/uio.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include <xxhash.h>

namespace troupe {

namespace fs = std::filesystem;

namespace {

constexpr std::array<char, 8> kv_magic{'t', 'r', 'o', 'u', 'p', 'e', 'k', 'v'};
constexpr std::uint32_t kv_file_version = 1;
constexpr std::size_t kv_piece = 128 << 10;      // bytes read before they are summed, still in a core's cache
constexpr std::int64_t rest_ns = 60'000'000'000; // between attempts to write, after a failure
constexpr std::int64_t age_step_ms = 600'000;
constexpr std::string_view kv_aside = ".partial-";

std::int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

std::int64_t unix_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

/// An open file, or none.
class kv_descriptor {
public:
  explicit kv_descriptor(int opened) : opened_(opened) {}
  ~kv_descriptor() {
    if (opened_ >= 0)
      close(opened_);
  }
  kv_descriptor(const kv_descriptor&) = delete;
  kv_descriptor& operator=(const kv_descriptor&) = delete;
  explicit operator bool() const { return opened_ >= 0; }
  int get() const { return opened_; }

private:
  int opened_;
};

kv_descriptor open_to_read(const fs::path& file) {
  return kv_descriptor(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
}

bool read_all_of(int from, std::span<std::byte> to) {
  while (!to.empty()) {
    const auto got = ::read(from, to.data(), to.size());
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return false;
    to = to.subspan(static_cast<std::size_t>(got));
  }
  return true;
}

bool write_all_of(int to, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto put = ::write(to, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR)
      continue;
    if (put <= 0)
      return false;
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
  return true;
}

/// The checksum of a file.
class block_sum {
public:
  block_sum() : state_(XXH3_createState()) {
    if (!state_)
      throw std::bad_alloc();
    XXH3_64bits_reset(state_.get());
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

struct kept_file {
  fs::path path;
  std::size_t bytes = 0;
  std::int64_t used = 0;
};

/// The files of blocks of all who share the folder. Whatever else lies there is not touched, but for what writers have
/// left behind that died.
std::vector<kept_file> files_in(const fs::path& folder) {
  std::vector<kept_file> found;
  std::error_code failed;
  for (auto i = fs::recursive_directory_iterator(folder, fs::directory_options::skip_permission_denied, failed);
       !failed && i != fs::recursive_directory_iterator(); i.increment(failed)) {
    struct stat s {};
    const auto& path = i->path();
    if (i.depth() > 2)
      i.disable_recursion_pending();
    if (lstat(path.c_str(), &s) != 0 || !S_ISREG(s.st_mode))
      continue;
    const auto name = path.filename().string();
    const auto used = std::int64_t{s.st_mtim.tv_sec} * 1'000'000'000 + s.st_mtim.tv_nsec;
    if (name.starts_with(kv_aside)) {
      if (std::time(nullptr) - s.st_mtim.tv_sec > 600)
        unlink(path.c_str());
    } else if (path.extension() == ".kv") {
      found.push_back({path, on_disk(static_cast<std::size_t>(s.st_size)), used});
    }
  }
  return found;
}

/// Creates it if there is none; if another process is faster, takes its.
std::optional<block_keys::secret> secret_in(const fs::path& folder) {
  const auto file = folder / "secret";
  block_keys::secret secret;
  for (int attempt = 0; attempt < 3; ++attempt) {
    if (const auto there = open_to_read(file)) {
      struct stat s {};
      if (fstat(there.get(), &s) == 0 && s.st_size == static_cast<off_t>(secret.size()) &&
          read_all_of(there.get(), secret))
        return secret;
      errno = 0;
      unlink(file.c_str()); // damaged; all that it was for is unknown now
    } else if (errno != ENOENT) {
      return std::nullopt;
    }
    std::random_device random;
    for (auto& b : secret)
      b = static_cast<std::byte>(random());
    const auto beside = folder / (std::string(kv_aside) + "secret-" + std::to_string(getpid()));
    unlink(beside.c_str());
    const kv_descriptor made(::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!made || !write_all_of(made.get(), secret) || fsync(made.get()) != 0) {
      const auto why = errno;
      unlink(beside.c_str());
      errno = why;
      return std::nullopt;
    }
    const bool won = link(beside.c_str(), file.c_str()) == 0;
    const auto why = errno;
    unlink(beside.c_str());
    errno = why;
    if (won)
      return secret;
    if (errno != EEXIST)
      return std::nullopt;
  }
  return std::nullopt;
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
  std::error_code failed;
  const auto& folder = options.folder;
  const auto give_up = [&](const std::string& why) {
    log("cached prefixes are not kept in " + folder.string() + ": " + why);
    return nullptr;
  };
  if (fs::exists(folder, failed) && !fs::is_directory(folder, failed))
    throw failure(errc::bad_request, "`kv_disk` must name a folder, which " + folder.string() + " is not", "kv_disk");
  if (folder.has_parent_path())
    fs::create_directories(folder.parent_path(), failed);
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return give_up(std::generic_category().message(errno));
  errno = 0;
  const auto secret = secret_in(folder);
  if (!secret)
    return give_up(std::generic_category().message(errno == 0 ? EIO : errno));
  std::unique_ptr<kv_store> store(new kv_store(std::move(options), id, block_bytes, *secret));
  if (const auto line = store->take_trouble())
    log(*line);
  return store;
}

kv_store::kv_store(kv_store_options options, const numerics_id& id, std::size_t block_bytes,
                   const block_keys::secret& secret)
  : options_(std::move(options)),
    numerics_(id.hash()),
    own_(options_.folder / to_hex(numerics_)),
    block_bytes_(block_bytes),
    keys_(secret, numerics_) {
  if (access(options_.folder.c_str(), W_OK) != 0)
    trouble(options_.folder.string(), errno);
  // For people who look into the folder.
  else if (const auto text = id.text() + "\n"; make_folders(own_ / "numerics"))
    if (const kv_descriptor made(::open((own_ / "numerics").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
        made)
      write_all_of(made.get(), std::as_bytes(std::span(text)));
  trim(options_.most_bytes);
}

kv_store::head kv_store::head_of(const block_image& image) const {
  head h;
  h.numerics = numerics_;
  h.key = image.key;
  h.place = image.place;
  h.tokens = image.tokens;
  h.block_bytes = block_bytes_;
  return h;
}

fs::path kv_store::file_of(const block_key& key) const {
  const auto name = to_hex({key.high, key.low});
  return own_ / name.substr(0, 2) / (name.substr(2) + ".kv");
}

bool kv_store::contains(const block_key& key) const { return access(file_of(key).c_str(), R_OK) == 0; }

kv_store::outcome kv_store::read(block_image& image) {
  const auto file = file_of(image.key);
  const auto opened = open_to_read(file);
  if (!opened)
    return outcome::absent;
  // All of it at once: what is read ahead of small reads begins small.
  posix_fadvise(opened.get(), 0, 0, POSIX_FADV_WILLNEED);
  const auto expected = head_of(image);
  head found;
  block_sum sum;
  struct stat s {};
  // Sizes are those expected, or nothing is read.
  bool good = fstat(opened.get(), &s) == 0 && S_ISREG(s.st_mode) &&
    s.st_size == static_cast<off_t>(sizeof(head) + block_bytes_) && image.bytes.size() == block_bytes_ &&
    read_all_of(opened.get(), std::as_writable_bytes(std::span(&found, 1)));
  if (good) {
    auto same = expected;
    same.checksum = found.checksum;
    same.place = found.place; // of no matter to who reads it
    good = std::memcmp(&same, &found, sizeof same) == 0;
  }
  if (good)
    sum.add(&found, sizeof found - sizeof found.checksum);
  for (std::size_t at = 0; good && at < block_bytes_; at += kv_piece) {
    const auto part = image.bytes.subspan(at, std::min(kv_piece, block_bytes_ - at));
    good = read_all_of(opened.get(), part);
    if (good)
      sum.add(part.data(), part.size());
  }
  if (!good || sum.value() != found.checksum) {
    ++damaged_;
    unlink(file.c_str());
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
  const auto file = file_of(image.key);
  if (access(file.c_str(), F_OK) == 0)
    return true;
  auto h = head_of(image);
  block_sum sum;
  sum.add(&h, sizeof h - sizeof h.checksum);
  sum.add(image.bytes.data(), image.bytes.size());
  h.checksum = sum.value();
  const auto refuse = [&] {
    trouble(file.parent_path().string(), errno);
    ++unwritten_;
    return false;
  };
  if (!make_folders(file))
    return refuse();
  const auto beside = file.parent_path() /
    (std::string(kv_aside) + std::to_string(getpid()) + "-" + std::to_string(++files_made_));
  const kv_descriptor made(::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!made)
    return refuse();
  const bool whole = write_all_of(made.get(), std::as_bytes(std::span(&h, 1))) && write_all_of(made.get(), image.bytes);
  if (whole)
    touch(made.get(), image.place);
  if (!whole || rename(beside.c_str(), file.c_str()) != 0) {
    const auto why = errno;
    unlink(beside.c_str());
    errno = why;
    return refuse();
  }
  ++written_;
  if (bytes_ += on_disk(sizeof h + block_bytes_); bytes_.load() > options_.most_bytes)
    trim(options_.most_bytes / 10 * 9);
  return true;
}

bool kv_store::make_folders(const fs::path& file) {
  const auto folder = file.parent_path();
  if (mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST)
    return true;
  return errno == ENOENT && (mkdir(own_.c_str(), 0700) == 0 || errno == EEXIST) &&
    (folder == own_ || mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST);
}

// Writing rests for a while. Told once: whoever serves goes on.
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
  auto files = files_in(options_.folder);
  std::size_t all = 0;
  for (const auto& f : files)
    all += f.bytes;
  if (all > options_.most_bytes) {
    std::ranges::sort(files, {}, &kept_file::used);
    for (const auto& f : files) {
      if (all <= most)
        break;
      if (unlink(f.path.c_str()) == 0)
        ++removed_;
      all -= f.bytes;
    }
  }
  bytes_ = all;
}

kv_store_counters kv_store::counters() const { return {bytes_, read_, damaged_, written_, unwritten_, removed_}; }

} // namespace troupe
