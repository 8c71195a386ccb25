// Tensors of torch.save as rows of prompts.
#include "runtime/techniques/prompt_embeds/saved_tensor.hpp"
#include "runtime/techniques/prompt_embeds/technique.hpp"

#include "runtime/support/text/base64.hpp"
#include "tests/api/openai/parse_request.hpp"

#include <doctest/doctest.h>

#include <random>

using namespace troupe;
using namespace troupe::test;

namespace {

// torch.save of torch.arange(6).reshape(2, 3) / 4, by torch 2.
const std::string saved_floats =
  "UEsDBAAACAgAAAAAAAAAAAAAAAAAAAAAAAAQABIAYXJjaGl2ZS9kYXRhLnBrbEZCDgBaWlpaWlpaWlpaWlpaWoACY3RvcmNoLl91"
  "dGlscwpfcmVidWlsZF90ZW5zb3JfdjIKcQAoKFgHAAAAc3RvcmFnZXEBY3RvcmNoCkZsb2F0U3RvcmFnZQpxAlgBAAAAMHEDWAMA"
  "AABjcHVxBEsGdHEFUUsASwJLA4ZxBksDSwGGcQeJY2NvbGxlY3Rpb25zCk9yZGVyZWREaWN0CnEIKVJxCXRxClJxCy5QSwcIx3NT"
  "J5oAAACaAAAAUEsDBAAACAgAAAAAAAAAAAAAAAAAAAAAAAAXACEAYXJjaGl2ZS8uZm9ybWF0X3ZlcnNpb25GQh0AWlpaWlpaWlpa"
  "WlpaWlpaWlpaWlpaWlpaWlpaWloxUEsHCLfv3IMBAAAAAQAAAFBLAwQAAAgIAAAAAAAAAAAAAAAAAAAAAAAAGgA3AGFyY2hpdmUv"
  "LnN0b3JhZ2VfYWxpZ25tZW50RkIzAFpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWjY0"
  "UEsHCD93cekCAAAAAgAAAFBLAwQAAAgIAAAAAAAAAAAAAAAAAAAAAAAAEQA/AGFyY2hpdmUvYnl0ZW9yZGVyRkI7AFpaWlpaWlpa"
  "WlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpabGl0dGxlUEsHCIU94xkGAAAABgAAAFBL"
  "AwQAAAgIAAAAAAAAAAAAAAAAAAAAAAAADgA+AGFyY2hpdmUvZGF0YS8wRkI6AFpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpa"
  "WlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWloAAAAAAACAPgAAAD8AAEA/AACAPwAAoD9QSwcIUuXnHxgAAAAYAAAAUEsDBAAA"
  "CAgAAAAAAAAAAAAAAAAAAAAAAAAPACsAYXJjaGl2ZS92ZXJzaW9uRkInAFpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpa"
  "WlpaWlpaWjMKUEsHCNGeZ1UCAAAAAgAAAFBLAwQAAAgIAAAAAAAAAAAAAAAAAAAAAAAAHgAyAGFyY2hpdmUvLmRhdGEvc2VyaWFs"
  "aXphdGlvbl9pZEZCLgBaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaMTU3MjgxOTk1MTE4NTQ2"
  "NDMwMjYwMzYyMjQzMjQyMTQ2OTA5NTM2OFBLBwgjetPoKAAAACgAAABQSwECAAAAAAgIAAAAAAAAx3NTJ5oAAACaAAAAEAAAAAAA"
  "AAAAAAAAAAAAAAAAYXJjaGl2ZS9kYXRhLnBrbFBLAQIAAAAACAgAAAAAAAC379yDAQAAAAEAAAAXAAAAAAAAAAAAAAAAAOoAAABh"
  "cmNoaXZlLy5mb3JtYXRfdmVyc2lvblBLAQIAAAAACAgAAAAAAAA/d3HpAgAAAAIAAAAaAAAAAAAAAAAAAAAAAFEBAABhcmNoaXZl"
  "Ly5zdG9yYWdlX2FsaWdubWVudFBLAQIAAAAACAgAAAAAAACFPeMZBgAAAAYAAAARAAAAAAAAAAAAAAAAANIBAABhcmNoaXZlL2J5"
  "dGVvcmRlclBLAQIAAAAACAgAAAAAAABS5ecfGAAAABgAAAAOAAAAAAAAAAAAAAAAAFYCAABhcmNoaXZlL2RhdGEvMFBLAQIAAAAA"
  "CAgAAAAAAADRnmdVAgAAAAIAAAAPAAAAAAAAAAAAAAAAAOgCAABhcmNoaXZlL3ZlcnNpb25QSwECAAAAAAgIAAAAAAAAI3rT6CgA"
  "AAAoAAAAHgAAAAAAAAAAAAAAAABSAwAAYXJjaGl2ZS8uZGF0YS9zZXJpYWxpemF0aW9uX2lkUEsGBiwAAAAAAAAAHgMtAAAAAAAA"
  "AAAABwAAAAAAAAAHAAAAAAAAAM8BAAAAAAAA+AMAAAAAAABQSwYHAAAAAMcFAAAAAAAAAQAAAFBLBQYAAAAABwAHAM8BAAD4AwAA"
  "AAA=";
const std::string saved_bfloats =
  "UEsDBAAACAgAAAAAAAAAAAAAAAAAAAAAAAAQABIAYXJjaGl2ZS9kYXRhLnBrbEZCDgBaWlpaWlpaWlpaWlpaWoACY3RvcmNoLl91"
  "dGlscwpfcmVidWlsZF90ZW5zb3JfdjIKcQAoKFgHAAAAc3RvcmFnZXEBY3RvcmNoCkJGbG9hdDE2U3RvcmFnZQpxAlgBAAAAMHED"
  "WAMAAABjcHVxBEsGdHEFUUsASwJLA4ZxBksDSwGGcQeJY2NvbGxlY3Rpb25zCk9yZGVyZWREaWN0CnEIKVJxCXRxClJxCy5QSwcI"
  "/RSoFp0AAACdAAAAUEsDBAAACAgAAAAAAAAAAAAAAAAAAAAAAAAXAB4AYXJjaGl2ZS8uZm9ybWF0X3ZlcnNpb25GQhoAWlpaWlpa"
  "WlpaWlpaWlpaWlpaWlpaWlpaWloxUEsHCLfv3IMBAAAAAQAAAFBLAwQAAAgIAAAAAAAAAAAAAAAAAAAAAAAAGgA3AGFyY2hpdmUv"
  "LnN0b3JhZ2VfYWxpZ25tZW50RkIzAFpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWjY0"
  "UEsHCD93cekCAAAAAgAAAFBLAwQAAAgIAAAAAAAAAAAAAAAAAAAAAAAAEQA/AGFyY2hpdmUvYnl0ZW9yZGVyRkI7AFpaWlpaWlpa"
  "WlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpabGl0dGxlUEsHCIU94xkGAAAABgAAAFBL"
  "AwQAAAgIAAAAAAAAAAAAAAAAAAAAAAAADgA+AGFyY2hpdmUvZGF0YS8wRkI6AFpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpa"
  "WlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWloAAIA+AD9AP4A/oD9QSwcI7KEu0wwAAAAMAAAAUEsDBAAACAgAAAAAAAAAAAAA"
  "AAAAAAAAAAAPADcAYXJjaGl2ZS92ZXJzaW9uRkIzAFpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpa"
  "WlpaWlpaWjMKUEsHCNGeZ1UCAAAAAgAAAFBLAwQAAAgIAAAAAAAAAAAAAAAAAAAAAAAAHgAyAGFyY2hpdmUvLmRhdGEvc2VyaWFs"
  "aXphdGlvbl9pZEZCLgBaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaMTU3MjgxOTk1MTE4NTQ2"
  "NDMwMjYwMzMzMzA1ODA2MDk2ODMzODM5NlBLBwjfRU04KAAAACgAAABQSwECAAAAAAgIAAAAAAAA/RSoFp0AAACdAAAAEAAAAAAA"
  "AAAAAAAAAAAAAAAAYXJjaGl2ZS9kYXRhLnBrbFBLAQIAAAAACAgAAAAAAAC379yDAQAAAAEAAAAXAAAAAAAAAAAAAAAAAO0AAABh"
  "cmNoaXZlLy5mb3JtYXRfdmVyc2lvblBLAQIAAAAACAgAAAAAAAA/d3HpAgAAAAIAAAAaAAAAAAAAAAAAAAAAAFEBAABhcmNoaXZl"
  "Ly5zdG9yYWdlX2FsaWdubWVudFBLAQIAAAAACAgAAAAAAACFPeMZBgAAAAYAAAARAAAAAAAAAAAAAAAAANIBAABhcmNoaXZlL2J5"
  "dGVvcmRlclBLAQIAAAAACAgAAAAAAADsoS7TDAAAAAwAAAAOAAAAAAAAAAAAAAAAAFYCAABhcmNoaXZlL2RhdGEvMFBLAQIAAAAA"
  "CAgAAAAAAADRnmdVAgAAAAIAAAAPAAAAAAAAAAAAAAAAANwCAABhcmNoaXZlL3ZlcnNpb25QSwECAAAAAAgIAAAAAAAA30VNOCgA"
  "AAAoAAAAHgAAAAAAAAAAAAAAAABSAwAAYXJjaGl2ZS8uZGF0YS9zZXJpYWxpemF0aW9uX2lkUEsGBiwAAAAAAAAAHgMtAAAAAAAA"
  "AAAABwAAAAAAAAAHAAAAAAAAAM8BAAAAAAAA+AMAAAAAAABQSwYHAAAAAMcFAAAAAAAAAQAAAFBLBQYAAAAABwAHAM8BAAD4AwAA"
  "AAA=";

std::shared_ptr<served_model> model_of_rows(int hidden = 3) {
  auto model = byte_model();
  model->hidden = hidden;
  model->techniques.set(prompt_embeds_technique, std::make_shared<const bool>(true));
  return model;
}

generation_request with_rows(const std::string& fields, const std::shared_ptr<served_model>& model = model_of_rows()) {
  const auto body = json::document::parse('{' + fields + '}', "the body", errc::bad_request);
  return parse_generation(dialect::completions, field_reader(body.root()), *model);
}

const std::vector<float> six{0, 0.25f, 0.5f, 0.75f, 1, 1.25f};

} // namespace

