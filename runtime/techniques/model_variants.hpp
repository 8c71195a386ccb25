// Models that techniques make of the one that is loaded, each with a name of its own, which requests give as their
// `model`. Servers list them; some let clients load and unload them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace troupe {

class technique_values; // technique.hpp

/// The variants that one technique makes. Any thread.
class model_variants {
public:
  virtual ~model_variants() = default;

  /// What they are, in a sentence.
  virtual std::string_view kind() const = 0;
  /// In alphabetical order.
  virtual std::vector<std::string> names() const = 0;
  virtual bool has(const std::string& name) const = 0;

  // For clients:
  /// Whether they may load and unload any.
  virtual bool changeable() const = 0;
  /// From a path of this machine. Returns lines for the log. Throws failure.
  virtual std::vector<std::string> load(const std::string& name, const std::string& path) = 0;
  /// Throws failure(not_found) if there is none of this name.
  virtual void unload(const std::string& name) = 0;
};

/// The variants of all techniques that have any.
std::vector<model_variants*> variants_of(const technique_values& values);

/// The variants of which one has this name; null: none.
const model_variants* variants_with(const technique_values& values, const std::string& name);

} // namespace troupe
