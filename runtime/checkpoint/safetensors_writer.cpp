#include "runtime/checkpoint/safetensors_writer.hpp"

#include "runtime/support/error.hpp"
#include "runtime/support/files/atomic_file.hpp"
#include "runtime/support/json/json_text.hpp"

#include <cstdint>

namespace troupe {

void safetensors_writer::add_tensor(std::string name, std::string_view dtype, std::size_t element_bytes,
                                    std::vector<std::size_t> shape) {
  const auto begin = tensor_bytes();
  std::size_t bytes = element_bytes;
  std::string sizes;
  for (const auto size : shape) {
    bytes *= size;
    sizes += (sizes.empty() ? "" : ",") + std::to_string(size);
  }
  entries_ += "," + json_text(name) + ":{\"dtype\":" + json_text(dtype) + ",\"shape\":[" + sizes +
    "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(begin + bytes) + "]}";
  ends_.push_back(begin + bytes);
}

void safetensors_writer::write(const std::filesystem::path& file, const tensor_bytes_fn& bytes_of_tensor) const {
  std::string header = R"({"__metadata__":{"format":"pt"})" + entries_ + "}"; // which transformers asks for
  header.resize((header.size() + 7) / 8 * 8, ' ');                            // as the reference implementation aligns
  const std::uint64_t length = header.size();
  const auto out = atomic_file::begin(file, sizeof length + header.size() + tensor_bytes());
  if (!out)
    throw failure(errc::bad_file, file.string() + ": another process is writing it");
  out->write(0, std::as_bytes(std::span(&length, 1)));
  out->write(sizeof length, std::as_bytes(std::span(header)));
  const auto data = sizeof length + header.size();
  for (std::size_t i = 0; i < ends_.size(); ++i) {
    const auto begin = i == 0 ? 0 : ends_[i - 1];
    const auto bytes = bytes_of_tensor(i);
    if (bytes.size() != ends_[i] - begin)
      throw failure(errc::internal, "a tensor of another size than was said");
    out->write(data + begin, bytes);
  }
  out->commit();
}

} // namespace troupe
