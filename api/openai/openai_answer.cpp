#include "api/openai/openai_answer.hpp"

#include "api/openai/openai_response.hpp"

#include <utility>

namespace troupe {

namespace {

class openai_answer final : public answer_writer {
public:
  openai_answer(const generation_request& request, std::shared_ptr<const served_model> model)
    : stream_(request.stream), writer_(request, std::move(model)) {}

  std::string_view id() const override { return writer_.id(); }
  void withhold(const output_filter& filter) override { writer_.withhold(filter); }
  bool is_filtered(std::size_t prompt) const override { return writer_.is_filtered(prompt); }

  std::string take(std::size_t prompt, const token_event& e) override {
    if (stream_)
      return unless_last(writer_.chunk(prompt, e));
    writer_.add(prompt, e);
    return {};
  }
  std::string take(std::size_t prompt, const done_event& e) override {
    writer_.add(prompt, e);
    return stream_ ? unless_last(writer_.last_chunks(prompt)) : std::string();
  }
  std::string end() override { return writer_.with_timings(std::move(held_)) + writer_.last_chunks(); }
  std::string fail(const error& why) override { return std::move(held_) + sse(error_body(why)) + sse("[DONE]"); }
  std::string body() override { return writer_.body(); }

private:
  // The last event has the timings, which are known once the generation is done, at its heels.
  std::string unless_last(std::string events) {
    if (!writer_.awaits_timings())
      return events;
    held_ += events;
    return {};
  }

  bool stream_;
  response_writer writer_;
  std::string held_; // of a stream whose choices have all ended
};

} // namespace

generation_job openai_job(dialect speaks, const field_reader& body, std::shared_ptr<const served_model> model,
                          const std::stop_token& stop) {
  auto request = parse_generation(speaks, body, *model, stop);
  auto writer = std::make_unique<openai_answer>(request, std::move(model));
  return {std::move(request.prompts), request.stream, std::move(writer), std::move(request.notes)};
}

} // namespace troupe
