// Records what a server is asked and what it answers, for `troupe replay` (api/cli). A request's connection begins it
// and ends it; the events of its prompts pass by on the engine's threads. What clients hear does not change.
#pragma once

#include "api/record/record_folder.hpp"
#include "runtime/engine/generation.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// The tokens and log-probabilities of one request's answers, from the events of its prompts.
class heard_answers {
public:
  void hear(std::size_t prompt, const event& what);
  /// One for each prompt. `with_ids`: with what was said, not only how much.
  std::vector<recorded_prompt> prompts(bool with_ids) const;
  bool empty() const { return prompts_.empty(); }

private:
  struct heard_prompt {
    recorded_prompt its;
    std::map<std::uint32_t, recorded_answer> answers;
    std::vector<sampled_token> scores;
  };
  std::map<std::size_t, heard_prompt> prompts_;
};

/// Lives as long as a request of it is held.
class recorder : public std::enable_shared_from_this<recorder> {
public:
  struct request;
  using request_ptr = std::shared_ptr<request>;

  /// To be shared.
  recorder(std::unique_ptr<record_folder> folder, bool with_prompts);
  ~recorder();

  /// A request has come. It ends when it is said to, or all have let go of it. Any thread.
  request_ptr begin(std::string_view id, std::string_view endpoint, std::string_view client, std::string_view body);
  static void end(const request_ptr& which, unsigned status);

  /// Passes on what the engine says to a prompt, and listens: log-probabilities are computed for this, and left out of
  /// what is passed on unless they were asked for.
  static event_sink listen(const request_ptr& which, std::size_t prompt, generation& asked, event_sink to);

  /// Once for each.
  void add_model(const std::string& name, const std::string& files);

  std::uint64_t recorded() const { return recorded_; }
  std::uint64_t lost() const { return lost_; } // lines

private:
  void add(const recorded_line& what);
  record_time now() const;

  const std::unique_ptr<record_folder> folder_;
  const bool with_prompts_;
  const std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  std::atomic<std::uint64_t> recorded_ = 0, lost_ = 0;
  std::mutex mutex_; // guards what follows
  std::map<std::string, std::size_t, std::less<>> clients_;
};

} // namespace troupe
