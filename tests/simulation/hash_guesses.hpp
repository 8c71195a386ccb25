// A model that guesses what hash_logits makes likely. Checks what real ones trust: that a demand goes on where the one
// before it ended. Used by one guess_worker.
#pragma once

#include "runtime/techniques/guesser.hpp"

#include <map>
#include <vector>

namespace troupe::simulation {

class hash_guesses final : public guess_model {
public:
  guess_reply serve(const guess_request& request) override;

private:
  std::map<sequence_id, std::vector<token_id>> known_;
};

} // namespace troupe::simulation
