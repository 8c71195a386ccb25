// What a server's operator allows: texts that no answer contains, biases, and bounds that clients can tighten and not
// lift. Plain data and pure functions; any thread.
#pragma once

#include "api/service/served_model.hpp"
#include "runtime/engine/generation.hpp"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

class banned_texts; // runtime/support/text/banned_texts.hpp

struct policy_rules {
  // Absent: as for everybody.
  std::optional<std::vector<std::string>> banned = {};
  /// Biases of tokens, by id or by a text. A text's bias applies to its last token, where its other tokens precede it.
  std::optional<std::vector<std::pair<std::string, float>>> logit_bias = {};
  std::optional<float> max_temperature = {};
  std::optional<int> max_tokens = {};
  /// The lowest `priority` (lower runs sooner) with which requests come ahead of other clients'. Absent: 0, so none do.
  std::optional<int> min_priority = {};
  std::optional<int> max_requests = {};      // sequences that a client may have running and waiting
  std::optional<int> tokens_per_minute = {}; // of prompts and answers, that a client may use
};

class server_policy {
public:
  policy_rules of_all = {};
  std::map<std::string, policy_rules> of_key = {}; // by a key's name: what stands there holds instead

  bool is_empty() const;
  /// What holds for the key.
  policy_rules of(const std::string& key) const;
};

/// The banned texts of a policy, as what looks for them in answers: made once. Immutable.
class banned_by_policy {
public:
  /// Throws failure(bad_request) if there are too many.
  explicit banned_by_policy(const server_policy& policy);

  /// The banned texts of the key; null: none are banned.
  std::shared_ptr<const banned_texts> of(const std::string& key) const;

private:
  std::shared_ptr<const banned_texts> of_all_;
  std::map<std::string, std::shared_ptr<const banned_texts>> of_key_; // that have their own
};

/// Throws failure(bad_request) naming the rule if the rules are wrong by themselves: too many or too large.
void check_rules(const policy_rules& rules);

/// Throws failure(bad_request) naming the rule if requests to the model could not follow the rules.
void check_policy(const server_policy& policy, const served_model& model);

/// Bounds how a request comes ahead of other clients': what it asks beyond that orders the client's own requests.
void bound_priority(const policy_rules& rules, generation& to);

/// Makes a request follow the rules. Throws failure(unsupported) with the field that asks for more than they allow.
void apply_policy(const policy_rules& rules, const served_model& model, generation& to);

} // namespace troupe
