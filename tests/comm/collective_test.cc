#include "tessera/comm/collective.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera {
namespace {

TensorView View(absl::string_view meta, void* data = nullptr) {
  return TensorView(data, TensorMeta::Parse(meta).value());
}

ExtentSplit Sizes(absl::Span<const int64_t> sizes) {
  return ExtentSplit::Explicit(sizes).value();
}

Collective Call(CollectiveKind kind, absl::string_view send,
                absl::string_view recv) {
  Collective call;
  call.kind = kind;
  call.send = View(send);
  call.recv = View(recv);
  return call;
}

Collective AllToAll(const ExtentSplit& send, const ExtentSplit& recv) {
  Collective call = Call(CollectiveKind::kAllToAll, "f32[4,2]", "f32[2,3]");
  call.send_split = send;
  call.recv_dim = 1;
  call.recv_split = recv;
  return call;
}

// One message of `meta` with each peer.
std::vector<Transfer> Transfers(const std::vector<int>& peers,
                                absl::string_view meta) {
  std::vector<Transfer> transfers;
  for (int peer : peers) transfers.push_back({peer, View(meta)});
  return transfers;
}

Collective SendRecv(absl::Span<const Transfer> sends,
                    absl::Span<const Transfer> recvs) {
  Collective call;
  call.kind = CollectiveKind::kSendRecv;
  call.sends = sends;
  call.recvs = recvs;
  return call;
}

TEST(CollectiveKind, HasNames) {
  EXPECT_EQ(CollectiveKindName(CollectiveKind::kAllReduce), "all_reduce");
  EXPECT_EQ(CollectiveKindName(CollectiveKind::kReduceScatter),
            "reduce_scatter");
  EXPECT_EQ(CollectiveKindName(CollectiveKind::kAllGather), "all_gather");
  EXPECT_EQ(CollectiveKindName(CollectiveKind::kAllToAll), "all_to_all");
  EXPECT_EQ(CollectiveKindName(CollectiveKind::kBroadcast), "broadcast");
  EXPECT_EQ(CollectiveKindName(CollectiveKind::kSendRecv), "send_recv");
  EXPECT_EQ(CollectiveKindName(CollectiveKind::kBarrier), "barrier");
}

TEST(Collective, SignatureNamesWhatRanksMustAgreeOn) {
  EXPECT_EQ(Call(CollectiveKind::kAllReduce, "f32[12]", "f32[12]").Signature(),
            "all_reduce sum f32[12]");
  Collective scatter =
      Call(CollectiveKind::kReduceScatter, "bf16[4,3]", "bf16[4,1]");
  scatter.op = ReduceOp::kAvg;
  scatter.send_dim = 1;
  scatter.send_split = Sizes({1, 2});
  EXPECT_EQ(scatter.Signature(),
            "reduce_scatter avg bf16[4,3] dim 1 split (1,2)");
  EXPECT_EQ(
      Call(CollectiveKind::kAllGather, "f32[2,3]", "f32[5,3]").Signature(),
      "all_gather f32[5,3] dim 0 split ceil");
  EXPECT_EQ(AllToAll({}, {}).Signature(), "all_to_all f32");
  Collective broadcast = Call(CollectiveKind::kBroadcast, "i64[]", "i64[]");
  broadcast.root = 3;
  EXPECT_EQ(broadcast.Signature(), "broadcast i64[] root 3");
  EXPECT_EQ(SendRecv({}, {}).Signature(), "send_recv");
  EXPECT_EQ(Collective().Signature(), "barrier");
}

TEST(Collective, MatchesWhereSignaturesAreEqual) {
  const std::vector<Transfer> message = Transfers({1}, "f32[3]");
  std::vector<Collective> calls = {Collective(), SendRecv(message, {}),
                                   SendRecv({}, {}), AllToAll({}, {}),
                                   AllToAll(Sizes({3, 1}), {})};
  for (absl::string_view meta : {"f32[4]", "f64[4]", "f32[2,2]"}) {
    for (CollectiveKind kind :
         {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter,
          CollectiveKind::kAllGather, CollectiveKind::kAllToAll,
          CollectiveKind::kBroadcast}) {
      calls.push_back(Call(kind, meta, meta));
      Collective other = calls.back();
      other.op = ReduceOp::kMax;
      calls.push_back(other);
      other = calls.back();
      other.root = 1;
      calls.push_back(other);
      other.send_split = Sizes({1, 3});
      calls.push_back(other);
      other.recv_split = Sizes({1, 3});
      calls.push_back(other);
      other.send_dim = 1;
      other.recv_dim = 1;
      calls.push_back(other);
    }
  }
  for (const Collective& a : calls) {
    for (const Collective& b : calls) {
      EXPECT_EQ(a.Matches(b), a.Signature() == b.Signature())
          << a.Signature() << " and " << b.Signature();
    }
  }
}

TEST(Collective, PiecesFollowDimAndSplit) {
  std::array<float, 8> memory;
  Collective call = AllToAll(Sizes({3, 0, 1}), {});
  call.send = View("f32[4,2]", memory.data());
  call.recv = View("f32[2,3]", memory.data());
  EXPECT_EQ(call.SendPiece(0, 3).ToString(), "f32[3,2]");
  EXPECT_EQ(call.SendPiece(1, 3).num_elements(), 0);
  EXPECT_EQ(call.SendPiece(2, 3).data(), &memory[6]);
  EXPECT_EQ(call.RecvPiece(2, 3).shape().extents(),
            (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(call.RecvPiece(2, 3).data(), &memory[2]);
}

TEST(Collective, CountsBytesThatOthersSend) {
  // CeilSplit(10, 4): 3 3 3 1. The own piece from three peers, then the rest.
  const Collective reduce =
      Call(CollectiveKind::kAllReduce, "f32[10]", "f32[10]");
  EXPECT_EQ(reduce.BytesReceived(0, 4), 4 * (3 * 3 + 7));
  EXPECT_EQ(reduce.BytesReceived(3, 4), 4 * (3 * 1 + 9));
  EXPECT_EQ(reduce.BytesReceived(0, 1), 0);
  EXPECT_EQ(Call(CollectiveKind::kReduceScatter, "bf16[10]", "bf16[3]")
                .BytesReceived(1, 4),
            2 * 3 * 3);
  EXPECT_EQ(
      Call(CollectiveKind::kAllGather, "f64[1]", "f64[10]").BytesReceived(3, 4),
      8 * 9);
  EXPECT_EQ(AllToAll({}, Sizes({0, 1, 2})).BytesReceived(2, 3), 4 * 2 * 1);
  Collective broadcast = Call(CollectiveKind::kBroadcast, "f32[5]", "f32[5]");
  broadcast.root = 1;
  EXPECT_EQ(broadcast.BytesReceived(0, 2), 20);
  EXPECT_EQ(broadcast.BytesReceived(1, 2), 0);
  EXPECT_EQ(
      SendRecv(Transfers({0, 1, 2}, "f32[3]"), Transfers({1, 0, 2}, "bf16[5]"))
          .BytesReceived(1, 3),
      2 * 2 * 5);
  EXPECT_EQ(Collective().BytesReceived(0, 4), 0);
}

TEST(IsSameMemory, ComparesElementsNotSpellings) {
  std::array<float, 16> memory;
  const TensorView row = View("f32[1,4]", memory.data());
  EXPECT_TRUE(IsSameMemory(row, row));
  // The stride of an extent of 1 leads nowhere.
  EXPECT_TRUE(
      IsSameMemory(row, View("f32[1,8]", memory.data()).Slice(1, {0, 4})));
  EXPECT_FALSE(IsSameMemory(row, View("f32[1,4]", &memory[1])));
  EXPECT_FALSE(IsSameMemory(row, View("i32[1,4]", memory.data())));
  EXPECT_FALSE(IsSameMemory(row, View("f32[4]", memory.data())));
  EXPECT_FALSE(IsSameMemory(View("f32[2,2]", memory.data()),
                            View("f32[2,4]", memory.data()).Slice(1, {0, 2})));
  EXPECT_TRUE(
      IsSameMemory(View("f32[0,4]", &memory[0]), View("f32[0,4]", &memory[8])));
}

}  // namespace
}  // namespace tessera
