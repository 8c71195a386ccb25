#include "runtime/import/head_tensors.hpp"

#include "runtime/support/error.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace troupe {

namespace {

/// Passes everything on, and keeps the names of what is read.
class noting_checkpoint final : public checkpoint {
public:
  explicit noting_checkpoint(const checkpoint& of) : of_(of) {}

  std::string name() const override { return of_.name(); }
  std::vector<std::string> tensors() const override { return of_.tensors(); }
  const tensor_info* find(std::string_view tensor) const override { return of_.find(tensor); }
  std::string where(std::string_view tensor) const override { return of_.where(tensor); }
  tensor_data read(std::string_view tensor) const override {
    read_.emplace(tensor);
    return of_.read(tensor);
  }

  const std::set<std::string>& noted() const { return read_; }

private:
  const checkpoint& of_;
  mutable std::set<std::string> read_; // by the one thread that reads
};

/// Prefixes of Dense layers in GGUF files, in llama.cpp's form and in Troupe's own; folders have files of their own for
/// them.
constexpr std::array<std::string_view, 3> dense_prefixes{"dense_2.", "dense_3.", "head."};

} // namespace

std::set<std::string> head_tensors(const model_source& source) {
  auto result = source.mtp ? tensors_used(*source.mtp) : std::set<std::string>();
  if (source.load_ranker) {
    const noting_checkpoint tensors(*source.tensors);
    try {
      source.load_ranker(tensors);
      result.insert(tensors.noted().begin(), tensors.noted().end());
    } catch (const failure&) { // who loads it says why
    }
  }
  if (source.dense)
    for (auto& name : source.tensors->tensors())
      if (std::ranges::any_of(dense_prefixes, [&](std::string_view prefix) { return name.starts_with(prefix); }))
        result.insert(std::move(name));
  return result;
}

} // namespace troupe
