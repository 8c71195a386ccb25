// Changes a member of the search that parameters ask for: edit_search(p)->branching = 6;
#pragma once

#include "runtime/sampling/sampling_params.hpp"
#include "runtime/techniques/tree_search/technique.hpp"

namespace troupe::testing {

class edit_search {
public:
  explicit edit_search(sampling_params& of) : of_(of), how_(*search_of(of.techniques.find(tree_search_technique))) {}
  ~edit_search() { of_.techniques.set(searched_by(how_)); }
  edit_search(const edit_search&) = delete;
  edit_search& operator=(const edit_search&) = delete;

  search_options* operator->() { return &how_; }

private:
  sampling_params& of_;
  search_options how_;
};

} // namespace troupe::testing
