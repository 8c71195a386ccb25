// Base of checkpoints that present some matrices in another format, made of stored tensors that are then hidden.
// `Matrix` has a tensor_info (`info()`) and makes its data (`unpack()`).
#pragma once

#include "runtime/checkpoint/checkpoint.hpp"
#include "runtime/checkpoint/tensor_index.hpp"

#include <functional>
#include <map>
#include <memory>
#include <string>

namespace troupe {

template <class Matrix>
class rewritten_checkpoint : public checkpoint {
public:
  std::string name() const final { return stored_->name(); }

  const tensor_info* find(std::string_view tensor) const final {
    const auto found = matrices_.find(tensor);
    return found == matrices_.end() ? stored_->find(tensor) : &found->second.info();
  }

  tensor_data read(std::string_view tensor) const final {
    const auto found = matrices_.find(tensor);
    return found == matrices_.end() ? stored_->read(tensor) : found->second.unpack();
  }

  std::vector<file_state> files() const final { return stored_->files(); }

protected:
  explicit rewritten_checkpoint(std::unique_ptr<const checkpoint> stored) : stored_(std::move(stored)) {}

  std::unique_ptr<const checkpoint> stored_;
  std::map<std::string, Matrix, std::less<>> matrices_; // by their names as presented
};

} // namespace troupe
