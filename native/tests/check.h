// A test runner in one header: cases run in the order they are written, a failed check is reported and the case goes on.
#pragma once

#include <cstdio>
#include <cstring>
#include <sstream>
#include <string>
#include <utility>

namespace headway::test {

// Counts checks and failures; one for the whole program, handed to every area.
class Checks {
 public:
  // Cases whose name does not contain `filter` are left out.
  explicit Checks(std::string filter) : filter_(std::move(filter)) {}

  template <typename Body>
  void run(const std::string& name, Body body) {
    if (name.find(filter_) == std::string::npos) return;
    ++num_cases_;
    name_ = name;
    body();
  }

  void report(bool passed, const char* file, int line, const std::string& what) {
    ++num_checks_;
    if (passed) return;
    ++num_failures_;
    constexpr int kShown = 50;  // one broken loop must not hide the rest of the output
    if (num_failures_ > kShown) return;
    const char* base = std::strrchr(file, '/');
    std::fprintf(stderr, "%s:%d: %s: %s\n", base == nullptr ? file : base + 1, line, name_.c_str(), what.c_str());
  }

  // Prints the totals; returns the program's exit status. No case at all is a failure: the filter is wrong.
  int finish() const {
    std::printf("%d cases, %lld checks, %lld failures\n", num_cases_, num_checks_, num_failures_);
    return num_failures_ == 0 && num_cases_ > 0 ? 0 : 1;
  }

 private:
  std::string filter_;
  std::string name_;
  int num_cases_ = 0;
  long long num_checks_ = 0;
  long long num_failures_ = 0;
};

template <typename A, typename B>
std::string both(const char* text, const A& a, const B& b) {
  std::ostringstream out;
  out.precision(17);
  out << text << ", with " << a << " and " << b;
  return out.str();
}

// The functions behind the macros: values are taken by reference while the full expression lives.
template <typename A, typename B>
void check_equal(Checks& checks, const A& a, const B& b, const char* file, int line, const char* text) {
  const bool equal = a == b;
  checks.report(equal, file, line, equal ? std::string() : both(text, a, b));
}

inline void check_near(Checks& checks, double a, double b, double tolerance, const char* file, int line,
                       const char* text) {
  const bool near = (a > b ? a - b : b - a) <= tolerance;
  checks.report(near, file, line, near ? std::string() : both(text, a, b));
}

}  // namespace headway::test

// They use the `checks` in scope.
#define CHECK(...) checks.report(static_cast<bool>(__VA_ARGS__), __FILE__, __LINE__, #__VA_ARGS__)

#define CHECK_EQ(a, b) ::headway::test::check_equal(checks, (a), (b), __FILE__, __LINE__, #a " == " #b)

#define CHECK_NEAR(a, b, tolerance) \
  ::headway::test::check_near(checks, (a), (b), (tolerance), __FILE__, __LINE__, #a " near " #b)

// The body of CHECK_THROWS must raise an exception of the type or of one derived from it.
#define CHECK_THROWS(type, ...)                                                                                     \
  do {                                                                                                              \
    bool thrown = false;                                                                                            \
    try {                                                                                                           \
      __VA_ARGS__;                                                                                                  \
    } catch (const type&) {                                                                                         \
      thrown = true;                                                                                                \
    }                                                                                                               \
    checks.report(thrown, __FILE__, __LINE__, #__VA_ARGS__ " raises " #type);                                       \
  } while (false)
