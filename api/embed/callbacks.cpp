#include "api/embed/callbacks.hpp"

namespace troupe {

namespace {
thread_local int depth = 0;
}

bool is_in_callback() { return depth > 0; }

callback_mark::callback_mark() { ++depth; }

callback_mark::~callback_mark() { --depth; }

} // namespace troupe
