// Finds where a prefix of the tokens, ordered by (logit descending, index ascending), ends: the heart of top-k and top-p.
//
// A radix selection over the bits of the logits, 11 bits at a time: O(n) whatever the distribution, without sorting.
// It knows no sampling settings; top-k is a prefix of mass k with every token's mass 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace headway {

// The last token of a prefix: its logit and its index. A token belongs to the prefix if its logit is greater, or equal
// with an index not greater.
struct PrefixEnd {
  float logit;
  std::int32_t index;

  bool contains(float other_logit, std::int32_t other_index) const {
    return other_logit > logit || (other_logit == logit && other_index <= index);
  }
};

// Returns the end of the shortest prefix whose masses sum to at least `target`, or of the whole if rounding lets no prefix
// reach it.
//   logits      no NaN and no negative zero
//   masses      nonnegative, or null: every token's mass is 1
//   selection   the indices considered, ascending, at least one; overwritten
//   bucket_mass scratch
PrefixEnd find_prefix_end(const float* logits, const float* masses, double target, std::vector<std::int32_t>& selection,
                          std::vector<double>& bucket_mass);

// Removes the indices for which `wanted` is false, keeping the order. No branch depends on the data: over a vocabulary
// mispredicted branches would cost more than everything else.
template <typename Wanted>
void keep_if(std::vector<std::int32_t>& selection, Wanted wanted) {
  std::size_t count = 0;
  for (const std::int32_t index : selection) {
    selection[count] = index;
    count += wanted(index) ? 1 : 0;
  }
  selection.resize(count);
}

// The largest of n values without NaN; -infinity if n is 0.
float max_of(const float* values, std::int32_t n);

// Fills `selection` with the indices, ascending, of all values that are at least `bound`.
void find_at_least(const float* values, std::int32_t n, float bound, std::vector<std::int32_t>& selection);

// Fills `selection` with indices, ascending, that contain the `count` first of the order; few more where that is cheap.
//   0 < count < n; logits as above; chunk_max is scratch
void preselect(const float* logits, std::int32_t n, std::int32_t count, std::vector<std::int32_t>& selection,
               std::vector<float>& chunk_max);

}  // namespace headway
