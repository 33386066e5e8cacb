// A step allocates what it returns and nothing else, once a step of its size has been.
#include <atomic>
#include <cstdlib>
#include <new>
#include <string>

#include "areas.h"
#include "step_support.h"

namespace {

std::atomic<long long> num_allocations{0};

}  // namespace

// Of the whole program; arrays and what does not throw come here, too. Inlined, GCC would see `new` meet `free`.
[[gnu::noinline]] void* operator new(std::size_t size) {
  num_allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size > 0 ? size : 1); memory != nullptr) return memory;
  throw std::bad_alloc();
}
// A sanitizer's own would not go with the operator delete below.
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  num_allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(size > 0 ? size : 1);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace headway::test {
namespace {

// Of one call.
template <class Body>
long long allocations_of(const Body& body) {
  const long long before = num_allocations.load();
  body();
  return num_allocations.load() - before;
}

// Prefill beside decoding, four rows read.
StepArrays mixed_step() {
  return StepArrays({{random_tokens(70, 1), 0, block_range(0, 70), false},
                     {random_tokens(1, 2), 300, block_range(10, 301)},
                     {random_tokens(2, 3), 40, block_range(40, 42)}});
}

}  // namespace

void test_allocations(Checks& checks) {
  std::vector<NamedShape> shapes = other_shapes();
  shapes.push_back({"llama", tiny_shape()});
  for (const NamedShape& named : shapes) {
    for (const char* weights : {"bf16", "int8", "int4"}) {
      const std::string name = std::string(weights) + ", " + named.name;
      checks.run("allocations: a step that samples allocates its tokens alone, " + name, [&] {
        Bench bench({.isa = available_isas().back(), .weights = weights}, 64, named.shape);
        StepArrays step = mixed_step();
        for (const float temperature : {0.0F, 0.8F}) {
          for (const std::int32_t logprobs : {-1, 3}) {
            const Sampling sampling(4, temperature, logprobs);
            const auto execute = [&] { bench.runner.execute(step.view(), sampling.view()); };
            execute();
            CHECK_EQ(allocations_of(execute), logprobs < 0 ? 1 : 1 + 4);  // and what each row's best are
          }
        }
        const Sampling fewer(3, 0.8F, -1);
        step.output_kinds[1] = static_cast<std::int32_t>(OutputKind::kHidden);
        const auto execute = [&] { bench.runner.execute(step.view(), fewer.view()); };
        execute();
        CHECK_EQ(allocations_of(execute), 2);  // and its hidden states
        bench.runner.time_phases(true);
        CHECK_EQ(allocations_of(execute), 2);
      });

      checks.run("allocations: a step on many threads allocates its logits alone, " + name, [&] {
        Bench bench({.weights = weights, .num_threads = 3}, 64, named.shape);
        const StepArrays step = mixed_step(), smaller({{random_tokens(1, 2), 300, block_range(10, 301)}});
        const auto forward = [&] { bench.runner.forward(step.view()); };
        forward();
        CHECK_EQ(allocations_of(forward), 1);
        const Step view = smaller.view();
        bench.runner.forward(view);  // one that spreads spans is planned otherwise
        CHECK_EQ(allocations_of([&] { bench.runner.forward(view); }), 1);
      });
    }
  }
}

}  // namespace headway::test
