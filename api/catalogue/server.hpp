// The server for programs that embed it:
//
//   troupe::catalogue models(engine);
//   troupe::server server(models, {.port = 8080});
//   server.run_until_stopped();
//
// The engine, the catalogue and the server are destroyed in the opposite order.
#pragma once

#include "api/catalogue/catalogue.hpp"
#include "api/server/http_server.hpp"
