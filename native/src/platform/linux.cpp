// The operating-system calls of the core, all of them: memory from Linux.
#include <sys/mman.h>

#include <new>

#include "platform/platform.h"

namespace headway {
namespace {

constexpr std::size_t kPageBytes = std::size_t{4} << 10;
constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

}  // namespace

void PageDeleter::operator()(std::uint8_t* pages) const {
  if (pages != nullptr) munmap(pages, num_bytes);
}

Pages allocate_pages(std::size_t num_bytes) {
  if (num_bytes == 0) num_bytes = 1;
  if (num_bytes > SIZE_MAX / 2) throw std::bad_alloc();
  // A huge page is zeroed whole at first touch, so small arrays do without. Large ones take room for the alignment that
  // huge pages need; what is never touched costs nothing.
  const bool huge = num_bytes >= kHugePageBytes;
  const std::size_t mapped_bytes = num_bytes + (huge ? kHugePageBytes : 0);
  void* mapped =
      mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  auto* begin = static_cast<std::uint8_t*>(mapped);
  if (!huge) return Pages(begin, PageDeleter{mapped_bytes});
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(begin) % kHugePageBytes;
  const std::size_t head = misaligned == 0 ? 0 : kHugePageBytes - misaligned;
  if (head > 0) munmap(begin, head);
  begin += head;
  madvise(begin, mapped_bytes - head, MADV_HUGEPAGE);  // a hint: refusal changes speed only
  return Pages(begin, PageDeleter{mapped_bytes - head});
}

void bind_pages(std::uint8_t* begin, std::size_t num_bytes) {
  volatile std::uint8_t* bytes = begin;
  for (std::size_t at = 0; at < num_bytes; at += kPageBytes) bytes[at] = bytes[at];
  if (num_bytes > 0) bytes[num_bytes - 1] = bytes[num_bytes - 1];
}

}  // namespace headway
