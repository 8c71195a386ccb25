#include "runtime/techniques/prompt_embeds/saved_tensor.hpp"

#include "runtime/support/error.hpp"
#include "runtime/support/text/visible_text.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>

namespace troupe {

namespace {

[[noreturn]] void no_tensor(const std::string& why) {
  refuse_field("prompt_embeds", "is no tensor that torch.save wrote: " + why);
}

/// Little-endian. Throws unless the bytes are there.
template <class T>
T number_at(std::string_view bytes, std::size_t at) {
  static_assert(std::endian::native == std::endian::little);
  if (at > bytes.size() || bytes.size() - at < sizeof(T))
    no_tensor("it ends early");
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

std::string_view bytes_part(std::string_view bytes, std::size_t at, std::size_t size) {
  if (at > bytes.size() || bytes.size() - at < size)
    no_tensor("it ends early");
  return bytes.substr(at, size);
}

/// The files in a zip archive that is not compressed, as torch.save writes it.
class stored_archive {
public:
  explicit stored_archive(std::string_view bytes) : bytes_(bytes) {
    constexpr std::size_t tail = 22, most_comment = 1 << 16;
    if (bytes.size() < tail)
      no_tensor("it is too short for a zip archive");
    auto end = bytes.size() - tail;
    const auto first = end - std::min<std::size_t>(end, most_comment);
    while (number_at<std::uint32_t>(bytes, end) != 0x06054b50) {
      if (end == first)
        no_tensor("it is no zip archive");
      --end;
    }
    entries_ = number_at<std::uint16_t>(bytes, end + 10);
    directory_ = number_at<std::uint32_t>(bytes, end + 16);
  }

  /// The one whose name ends so.
  std::string_view file(std::string_view ending) const {
    std::size_t at = directory_;
    for (std::size_t i = 0; i < entries_; ++i) {
      if (number_at<std::uint32_t>(bytes_, at) != 0x02014b50)
        no_tensor("its directory is damaged");
      const auto method = number_at<std::uint16_t>(bytes_, at + 10);
      const auto size = number_at<std::uint32_t>(bytes_, at + 24);
      const auto name_size = number_at<std::uint16_t>(bytes_, at + 28);
      const auto name = bytes_part(bytes_, at + 46, name_size);
      if (name.ends_with(ending)) {
        if (method != 0)
          no_tensor("its files are compressed");
        const auto local = number_at<std::uint32_t>(bytes_, at + 42);
        const std::size_t header = 30u + number_at<std::uint16_t>(bytes_, local + std::size_t{26}) +
          number_at<std::uint16_t>(bytes_, local + std::size_t{28});
        return bytes_part(bytes_, local + header, size);
      }
      at += 46u + name_size + number_at<std::uint16_t>(bytes_, at + 30) + number_at<std::uint16_t>(bytes_, at + 32);
    }
    no_tensor("it has no file `" + visible_name(ending) + '`');
  }

private:
  std::string_view bytes_;
  std::size_t entries_ = 0, directory_ = 0;
};

/// What a pickle says, as far as tensors need it: nothing of it is carried out.
struct pickled {
  enum class kind : std::uint8_t { global, text, number, mark, other };
  kind what = kind::other;
  std::string_view text; // "torch FloatStorage"
  std::int64_t number = 0;
  char opcode = 0;
};

std::vector<pickled> read_pickle(std::string_view bytes) {
  constexpr std::size_t most_opcodes = 256;
  std::vector<pickled> result;
  for (std::size_t at = 0; at < bytes.size();) {
    if (result.size() > most_opcodes)
      no_tensor("it holds more than a tensor");
    const char code = bytes[at++];
    pickled one;
    one.opcode = code;
    switch (code) {
      case '\x80': ++at; continue;    // PROTO
      case 'q': ++at; continue;       // BINPUT
      case 'r': at += 4; continue;    // LONG_BINPUT
      case '\x94': continue;          // MEMOIZE
      case '\x95': at += 8; continue; // FRAME
      case '(': one.what = pickled::kind::mark; break;
      case 'c': {
        const auto first = bytes.find('\n', at), second = first == bytes.npos ? first : bytes.find('\n', first + 1);
        if (second == bytes.npos)
          no_tensor("it ends early");
        one.what = pickled::kind::global;
        one.text = bytes.substr(at, second - at); // "torch\nFloatStorage"
        at = second + 1;
        break;
      }
      case 'X': {
        const auto size = number_at<std::uint32_t>(bytes, at);
        one.what = pickled::kind::text;
        one.text = bytes_part(bytes, at + 4, size);
        at += 4 + std::size_t{size};
        break;
      }
      case '\x8c': {
        const auto size = number_at<std::uint8_t>(bytes, at);
        one.what = pickled::kind::text;
        one.text = bytes_part(bytes, at + 1, size);
        at += 1 + std::size_t{size};
        break;
      }
      case 'K':
        one.what = pickled::kind::number;
        one.number = number_at<std::uint8_t>(bytes, at);
        at += 1;
        break;
      case 'M':
        one.what = pickled::kind::number;
        one.number = number_at<std::uint16_t>(bytes, at);
        at += 2;
        break;
      case 'J':
        one.what = pickled::kind::number;
        one.number = number_at<std::int32_t>(bytes, at);
        at += 4;
        break;
      default: break;
    }
    result.push_back(one);
  }
  return result;
}

/// A tensor's place in its storage.
struct saved_tensor {
  std::string_view storage, type;
  std::int64_t offset = 0, rows = 0, width = 0;
};

// A call of torch._utils._rebuild_tensor_v2 with ((storage, type, key, place, numbers), offset, sizes, strides, ...).
saved_tensor tensor_of(std::span<const pickled> all) {
  using kind = pickled::kind;
  constexpr kind pattern[] = {kind::global, kind::mark,   kind::mark,  kind::text,  kind::global, kind::text,
                              kind::text,   kind::number, kind::other, kind::other, kind::number};
  constexpr auto shape = "it must hold one dense tensor of two dimensions";
  if (all.size() < std::size(pattern) || all[0].text != "torch._utils\n_rebuild_tensor_v2")
    no_tensor(shape);
  for (std::size_t i = 0; i < std::size(pattern); ++i)
    if (all[i].what != pattern[i])
      no_tensor(shape);
  auto rest = all.subspan(std::size(pattern));
  // Reads a tuple of `count` numbers: the numbers, then the opcode that makes the tuple.
  const auto numbers = [&](std::size_t count) {
    std::vector<std::int64_t> result;
    const char tuple = count == 3 ? '\x87' : '\x86';
    if (rest.size() <= count || rest[count].opcode != tuple)
      no_tensor(shape);
    for (std::size_t i = 0; i < count; ++i) {
      if (rest[i].what != kind::number)
        no_tensor(shape);
      result.push_back(rest[i].number);
    }
    rest = rest.subspan(count + 1);
    return result;
  };
  // Embedding layers give a batch of one sequence, which vLLM takes, too.
  const bool batch = rest.size() > 3 && rest[3].opcode == '\x87';
  auto sizes = numbers(batch ? 3 : 2), strides = numbers(batch ? 3 : 2);
  if (batch) {
    if (sizes.front() != 1)
      no_tensor(shape);
    sizes.erase(sizes.begin());
    strides.erase(strides.begin());
  }
  const saved_tensor result{all[5].text, all[4].text, all[10].number, sizes[0], sizes[1]};
  if (result.rows < 1 || result.width < 1 || result.offset < 0)
    no_tensor("it is empty");
  if ((strides[1] != 1 && result.width > 1) || (strides[0] != result.width && result.rows > 1))
    no_tensor("it must be contiguous");
  return result;
}

float from_half(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const auto sign = bits >> 15 ? -1.f : 1.f;
  if (exponent == 31)
    return mantissa ? std::numeric_limits<float>::quiet_NaN() : sign * std::numeric_limits<float>::infinity();
  return sign *
    (exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                   : std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25));
}

template <class T, class Convert>
std::vector<float> converted_numbers(std::string_view bytes, std::int64_t offset, std::size_t count, Convert convert) {
  const auto numbers = bytes.size() / sizeof(T), first = static_cast<std::size_t>(offset);
  if (first > numbers || numbers - first < count)
    no_tensor("its storage is too short");
  std::vector<float> result(count);
  for (std::size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, bytes.data() + (first + i) * sizeof(T), sizeof(T));
    result[i] = convert(value);
  }
  return result;
}

} // namespace

