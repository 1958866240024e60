#ifndef TESSERA_TESTS_EMULATION_NCCL_NETWORK_H_
#define TESSERA_TESTS_EMULATION_NCCL_NETWORK_H_

namespace tessera::emulation {

class Machine;

// What the communicators of NCCL's stand-in share.
class NcclNetwork {
 public:
  explicit NcclNetwork(Machine& machine) : machine_(machine) {}

 private:
  [[maybe_unused]] Machine& machine_;
};

}  // namespace tessera::emulation

#endif  // TESSERA_TESTS_EMULATION_NCCL_NETWORK_H_
