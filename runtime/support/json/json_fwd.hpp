// Declares JSON values without simdjson, for headers that only pass them on. Code that looks into a value includes
// json.hpp.
#pragma once

namespace simdjson::dom {
class element;
class object;
class array;
} // namespace simdjson::dom

namespace troupe::json {

using value = simdjson::dom::element;
using object = simdjson::dom::object;
using array = simdjson::dom::array;

class document; // json.hpp
class reader;   // json_reader.hpp

} // namespace troupe::json
