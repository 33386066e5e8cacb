// The forward pass against a plain double reference, sampling through it, and what it must refuse.
#include "../src/forward.h"

#include <cfenv>
#include <cmath>
#include <stdexcept>
#include <thread>

#include "areas.h"
#include "reference_model.h"
#include "step_support.h"

namespace headway::test {
namespace {

// bf16 keeps 8 bits of keys, values and weights; int8 quantises activations too, and dot products of bfloat16 round both
// factors. Where a choice of experts is close, what the formats lose may tip it.
void check_reference(Checks& checks, const std::string& name, const ModelShape& shape, double bf16_limit, double int8_limit) {
  checks.run("forward: agrees with plain arithmetic, " + name, [&] {
    const Tokens tokens = random_tokens(40, 1);
    for (const std::string& isa : available_isas()) {
      for (const char* weights : {"bf16", "int8", "int4", "nf4", "auto"}) {
        Bench bench({.isa = isa, .weights = weights}, 8, shape);
        const std::vector<float> got = bench.logits({{tokens, 0, block_range(0, tokens.size())}});
        const std::vector<double> exact = reference_logits(*bench.model, tokens);
        CHECK_EQ(got.size(), exact.size());
        double error = 0.0, spread = 0.0;
        for (std::size_t i = 0; i < got.size(); ++i) {
          error += (got[i] - exact[i]) * (got[i] - exact[i]);
          spread += exact[i] * exact[i];
        }
        double limit = int8_limit;
        if (bench.model->format().weights == WeightFormat::kBF16) limit = bf16_limit * (isa == "avx512bf16" ? 1.2 : 1.0);
        if (bench.model->format().weights == WeightFormat::kAuto) limit *= 1.2;  // other weights, of larger logits
        CHECK(std::sqrt(error / spread) < limit);
      }
    }
  });
}

void test_reference(Checks& checks) {
  for (const bool interleaved : {true, false}) {
    for (const bool tied : {true, false}) {
      ModelShape shape = tiny_shape();
      shape.ropes = {tiny_rope(interleaved ? 16 : 12, interleaved)};
      shape.tied_embeddings = tied;
      check_reference(checks, std::string(interleaved ? "interleaved" : "halves") + (tied ? ", tied" : ", untied"), shape, 0.005, 0.03);
    }
  }
  for (const NamedShape& other : other_shapes()) check_reference(checks, other.name, other.shape, 0.02, 0.1);
}

void test_execute(Checks& checks) {
  checks.run("forward: execute samples from the logits that forward gives, at any thread count", [&] {
    const Tokens tokens = random_tokens(30, 2);
    const StepArrays step({{tokens, 0, block_range(0, tokens.size())}});
    for (const float temperature : {0.0F, 0.8F}) {
      const Sampling sampling(tokens.size(), temperature, 3);
      for (const int num_threads : {1, 3}) {
        Bench bench({.num_threads = num_threads});
        const std::vector<float> logits = bench.runner.forward(step.view()).logits;
        const StepOutput output = bench.runner.execute(step.view(), sampling.view());
        CHECK_EQ(output.sampled.size(), tokens.size());
        std::vector<SamplingRow> rows;
        sampling_rows(sampling.view(), std::ssize(tokens), 101, rows);
        SamplerScratch scratch;
        SampledToken expected;
        for (std::size_t i = 0; i < output.sampled.size(); ++i) {
          sample_row(logits.data() + i * 101, 101, rows[i], scratch, expected);
          CHECK_EQ(output.sampled[i].token_id, expected.token_id);
          CHECK_EQ(output.sampled[i].logprob, expected.logprob);
          CHECK_EQ(output.sampled[i].top.size(), 3U);
        }
      }
    }
  });

  checks.run("forward: hidden rows and logits rows in one step", [&] {
    const Tokens tokens = random_tokens(5, 3);
    Bench bench({});
    StepArrays step({{tokens, 0, {0}}});
    const std::vector<float> all = bench.runner.forward(step.view()).logits;
    step.output_rows = {1, 3, 4};
    step.output_kinds = {0, 1, 0};
    const StepOutput output = bench.runner.forward(step.view());
    CHECK_EQ(output.hidden.size(), 96U);
    CHECK(output.logits == [&] {
      std::vector<float> wanted(all.begin() + 101, all.begin() + 2 * 101);
      wanted.insert(wanted.end(), all.begin() + 4 * 101, all.end());
      return wanted;
    }());
    std::vector<float> row(96);
    double dot = 0.0;  // the output matrix times the hidden state is the row's logits
    unpack_row(bench.model->output(), 42, row.data());
    for (int i = 0; i < 96; ++i) dot += double{row[i]} * double{output.hidden[i]};
    CHECK_NEAR(dot, all[3 * 101 + 42], 0.05);
  });

  checks.run("forward: a step without output rows fills the cache all the same", [&] {
    const Tokens tokens = random_tokens(32, 4);
    Bench quiet({}), loud({});
    StepArrays step({{tokens, 0, {0, 1}}});
    loud.runner.forward(step.view());
    step.output_rows.clear();
    step.output_kinds.clear();
    const StepOutput output = quiet.runner.execute(step.view(), Sampling(0, 1.0F, -1).view());
    CHECK(output.sampled.empty() && output.hidden.empty());
    CHECK(quiet.block_bytes({0, 1}) == loud.block_bytes({0, 1}));
  });
}

void test_malformed(Checks& checks) {
  checks.run("forward: a malformed step is refused and changes nothing", [&] {
    Bench bench({}, 8);
    const StepArrays good({{random_tokens(20, 5), 0, {0, 1}}, {random_tokens(1, 6), 20, {2, 3}}});
    bench.runner.forward(good.view());
    const std::vector<std::uint8_t> before = bench.block_bytes(block_range(0, 8 * 16));
    const auto refused = [&](auto change) {
      StepArrays step = good;
      std::fill(step.tokens.begin(), step.tokens.end(), 9);  // would change the cache
      change(step);
      const Sampling sampling(step.output_rows.size(), 0.0F, -1);
      CHECK_THROWS(std::invalid_argument, bench.runner.execute(step.view(), sampling.view()));
      CHECK(bench.block_bytes(block_range(0, 8 * 16)) == before);
    };
    refused([](StepArrays& s) { s.tokens[3] = 101; });
    refused([](StepArrays& s) { s.tokens[3] = -1; });
    refused([](StepArrays& s) { s.tokens.pop_back(); });
    refused([](StepArrays& s) { s.positions[2] = 7; });
    refused([](StepArrays& s) { s.positions.pop_back(); });
    refused([](StepArrays& s) { s.sequence_starts[1] = 22; });
    refused([](StepArrays& s) { s.sequence_starts[0] = 1; });
    refused([](StepArrays& s) { s.sequence_starts.pop_back(); });
    refused([](StepArrays& s) { s.sequence_starts.clear(); });
    refused([](StepArrays& s) { s.context_lens[1] = 19; });
    refused([](StepArrays& s) { s.context_lens[0] = -1; });
    refused([](StepArrays& s) { s.context_lens[1] = 2147483647; });
    refused([](StepArrays& s) { s.block_table[0] = 8; });
    refused([](StepArrays& s) { s.block_table[3] = -1; });
    refused([](StepArrays& s) { s.block_table[3] = 0; });  // two sequences would write one block
    refused([](StepArrays& s) { s.block_table_starts[1] = 1; });
    refused([](StepArrays& s) { s.block_table_starts[2] = 5; });
    refused([](StepArrays& s) { s.adapter_ids[1] = 1; });
    refused([](StepArrays& s) { s.adapter_ids.pop_back(); });
    refused([](StepArrays& s) { s.output_rows[1] = 0; });
    refused([](StepArrays& s) { s.output_rows.back() = 21; });
    refused([](StepArrays& s) { s.output_rows[0] = -1; });
    refused([](StepArrays& s) { s.output_kinds[0] = 2; });
    refused([](StepArrays& s) { s.output_kinds.pop_back(); });
    StepArrays too_long({{random_tokens(1, 7), 600, block_range(0, 8 * 16)}});
    CHECK_THROWS(std::invalid_argument, bench.runner.forward(too_long.view()));
  });

  checks.run("forward: malformed sampling is refused and changes nothing", [&] {
    Bench bench({}, 8);
    const StepArrays step({{random_tokens(4, 5), 0, {0}}});
    const std::vector<std::uint8_t> before = bench.block_bytes({0});
    const auto refused = [&](auto change) {
      Sampling sampling(4, 0.0F, -1);
      change(sampling);
      CHECK_THROWS(std::invalid_argument, bench.runner.execute(step.view(), sampling.view()));
      CHECK(bench.block_bytes({0}) == before);
    };
    refused([](Sampling& s) { s.temperature.pop_back(); });
    refused([](Sampling& s) { s.temperature[2] = -1.0F; });
    refused([](Sampling& s) { s.seeds.clear(); });
    refused([](Sampling& s) { s.history = {1}; });
    refused([](Sampling& s) { s.history_starts[1] = 1; });
    refused([](Sampling& s) { s.history = {101}; s.history_starts = {0, 1, 1, 1, 1}; });
    refused([](Sampling& s) { s.prompt_lens[0] = 1; });
    refused([](Sampling& s) { s.bias_ids = {1}; s.bias_starts = {0, 1, 1, 1, 1}; });
    refused([](Sampling& s) { s.mask_rows[0] = 0; });
    refused([](Sampling& s) { s.masks = {0, 0, 0}; });
    refused([](Sampling& s) { s.mask_rows[0] = -2; });
  });
}

void test_concurrency(Checks& checks) {
  checks.run("forward: models run side by side on their own threads", [&] {
    const Tokens tokens = random_tokens(48, 8);
    const std::vector<float> expected = Bench({}).logits({{tokens, 0, {0, 1, 2}}});
    std::vector<std::thread> threads;
    std::vector<int> correct(3, 0);
    for (std::size_t i = 0; i < correct.size(); ++i) {
      threads.emplace_back([&, i] {
        Bench bench({.num_threads = 2}, 8);
        for (int round = 0; round < 5; ++round) correct[i] += bench.logits({{tokens, 0, {0, 1, 2}}}) == expected ? 1 : 0;
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const int count : correct) CHECK_EQ(count, 5);
  });

  checks.run("forward: a second caller is refused, never let in", [&] {
    const Tokens tokens = random_tokens(64, 9);
    Bench bench({.num_threads = 2}, 8);
    const std::vector<float> expected = bench.logits({{tokens, 0, {0, 1, 2, 3}}});
    std::vector<std::thread> threads;
    std::vector<int> correct(2, 0), refused(2, 0);
    for (std::size_t i = 0; i < correct.size(); ++i) {
      threads.emplace_back([&, i] {
        const StepArrays step({{tokens, 0, {0, 1, 2, 3}}});
        for (int round = 0; round < 20; ++round) {
          try {
            correct[i] += bench.runner.forward(step.view()).logits == expected ? 1 : 0;
          } catch (const std::runtime_error&) {
            ++refused[i];
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (std::size_t i = 0; i < correct.size(); ++i) CHECK_EQ(correct[i] + refused[i], 20);
    CHECK(correct[0] + correct[1] > 0);
  });
}

void test_load(Checks& checks) {
  checks.run("model: nothing is finished while another caller uses the model", [&] {
    const std::shared_ptr<Model> model = loaded_model({});
    {
      const Model::Use use(*model);
      CHECK_THROWS(std::runtime_error, model->finish());
    }
    model->finish();
    CHECK(model->finished());
  });

  checks.run("model: the caller's rounding mode changes nothing", [&] {
    const std::vector<std::uint8_t> bytes = random_bytes(96, 0.5F, 1);
    const auto norm_of = [&](int mode) {
      const auto model = std::make_shared<Model>(tiny_shape(), "int8", 32, "f32", "portable", 1);
      const int before = std::fegetround();
      std::fesetround(mode);
      model->load({"output_norm"}, TensorType::kF32, 0, 1, 96, bytes, 1.0F);
      CHECK_EQ(std::fegetround(), mode);
      std::fesetround(before);
      return model->output_norm();
    };
    CHECK(norm_of(FE_UPWARD) == norm_of(FE_TONEAREST));
  });
}

void test_kv_cache(Checks& checks) {
  checks.run("kv cache: blocks are read, written and copied; what does not exist is refused", [&] {
    for (const char* kv : {"bf16", "int8"}) {
      Bench bench({.kv = kv}, 4);
      KvCache& cache = *bench.cache;
      std::vector<std::uint8_t> bytes(static_cast<std::size_t>(cache.block_bytes()));
      for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 7 + 1);
      const std::vector<std::uint8_t> zeros(bytes.size(), 0);
      cache.write_block(1, bytes);
      cache.copy_block(1, 3);
      cache.copy_block(1, 1);
      cache.bind_block(1);
      cache.bind_block(2);
      CHECK(bench.block_bytes({1}) == bytes && bench.block_bytes({3}) == bytes);
      CHECK(bench.block_bytes({0}) == zeros && bench.block_bytes({2}) == zeros);
      for (const std::int64_t block : {std::int64_t{-1}, std::int64_t{4}, std::int64_t{1} << 40}) {
        CHECK_THROWS(std::out_of_range, cache.read_block(block, bytes));
        CHECK_THROWS(std::out_of_range, cache.write_block(block, bytes));
        CHECK_THROWS(std::out_of_range, cache.copy_block(block, 0));
        CHECK_THROWS(std::out_of_range, cache.copy_block(0, block));
        CHECK_THROWS(std::out_of_range, cache.bind_block(block));
      }
      bytes.push_back(0);
      CHECK_THROWS(std::invalid_argument, cache.write_block(0, bytes));
      CHECK_THROWS(std::invalid_argument, cache.read_block(0, bytes));
      CHECK(bench.block_bytes({0}) == zeros);
    }
    const auto model = tiny_model({});
    CHECK_THROWS(std::invalid_argument, KvCache(model, 4, 8, "bf16"));
    CHECK_THROWS(std::invalid_argument, KvCache(model, 4, 16, "fp8"));
    CHECK_THROWS(std::invalid_argument, KvCache(model, 0, 16, "bf16"));
  });
}

}  // namespace

void test_forward(Checks& checks) {
  test_reference(checks);
  test_execute(checks);
  test_malformed(checks);
  test_concurrency(checks);
  test_load(checks);
  test_kv_cache(checks);
}

}  // namespace headway::test
