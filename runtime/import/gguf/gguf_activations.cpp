#include "runtime/import/gguf/gguf_activations.hpp"

#include "runtime/checkpoint/rewritten_checkpoint.hpp"
#include "runtime/support/types.hpp"

namespace troupe {

namespace {

/// A number for each layer, as a tensor.
class number_tensor {
public:
  number_tensor(float value, std::string where)
    : info_{tensor_type::f32, {1}, sizeof(float)},
      value_(std::make_shared<const float>(value)),
      where_(std::move(where)) {}

  const tensor_info& info() const { return info_; }
  tensor_data unpack() const { return value_; }
  const std::string& where() const { return where_; }

private:
  tensor_info info_;
  std::shared_ptr<const float> value_;
  std::string where_;
};

class checkpoint_with_numbers final : public rewritten_checkpoint<number_tensor> {
public:
  explicit checkpoint_with_numbers(std::unique_ptr<const checkpoint> stored)
    : rewritten_checkpoint(std::move(stored)) {}

  void add(const std::string& name, float value, std::string where) {
    matrices_.try_emplace(name, value, std::move(where));
  }

  std::vector<std::string> tensors() const override {
    auto names = stored_->tensors();
    append_names(names, matrices_);
    return names;
  }

  std::string where(std::string_view tensor) const override {
    const auto found = matrices_.find(tensor);
    return found == matrices_.end() ? stored_->where(tensor) : found->second.where();
  }
};

} // namespace

std::unique_ptr<const checkpoint> with_activations(std::unique_ptr<const checkpoint> stored, const gguf_file& file,
                                                   const model_config& model) {
  if (model.act.type != kernels::activation_type::xielu)
    return stored;
  auto numbers = std::make_unique<checkpoint_with_numbers>(std::move(stored));
  for (const char* name : {"alpha_p", "alpha_n", "beta", "eps"}) {
    const auto key = std::string("xielu.") + name;
    const auto* found = file.metadata().find(key);
    const bool listed = found && found->type == gguf_type::array;
    const auto values = listed ? file.metadata().floats(key) : std::nullopt;
    const auto all = listed ? std::nullopt : file.metadata().number(key, -1e9, 1e9);
    if (listed && values->size() != as_size(model.layers))
      throw failure(errc::bad_file,
                    file.metadata().label(key) + " must hold a number for each of " + std::to_string(model.layers) +
                      " layers");
    if (!listed && !all)
      continue; // missed as a tensor, or not needed
    for (int i = 0; i < model.layers; ++i)
      numbers->add("model.layers." + std::to_string(i) + ".mlp.act_fn." + name,
                   listed ? (*values)[as_size(i)] : static_cast<float>(*all), file.name());
  }
  return numbers;
}

} // namespace troupe
