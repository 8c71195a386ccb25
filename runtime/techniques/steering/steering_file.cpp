#include "runtime/techniques/steering/steering_file.hpp"

#include "runtime/checkpoint/gguf_writer.hpp"
#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/checkpoint/safetensors_writer.hpp"
#include "runtime/checkpoint/weight_values.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/files/file_reading.hpp"
#include "runtime/support/files/mapped_file.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace troupe {

namespace {

constexpr std::string_view direction_prefix = "direction.", vector_architecture = "controlvector";

[[noreturn]] void refuse_tensor(const std::string& file, std::string_view tensor, const std::string& why) {
  throw failure(errc::bad_file, file + ": tensor " + shown(tensor) + " " + why);
}

/// The layer that a tensor's name says.
std::size_t layer_of_direction(const std::string& file, std::string_view tensor, int layers) {
  int layer = -1;
  const auto digits = tensor.starts_with(direction_prefix) ? tensor.substr(direction_prefix.size())
                                                           : std::string_view();
  const auto end = digits.data() + digits.size();
  const auto read = std::from_chars(digits.data(), end, layer);
  const bool canonical = !digits.empty() && digits.front() != '-' && (digits.size() == 1 || digits.front() != '0');
  if (!canonical || read.ptr != end || read.ec == std::errc::invalid_argument)
    refuse_tensor(file, tensor, "is not a steering vector: those are named direction.N, where N is the layer");
  if (read.ec != std::errc() || layer >= layers)
    refuse_tensor(file, tensor,
                  "is for a layer that the model does not have; its layers are 0 to " + std::to_string(layers - 1));
  return as_size(layer);
}

std::vector<float> values_of(const std::string& file, std::string_view tensor, const tensor_info& info,
                             const std::byte* bytes, int hidden) {
  const auto format = weight_format_of(info.type);
  if (!format)
    refuse_tensor(file, tensor,
                  "is of type " + std::string(to_string(info.type)) + ", which is not supported for steering vectors");
  if (info.shape != std::vector{as_size(hidden)})
    refuse_tensor(file, tensor,
                  "has the shape " + to_string(info.shape) + ", expected " + to_string({as_size(hidden)}) +
                    ", the model's hidden size");
  std::vector<float> values(as_size(hidden));
  to_floats(*format, bytes, values.size(), values.data());
  if (!std::ranges::all_of(values, [](float v) { return std::isfinite(v); }))
    refuse_tensor(file, tensor, "has values that are not finite");
  return values;
}

template <class Tensors>
layer_directions read_directions(const std::string& file, std::span<const std::byte> bytes, const Tensors& tensors,
                                 int layers, int hidden) {
  layer_directions result(as_size(layers));
  for (const auto& [name, tensor] : tensors)
    result[layer_of_direction(file, name, layers)] = values_of(file, name, tensor.info, bytes.data() + tensor.offset,
                                                               hidden);
  if (tensors.empty())
    throw failure(errc::bad_file, file + ": has no tensor direction.N, of layer N");
  return result;
}

std::string tensor_name(std::size_t layer) { return std::string(direction_prefix) + std::to_string(layer); }

std::span<const std::byte> float_bytes(const std::vector<float>& values) { return std::as_bytes(std::span(values)); }

void write_gguf(const std::filesystem::path& file, const layer_directions& directions, const std::string& model_hint) {
  gguf_writer writer;
  writer.add("general.architecture", vector_architecture);
  writer.add("controlvector.model_hint", std::string_view(model_hint));
  writer.add("controlvector.layer_count", static_cast<std::uint32_t>(directions.size()));
  std::vector<std::size_t> written;
  for (std::size_t layer = 1; layer < directions.size(); ++layer)
    if (!directions[layer].empty()) {
      writer.add_tensor(tensor_name(layer), tensor_type::f32, {directions[layer].size()});
      written.push_back(layer);
    }
  writer.write(file, [&](std::size_t index) { return float_bytes(directions[written[index]]); });
}

void write_safetensors(const std::filesystem::path& file, const layer_directions& directions) {
  safetensors_writer writer;
  std::vector<std::size_t> written;
  for (std::size_t layer = 0; layer < directions.size(); ++layer)
    if (const auto& values = directions[layer]; !values.empty()) {
      writer.add_tensor(tensor_name(layer), "F32", sizeof(float), {values.size()});
      written.push_back(layer);
    }
  writer.write(file, [&](std::size_t index) { return float_bytes(directions[written[index]]); });
}

} // namespace

layer_directions read_steering(const std::filesystem::path& file, int layers, int hidden) {
  const auto name = file.string();
  if (read_start(file, 4) == "GGUF") {
    const mapped_file map(file);
    const auto opened = read_gguf(map.bytes(), name);
    const auto found = opened.metadata.string("general.architecture");
    if (found != vector_architecture)
      throw failure(errc::bad_file,
                    opened.metadata.label("general.architecture") + " is " +
                      (found ? shown(*found) : std::string("missing")) + ", expected " + shown(vector_architecture));
    return read_directions(name, map.bytes(), opened.tensors, layers, hidden);
  }
  const mapped_file map(file);
  return read_directions(name, map.bytes(), read_safetensors_header(map.bytes(), name), layers, hidden);
}

void write_steering(const std::filesystem::path& file, const layer_directions& directions,
                    const std::string& model_hint) {
  if (file.extension() == ".gguf")
    write_gguf(file, directions, model_hint);
  else
    write_safetensors(file, directions);
}

} // namespace troupe
