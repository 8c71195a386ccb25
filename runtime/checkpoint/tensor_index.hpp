// What checkpoints that keep their tensors in a map by name have in common.
#pragma once

#include <string>
#include <vector>

namespace troupe {

/// Appends the keys of `index`, in its order.
template <class Index>
void append_names(std::vector<std::string>& names, const Index& index) {
  for (const auto& [name, _] : index)
    names.push_back(name);
}

template <class Index>
std::vector<std::string> names_in(const Index& index) {
  std::vector<std::string> names;
  append_names(names, index);
  return names;
}

} // namespace troupe
