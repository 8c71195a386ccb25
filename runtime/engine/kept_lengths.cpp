#include "runtime/engine/kept_lengths.hpp"

#include "runtime/scheduling/lengths/length_model.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/files/atomic_file.hpp"
#include "runtime/support/files/file_reading.hpp"

#include <new>
#include <string_view>
#include <utility>

namespace troupe {

namespace {

constexpr file_kind saved_lengths{"a model of answers' lengths", std::size_t(4) << 20};
constexpr std::string_view any_version = "troupe lengths "; // with which length_model::saved() begins

} // namespace

kept_lengths::kept_lengths(std::filesystem::path file, const log_sink& log) : file_(std::move(file)) {
  if (file_.empty() || !std::filesystem::exists(file_))
    return;
  auto bytes = read_file(file_, saved_lengths);
  if (!bytes.empty() && !bytes.starts_with(any_version))
    refuse_field("length_model",
                 "must name a file that it has written itself, or a new one, which " + file_.string() + " is not");
  if (length_model model; model.load(bytes)) {
    learned_ = std::move(bytes);
    seen_ = model.seen();
  } else if (!bytes.empty() && log) {
    log(warning(file_.string() + " is damaged, or of another version: it is replaced at the end"));
  }
}

std::string kept_lengths::learned() const {
  const std::lock_guard lock(guard_);
  return learned_;
}

void kept_lengths::keep(const length_model& learned) noexcept {
  const std::lock_guard lock(guard_);
  if (learned.seen() <= seen_)
    return;
  try {
    learned_ = learned.saved();
  } catch (const std::bad_alloc&) {
    return;
  }
  seen_ = learned.seen();
  changed_ = true;
}

std::string kept_lengths::write() {
  const std::lock_guard lock(guard_);
  if (file_.empty() || !std::exchange(changed_, false))
    return {};
  try {
    return write_file(file_, learned_) ? "" : file_.string() + " is being written by another process: nothing is kept";
  } catch (const failure& f) {
    return f.what();
  }
}

} // namespace troupe