TEST_CASE("a tensor that torch saved is read, in float and in bfloat16") {
  for (const auto& text : {saved_floats, saved_bfloats}) {
    const auto rows = parse_saved_tensor(*decode_base64(text));
    CHECK(rows.rows == 2);
    CHECK(rows.width == 3);
    CHECK(rows.values == six);
  }
}

TEST_CASE("what is damaged, cut off or no tensor is refused, and reads nothing beyond its end") {
  const auto whole = *decode_base64(saved_floats);
  std::mt19937 random(3);
  for (std::size_t size = 0; size < whole.size(); size += 7)
    CHECK_THROWS_AS(parse_saved_tensor(std::string_view(whole).substr(0, size)), failure);
  for (int i = 0; i < 3000; ++i) {
    auto damaged = whole;
    for (int k = 0; k < 3; ++k)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    try {
      const auto rows = parse_saved_tensor(damaged);
      CHECK(rows.values.size() == static_cast<std::size_t>(rows.rows) * static_cast<std::size_t>(rows.width));
    } catch (const failure& f) {
      CHECK(f.what_failed().param == "prompt_embeds");
    }
  }
}

TEST_CASE("rows stand for tokens of a prompt, one prompt for each tensor") {
  const auto one = with_rows(R"("prompt_embeds":")" + saved_floats + R"(","max_tokens":3)");
  REQUIRE(one.prompts.size() == 1);
  CHECK(one.prompts[0].prompt.size() == 2);
  CHECK(rows_of(one.prompts[0].sampling.techniques.find(prompt_embeds_technique))->values == six);
  CHECK(one.prompts[0].sampling.max_tokens == 3);
  const auto two = with_rows(R"("prompt":"","prompt_embeds":[")" + saved_floats + "\",\"" + saved_bfloats + "\"]");
  CHECK(two.prompts.size() == 2);
}

TEST_CASE("rows of another width, beside a prompt, or where they are off are refused") {
  const auto field = R"("prompt_embeds":")" + saved_floats + '"';
  const auto wrong = [&](const std::string& more, const auto& model) {
    return fault_of([&] { with_rows(field + more, model); });
  };
  CHECK(wrong("", model_of_rows(4)).message ==
        "`prompt_embeds` must have rows of 4 numbers, as long as the model's embeddings, not 3");
  CHECK(wrong(R"(,"prompt":"x")", model_of_rows()).param == "prompt_embeds");
  CHECK(wrong(R"(,"echo":true)", model_of_rows()).param == "echo");
  auto off = model_of_rows();
  off->techniques = {};
  CHECK(wrong("", off).message == "`prompt_embeds` is off on this server (--enable-prompt-embeds)");
  CHECK(fault_of([] { with_rows(R"("prompt_embeds":"!")"); }).message == "`prompt_embeds` must be base64");
  CHECK(fault_of([] { with_rows(R"("prompt_embeds":[])"); }).param == "prompt_embeds");
}
