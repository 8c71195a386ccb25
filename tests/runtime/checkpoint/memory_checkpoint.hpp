// A checkpoint whose tensors a test makes.
#pragma once

#include "runtime/checkpoint/checkpoint.hpp"
#include "runtime/checkpoint/weight_values.hpp"

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace troupe::test {

class memory_checkpoint final : public checkpoint {
public:
  template <class T>
  memory_checkpoint& put(const std::string& name, tensor_type type, std::vector<std::size_t> shape,
                         const std::vector<T>& values) {
    std::string bytes(values.size() * sizeof(T), '\0');
    if (!values.empty())
      std::memcpy(bytes.data(), values.data(), bytes.size());
    tensor_info info;
    info.type = type;
    info.shape = std::move(shape);
    info.bytes = bytes.size();
    tensors_[name] = {info, std::move(bytes)};
    return *this;
  }

  /// Changes what the tensor says of itself.
  tensor_info& about(const std::string& name) { return tensors_.at(name).first; }
  void drop(const std::string& name) { tensors_.erase(name); }

  std::string name() const override { return "memory"; }
  std::vector<std::string> tensors() const override {
    std::vector<std::string> names;
    for (const auto& [name, _] : tensors_)
      names.push_back(name);
    return names;
  }
  const tensor_info* find(std::string_view tensor) const override {
    const auto found = tensors_.find(std::string(tensor));
    return found == tensors_.end() ? nullptr : &found->second.first;
  }
  tensor_data read(std::string_view tensor) const override {
    const auto& bytes = tensors_.at(std::string(tensor)).second;
    std::shared_ptr<char[]> copy(new char[bytes.size() + 1]);
    std::memcpy(copy.get(), bytes.data(), bytes.size());
    return copy;
  }
  std::string where(std::string_view) const override { return "m.safetensors"; }

private:
  std::map<std::string, std::pair<tensor_info, std::string>> tensors_;
};

/// All weights of a matrix that a checkpoint presents.
inline std::vector<float> presented_weights(const checkpoint& tensors, const std::string& name) {
  const auto& info = *tensors.find(name);
  const auto format = *weight_format_of(info.type);
  const auto data = tensors.read(name);
  const auto cols = info.shape[1];
  std::vector<float> values(info.shape[0] * cols);
  for (std::size_t r = 0; r < info.shape[0]; ++r)
    to_floats(format, static_cast<const char*>(data.get()) + r * row_bytes(format, cols), cols, &values[r * cols]);
  return values;
}

} // namespace troupe::test
