#include "runtime/checkpoint/importance_file.hpp"

#include "runtime/checkpoint/gguf_writer.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/files/atomic_file.hpp"
#include "runtime/support/files/file_reading.hpp"
#include "runtime/support/files/mapped_file.hpp"
#include "runtime/support/text/utf8.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace troupe {

namespace {

constexpr std::string_view imatrix_kind = "imatrix", sums_suffix = ".in_sum2", counts_suffix = ".counts";
constexpr std::size_t most_name = 4096;

/// Reads numbers and texts one after another from the older format.
class older_reader {
public:
  older_reader(std::span<const std::byte> bytes, const std::string& name) : left_(bytes), name_(name) {}

  [[noreturn]] void fail(const std::string& what) const { throw failure(errc::bad_file, name_ + ": " + what); }

  std::span<const std::byte> take(std::size_t count, const std::string& what) {
    if (count > left_.size())
      fail("ends within " + what + " (truncated, or no importance matrix)");
    const auto taken = left_.first(count);
    left_ = left_.subspan(count);
    return taken;
  }

  /// At least `least`.
  std::int32_t number(std::int32_t least, const std::string& what) {
    std::int32_t value = 0;
    std::memcpy(&value, take(sizeof value, what).data(), sizeof value);
    if (value < least)
      fail(what + " is " + std::to_string(value) + ", expected at least " + std::to_string(least));
    return value;
  }

