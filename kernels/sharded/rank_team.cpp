#include "kernels/sharded/rank_team.hpp"

namespace troupe::kernels {

rank_team::rank_team(std::vector<std::unique_ptr<backend>> backends, rank_leaders leaders)
  : leaders_(std::move(leaders)), placed_(backends.size()) {
  if (!leaders_.pool)
    leaders_.pool = std::make_shared<thread_pool>(static_cast<int>(backends.size()));
  for (auto& made : backends)
    ranks_.push_back(std::make_unique<rank>(std::move(made)));
}

} // namespace troupe::kernels
