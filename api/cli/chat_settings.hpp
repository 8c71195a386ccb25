// What `/set` changes within a chat: any of the sampling flags by its name, and the system message. Main thread only.
#pragma once

#include "api/cli/sampling_options.hpp"

#include <map>
#include <string>
#include <string_view>

namespace troupe::cli {

class chat_settings {
public:
  /// Starts with the settings of the command line.
  chat_settings(const sampling_options& given, std::string system);

  /// "temperature 0.5", also as Ollama has it: "parameter temperature 0.5"; "temperature default" takes back what was
  /// set. Throws failure(bad_request), and changes nothing then.
  void set(std::string_view words);

  const sampling_options& sampling() const { return now_; }
  const std::string& system() const { return system_; }

  /// Lines on what holds, for a person.
  std::string told(const model_info& model) const;

private:
  const sampling_options& given_;
  const std::string given_system_;
  std::map<std::string, std::string> changes_; // values by flags
  sampling_options now_;
  std::string system_;
};

} // namespace troupe::cli