  std::string text(std::size_t most, const std::string& what) {
    const auto length = static_cast<std::size_t>(number(0, "the length of " + what));
    if (length > most)
      fail("the length of " + what + " is " + std::to_string(length) + ", expected at most " + std::to_string(most));
    const auto bytes = take(length, what);
    std::string result(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (!is_utf8(result))
      fail(what + " is not valid UTF-8");
    return result;
  }

  std::size_t left() const { return left_.size(); }

private:
  std::span<const std::byte> left_;
  const std::string& name_;
};

/// A mean square must be a number, and not negative.
void check_values(const std::string& file, const std::string& tensor, const std::vector<float>& values) {
  for (const float v : values)
    if (!(v >= 0) || std::isinf(v))
      throw failure(errc::bad_file,
                    file + ": tensor " + shown(tensor) + " has the mean square " + std::to_string(v) +
                      ", expected a number that is not negative");
}

/// Entries: name, calls, values; each value is a mean square times the calls. Then the calls in all and the text's
/// name, which the oldest files lack.
importance_table read_older(std::span<const std::byte> bytes, const std::string& file) {
  older_reader in(bytes, file);
  importance_table table;
  const auto entries = in.number(1, "the number of entries");
  for (std::int32_t i = 0; i < entries; ++i) {
    const auto name = in.text(most_name, "the name of entry " + std::to_string(i));
    const auto what = "tensor " + shown(name);
    const auto calls = in.number(0, "the calls of " + what);
    const auto count = static_cast<std::size_t>(in.number(1, "the number of values of " + what));
    const auto stored = in.take(std::min(count, std::numeric_limits<std::size_t>::max() / sizeof(float)) *
                                  sizeof(float),
                                "the values of " + what);
    tensor_importance values;
    values.mean_squares.resize(count);
    std::memcpy(values.mean_squares.data(), stored.data(), stored.size());
    for (float& v : values.mean_squares)
      v /= static_cast<float>(std::max(calls, 1));
    values.counts = {static_cast<std::uint64_t>(std::max(calls, 0))};
    check_values(file, name, values.mean_squares);
    if (!table.tensors.emplace(name, std::move(values)).second)
      in.fail(what + " is there twice");
  }
  if (in.left() == 0)
    return table;
  table.chunks = static_cast<std::uint32_t>(in.number(0, "the number of chunks"));
  if (in.left() > 0)
    table.text = in.text(1 << 20, "the calibration text's name");
  return table;
}

std::vector<float> floats_of(const gguf_content& content, const std::string& name, std::span<const std::byte> bytes,
                             const std::string& file) {
  const auto& tensor = content.tensors.at(name);
  if (tensor.info.type != tensor_type::f32)
    throw failure(errc::bad_file,
                  file + ": tensor " + shown(name) + " is " + std::string(to_string(tensor.info.type)) +
                    ", expected F32");
  std::vector<float> values(tensor.info.bytes / sizeof(float));
  if (!values.empty())
    std::memcpy(values.data(), bytes.data() + tensor.offset, values.size() * sizeof(float));
  return values;
}

importance_table read_newer(std::span<const std::byte> bytes, const std::string& file) {
  const auto content = read_gguf(bytes, file);
  const auto kind = content.metadata.string("general.type");
  if (kind != imatrix_kind)
    throw failure(errc::bad_file,
                  content.metadata.label("general.type") + " is " + (kind ? shown(*kind) : std::string("missing")) +
                    ", expected " + shown(imatrix_kind));
  importance_table table;
  if (const auto texts = content.metadata.strings("imatrix.datasets"); texts && !texts->empty())
    table.text = texts->front();
  constexpr auto most = std::numeric_limits<std::uint32_t>::max();
  table.chunks = static_cast<std::uint32_t>(content.metadata.integer("imatrix.chunk_count", 0, most).value_or(0));
  table.chunk_tokens = static_cast<std::uint32_t>(content.metadata.integer("imatrix.chunk_size", 0, most).value_or(0));
  for (const auto& [name, tensor] : content.tensors) {
    if (!name.ends_with(sums_suffix)) // counts, and other statistics of newer versions
      continue;
    const auto of = name.substr(0, name.size() - sums_suffix.size());
    const auto counts_name = of + std::string(counts_suffix);
    if (!content.tensors.contains(counts_name))
      throw failure(errc::bad_file, file + ": tensor " + shown(counts_name) + " is missing");
    tensor_importance values{floats_of(content, name, bytes, file), {}};
    const auto counts = floats_of(content, counts_name, bytes, file);
    if (counts.empty() || values.mean_squares.empty() || values.mean_squares.size() % counts.size() != 0)
      throw failure(errc::bad_file,
                    file + ": tensor " + shown(counts_name) + " has the shape " +
                      to_string(content.tensors.at(counts_name).info.shape) + ", and " + shown(name) + " " +
                      to_string(tensor.info.shape) + "; there must be a count for each matrix");
    constexpr float most_counted = 1e15f; // more than any text has, and exact as an integer of 64 bits
    for (const float count : counts)
      if (!(count >= 0 && count <= most_counted))
        throw failure(errc::bad_file,
                      file + ": tensor " + shown(counts_name) + " has the count " + std::to_string(count) +
                        ", expected a number from 0 to 1e15");
    const auto inputs = values.mean_squares.size() / counts.size();
    for (std::size_t m = 0; m < counts.size(); ++m) {
      values.counts.push_back(static_cast<std::uint64_t>(counts[m]));
      for (std::size_t i = 0; i < inputs; ++i) {
        float& v = values.mean_squares[m * inputs + i];
        v = counts[m] > 0 ? v / counts[m] : 0;
      }
    }
    check_values(file, name, values.mean_squares);
    table.tensors.emplace(of, std::move(values));
  }
  if (table.tensors.empty())
    throw failure(errc::bad_file, file + ": has no sums (tensors that end in " + std::string(sums_suffix) + ")");
  return table;
}

void write_newer(const std::filesystem::path& file, const importance_table& table) {
  gguf_writer out;
  out.add("general.type", imatrix_kind);
  out.add("imatrix.datasets", std::vector<std::string>{table.text});
  out.add("imatrix.chunk_count", table.chunks);
  out.add("imatrix.chunk_size", table.chunk_tokens);
  std::vector<std::vector<float>> written;
  for (const auto& [name, values] : table.tensors) {
    const auto matrices = std::max<std::size_t>(values.counts.size(), 1);
    const auto inputs = values.mean_squares.size() / matrices;
    std::vector<float> sums = values.mean_squares, counts(values.counts.begin(), values.counts.end());
    for (std::size_t i = 0; i < sums.size(); ++i)
      sums[i] *= counts[i / inputs];
    out.add_tensor(name + std::string(sums_suffix), tensor_type::f32, {matrices, inputs});
    written.push_back(std::move(sums));
    out.add_tensor(name + std::string(counts_suffix), tensor_type::f32, {matrices, 1});
    written.push_back(std::move(counts));
  }
  out.write(file, [&](std::size_t index) { return std::as_bytes(std::span(written[index])); });
}

void write_older(const std::filesystem::path& file, const importance_table& table) {
  std::string bytes;
  const auto put = [&](std::size_t value) {
    const auto number = static_cast<std::int32_t>(std::min<std::size_t>(value, 0x7fffffff));
    bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
  };
  // Readers divide by the calls, and weigh files that they combine by them.
  const auto calls = std::max<std::size_t>(table.chunks, 1);
  put(table.tensors.size());
  for (const auto& [name, values] : table.tensors) {
    put(name.size());
    bytes += name;
    put(calls);
    put(values.mean_squares.size());
    for (const float v : values.mean_squares) {
      const float scaled = v * static_cast<float>(calls);
      bytes.append(reinterpret_cast<const char*>(&scaled), sizeof scaled);
    }
  }
  put(calls);
  put(table.text.size());
  bytes += table.text;
  const auto out = atomic_file::begin(file, bytes.size());
  if (!out)
    throw failure(errc::bad_file, file.string() + ": another process is writing it");
  out->write(0, std::as_bytes(std::span(bytes)));
  out->commit();
}

} // namespace

importance_table read_importance(const std::filesystem::path& file) {
  const mapped_file map(file);
  const auto name = file.string();
  return read_start(file, 4) == "GGUF" ? read_newer(map.bytes(), name) : read_older(map.bytes(), name);
}

void write_importance(const std::filesystem::path& file, const importance_table& table) {
  if (file.extension() == ".gguf")
    write_newer(file, table);
  else
    write_older(file, table);
}

} // namespace troupe