prompt_embeddings parse_saved_tensor(std::string_view file) {
  const stored_archive archive(file);
  const auto pickle = read_pickle(archive.file("/data.pkl"));
  const auto tensor = tensor_of(pickle);
  if (tensor.rows > std::numeric_limits<std::int32_t>::max() / tensor.width)
    no_tensor("it is too large");
  const auto bytes = archive.file("/data/" + std::string(tensor.storage));
  const auto count = static_cast<std::size_t>(tensor.rows * tensor.width);
  prompt_embeddings result{static_cast<std::int32_t>(tensor.rows), static_cast<std::int32_t>(tensor.width), {}};
  if (tensor.type == "torch\nFloatStorage")
    result.values = converted_numbers<float>(bytes, tensor.offset, count, [](float v) { return v; });
  else if (tensor.type == "torch\nDoubleStorage")
    result.values = converted_numbers<double>(bytes, tensor.offset, count,
                                              [](double v) { return static_cast<float>(v); });
  else if (tensor.type == "torch\nHalfStorage")
    result.values = converted_numbers<std::uint16_t>(bytes, tensor.offset, count, from_half);
  else if (tensor.type == "torch\nBFloat16Storage")
    result.values = converted_numbers<std::uint16_t>(bytes, tensor.offset, count, [](std::uint16_t v) {
      return std::bit_cast<float>(static_cast<std::uint32_t>(v) << 16);
    });
  else
    no_tensor("its numbers must be float, half, bfloat16 or double");
  return result;
}

} // namespace troupe
