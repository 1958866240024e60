#ifndef TESSERA_BASE_PROCESSORS_H_
#define TESSERA_BASE_PROCESSORS_H_

namespace tessera::internal {

// Keeps this thread, and those that it starts from now on, on one of the
// processors on which it may run: of n, on the (index mod n)-th. Where the
// system does not allow that, it changes nothing. REQUIRES: index >= 0.
void BindThisThread(int index);

}  // namespace tessera::internal

#endif  // TESSERA_BASE_PROCESSORS_H_
