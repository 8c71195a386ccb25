#include "runtime/adapters/adapter_library.hpp"

#include "runtime/adapters/adapter_file.hpp"
#include "runtime/support/error.hpp"

namespace troupe {

namespace {

constexpr std::size_t most_adapter_name_bytes = 128;

[[noreturn]] void refuse_adapter(const std::string& complaint) {
  throw failure(errc::bad_request, complaint, "lora_name");
}

} // namespace

void adapter_library::check_room(const std::string& name, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  if (name == base_ || adapters_.contains(name))
    refuse_adapter("there is a model with the name `" + name + "` already");
  if (adapters_.size() >= limits_.most)
    refuse_adapter("there are " + std::to_string(limits_.most) + " adapters already, which is the most");
  if (bytes_ + bytes > limits_.most_bytes)
    refuse_adapter("the adapters would take " + std::to_string((bytes_ + bytes) >> 20) + " MiB, at most " +
                   std::to_string(limits_.most_bytes >> 20) + " MiB are possible");
}

std::vector<std::string> adapter_library::load(const std::string& name, const std::filesystem::path& path) {
  if (name.empty() || name.size() > most_adapter_name_bytes)
    refuse_adapter("the name of an adapter must have 1 to " + std::to_string(most_adapter_name_bytes) + " bytes, not " +
                   std::to_string(name.size()));
  const std::lock_guard one(loading_);
  check_room(name, 0);
  std::vector<std::string> remarks;
  const auto weights = read_adapter(path, target_, remarks);
  const auto backend = open_();
  auto packed = std::make_shared<const packed_adapter>(
    pack_adapter(weights, target_, *backend, compute_, last_id_ + 1));
  check_room(name, packed->bytes);
  ++last_id_;
  const std::lock_guard lock(mutex_);
  bytes_ += packed->bytes;
  adapters_.emplace(name, std::move(packed));
  return remarks;
}

void adapter_library::unload(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = adapters_.find(name);
  if (found == adapters_.end())
    throw failure(errc::not_found, "there is no adapter named `" + name.substr(0, most_adapter_name_bytes) + "`",
                  "lora_name");
  bytes_ -= found->second->bytes;
  adapters_.erase(found);
}

std::shared_ptr<const packed_adapter> adapter_library::find(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = adapters_.find(name);
  return found == adapters_.end() ? nullptr : found->second;
}

std::vector<std::string> adapter_library::names() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> all;
  for (const auto& [name, _] : adapters_)
    all.push_back(name);
  return all;
}

} // namespace troupe
