#ifndef TESSERA_COMM_MPI_CALL_CODEC_H_
#define TESSERA_COMM_MPI_CALL_CODEC_H_

#include <deque>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tessera/comm/collective.h"

namespace tessera::internal {

// What ranks of a group of `group_size` must agree on in a launch, as bytes for
// processes of the same build. Equal bytes mean equal calls, save where calls
// differ by nature: see MayDiffer.
std::string EncodeCalls(absl::Span<const Collective> calls, int group_size);

// True if ranks that agree may give different bytes, and ranks that disagree
// equal ones: where there is an all_to_all or a send_recv.
bool MayDiffer(absl::Span<const Collective> calls);

// Calls that agree or not with others as the encoded ones do. They have no
// memory.
class DecodedCalls {
 public:
  // ERRORS: Internal for other bytes than those of EncodeCalls.
  absl::Status Decode(absl::string_view bytes);
  absl::Span<const Collective> calls() const { return calls_; }

 private:
  std::vector<Collective> calls_;
  std::deque<std::vector<Transfer>> transfers_;  // that calls_ borrows
};

}  // namespace tessera::internal

#endif  // TESSERA_COMM_MPI_CALL_CODEC_H_
