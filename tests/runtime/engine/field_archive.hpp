// Bytes of anything that has fields, and back: by the lists of runtime/engine/fields.hpp alone.
#pragma once

#include "runtime/engine/fields.hpp"

#include <array>
#include <bit>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::testing {

class field_writer {
public:
  std::string bytes;

  template <class T>
  requires(std::is_arithmetic_v<T> || std::is_enum_v<T>) void put(T x) {
    bytes.append(reinterpret_cast<const char*>(&x), sizeof(x));
  }
  void put(std::chrono::milliseconds x) { put(x.count()); }
  void put(const std::string& x) { put(x.size()), bytes += x; }
  template <class T, std::size_t N>
  void put(const std::array<T, N>& x) {
    for (const auto& each : x)
      put(each);
  }
  template <class A, class B>
  void put(const std::pair<A, B>& x) {
    put(x.first), put(x.second);
  }
  template <class T>
  void put(const std::vector<T>& x) {
    put(x.size());
    for (const auto& each : x)
      put(each);
  }
  template <class T>
  void put(const std::optional<T>& x) {
    put(x.has_value());
    if (x)
      put(*x);
  }
  template <class T>
  void put(const std::shared_ptr<const T>& x) {
    put(x != nullptr);
    if (x)
      put(*x);
  }
  template <class... Ts>
  void put(const std::variant<Ts...>& x) {
    put(x.index());
    std::visit([this](const auto& held) { put(held); }, x);
  }
  template <list_field T>
  void put(const T& x) {
    put(items_of(x));
  }
  template <has_fields T>
  void put(const T& x) {
    for_each_field(x, [this](const char*, const auto& field) { put(field); });
  }
};

class field_reader {
public:
  explicit field_reader(std::string_view bytes) : bytes_(bytes) {}

  bool at_end() const { return bytes_.empty(); }

  template <class T>
  requires(std::is_arithmetic_v<T> || std::is_enum_v<T>) void get(T& x) {
    std::memcpy(&x, take(sizeof(x)).data(), sizeof(x));
  }
  void get(std::chrono::milliseconds& x) { x = std::chrono::milliseconds(get<std::chrono::milliseconds::rep>()); }
  void get(std::string& x) { x = take(get<std::size_t>()); }
  template <class T, std::size_t N>
  void get(std::array<T, N>& x) {
    for (auto& each : x)
      get(each);
  }
  template <class A, class B>
  void get(std::pair<A, B>& x) {
    get(x.first), get(x.second);
  }
  template <class T>
  void get(std::vector<T>& x) {
    x.clear();
    for (auto n = get<std::size_t>(); n > 0; --n)
      get(x.emplace_back());
  }
  template <class T>
  void get(std::optional<T>& x) {
    x.reset();
    if (get<bool>())
      get(x.emplace());
  }
  template <class T>
  void get(std::shared_ptr<const T>& x) {
    x = get<bool>() ? std::make_shared<const T>(get<T>()) : nullptr;
  }
  template <class... Ts>
  void get(std::variant<Ts...>& x) {
    const auto index = get<std::size_t>();
    std::size_t i = 0;
    ((i++ == index ? void(x = get<Ts>()) : void()), ...);
  }
  template <list_field T>
  void get(T& x) {
    make(x, get<decltype(items_of(x))>());
  }
  template <has_fields T>
  void get(T& x) {
    for_each_field(x, [this](const char*, auto& field) { get(field); });
  }
  template <class T>
  T get() {
    T x{};
    get(x);
    return x;
  }

private:
  std::string_view take(std::size_t n) {
    if (n > bytes_.size())
      throw std::out_of_range("the archive ends early");
    const auto taken = bytes_.substr(0, n);
    bytes_.remove_prefix(n);
    return taken;
  }

  std::string_view bytes_;
};

template <class T>
std::string archived(const T& x) {
  field_writer to;
  to.put(x);
  return std::move(to.bytes);
}

} // namespace troupe::testing
