#ifndef TESSERA_TESTS_EMULATION_DEVICE_MEMORY_H_
#define TESSERA_TESTS_EMULATION_DEVICE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tessera::emulation {

// The memory of an emulated GPU: a window of addresses that only a kernel or a
// copy may touch. Whoever touches it otherwise faults, as on a host whose
// pointer is the device's.
//
// Memory is never used twice: what is new, and what was freed, is full of
// poison, bytes of 0xff, NaN in every floating dtype. So is a guard around it.
// Used by one thread at a time.
class DeviceMemory {
 public:
  // Of so many bytes, all that is ever allocated together.
  explicit DeviceMemory(int64_t bytes);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // Aligned to 256 bytes; null where the window has come to its end.
  void* Allocate(int64_t bytes);
  // REQUIRES: allocated, not freed. Free poisons it, too.
  void Poison(void* data);
  void Free(void* data);
  // Bytes of the allocation at `data` that is not freed; -1 where there is
  // none.
  int64_t BytesAt(const void* data) const;
  bool Contains(const void* address) const;

  // Lets everybody touch it while it is in scope.
  class Opened {
   public:
    explicit Opened(DeviceMemory& memory) : memory_(memory) { memory_.Open(); }
    ~Opened() { memory_.Close(); }
    Opened(const Opened&) = delete;
    Opened& operator=(const Opened&) = delete;

   private:
    DeviceMemory& memory_;
  };

  // What was written that nobody had: beside an allocation, or after its end.
  std::vector<std::string> Damage();
  // What is not freed.
  std::vector<std::string> Leaks() const;

 private:
  struct Block {
    int64_t bytes;
    bool freed = false;
  };

  void Open();
  void Close();
  // The pages in which the bytes lie.
  void Protect(std::byte* begin, int64_t bytes, int protection);
  void FillWithPoison(std::byte* begin, int64_t bytes);
  bool IsPoison(const std::byte* begin, int64_t bytes) const;

  std::byte* const window_;
  const int64_t bytes_;
  int64_t used_ = 0;
  int opened_ = 0;
  std::map<std::byte*, Block> blocks_;
};

}  // namespace tessera::emulation

#endif  // TESSERA_TESTS_EMULATION_DEVICE_MEMORY_H_
