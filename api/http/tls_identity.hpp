// The certificate and the key by which a server speaks TLS: read from files, checked, immutable. Connections that have
// begun with one go on with it, whatever is read later. Any thread.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

struct ssl_ctx_st; // OpenSSL's

namespace troupe {

class tls_identity {
public:
  /// PEM files: the server's certificate first, then those that lead to a root; and its key without a password. One file
  /// may be both. Throws failure(not_found | bad_file).
  tls_identity(const std::filesystem::path& certificate, const std::filesystem::path& key);

  ssl_ctx_st* get() const { return context_.get(); }

  /// What an operator should know: a key that others can read, a certificate that is not valid now. A sentence each.
  const std::vector<std::string>& remarks() const { return remarks_; }

private:
  std::shared_ptr<ssl_ctx_st> context_;
  std::vector<std::string> remarks_;
};

} // namespace troupe
