#include "tessera/dbuffer/packing_search.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "tessera/base/checked_math.h"

namespace tessera::internal {
namespace {

// A set of placed tensors, as early as they can be.
struct PlacedSet {
  int64_t end = 0;     // of the last one placed
  int64_t placed = 0;  // sum of sizes
  int64_t soft = 0;    // of these, those of soft kinds
  uint64_t id = 0;     // equal for equal sets
  int before = -1;     // the set of the round before
  int kind = -1;       // placed last

  int64_t Score(int64_t soft_divisor) const {
    return end - placed + soft / soft_divisor;
  }
};

class Search {
 public:
  Search(absl::Span<const PackingKind> kinds, int64_t parts, int64_t part_size,
         const PackingSearchOptions& options)
      : kinds_(kinds),
        part_size_(part_size),
        capacity_(parts * part_size),
        options_(options) {
    NumberSets();
    for (const PackingKind& kind : kinds) {
      tensors_ += kind.count;
      total_ += kind.count * kind.tensor.size;
      is_soft_.push_back(part_size % kind.tensor.granule == 0);
    }
  }

  PackingSearchResult Run() {
    sets_.push_back(PlacedSet());
    counts_.assign(kinds_.size(), 0);
    for (int round = 0; round < tensors_; ++round) {
      Grow();
      if (next_.empty()) {
        return {.proven_impossible = kept_all_, .work = work_};
      }
      KeepBest();
      Advance();
    }
    return {.order = Trace(), .work = work_};
  }

 private:
  struct Choice {
    int before;
    int kind;
  };

  // Ids of sets are sums of weights: mixed radix where the number of sets fits
  // 64 bits, so that ids are unique; scattered bits elsewhere.
  void NumberSets() {
    uint64_t sets = 1;
    for (const PackingKind& kind : kinds_) {
      weights_.push_back(sets);
      const uint64_t radix = static_cast<uint64_t>(kind.count) + 1;
      if (sets > std::numeric_limits<uint64_t>::max() / radix) {
        return ScatterIds();
      }
      sets *= radix;
    }
  }

  void ScatterIds() {
    kept_all_ = false;  // two sets may share an id
    weights_.clear();
    for (size_t i = 0; i < kinds_.size(); ++i) {
      uint64_t bits = (i + 1) * 0x9e3779b97f4a7c15u;
      bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
      bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
      weights_.push_back((bits ^ (bits >> 31)) | 1);
    }
  }

  absl::Span<const int> CountsOf(int set) const {
    return absl::MakeConstSpan(counts_).subspan(set * kinds_.size(),
                                                kinds_.size());
  }

  // next_ = all sets of one tensor more that can still fit.
  void Grow() {
    next_.clear();
    index_.clear();
    for (int set = 0; set < static_cast<int>(sets_.size()); ++set) {
      const absl::Span<const int> counts = CountsOf(set);
      for (int kind = 0; kind < static_cast<int>(kinds_.size()); ++kind) {
        if (counts[kind] < kinds_[kind].count) Place(set, kind);
      }
    }
  }

  void Place(int set, int kind) {
    ++work_;
    const PackedTensor& tensor = kinds_[kind].tensor;
    PlacedSet grown = sets_[set];
    grown.before = set;
    grown.kind = kind;
    grown.id += weights_[kind];
    grown.end = EarliestBegin(tensor, grown.end, part_size_) + tensor.size;
    grown.placed += tensor.size;
    if (is_soft_[kind]) grown.soft += tensor.size;
    if (grown.end + (total_ - grown.placed) > capacity_) return;
    const auto [at, is_new] =
        index_.try_emplace(grown.id, static_cast<int>(next_.size()));
    if (is_new) {
      next_.push_back(grown);
    } else if (grown.end < next_[at->second].end) {
      next_[at->second] = grown;
    }
  }

  void KeepBest() {
    const size_t width = options_.width;
    if (next_.size() <= width) return;
    kept_all_ = false;
    std::vector<int> best(next_.size());
    std::iota(best.begin(), best.end(), 0);
    const auto key = [&](int i) {
      return std::pair(next_[i].Score(options_.soft_divisor), i);
    };
    std::nth_element(best.begin(), best.begin() + width, best.end(),
                     [&](int a, int b) { return key(a) < key(b); });
    best.resize(width);
    std::sort(best.begin(), best.end());
    for (size_t i = 0; i < width; ++i) next_[i] = next_[best[i]];
    next_.resize(width);
  }

  void Advance() {
    std::vector<int> counts;
    std::vector<Choice> choices;
    counts.reserve(next_.size() * kinds_.size());
    choices.reserve(next_.size());
    for (const PlacedSet& set : next_) {
      const absl::Span<const int> before = CountsOf(set.before);
      counts.insert(counts.end(), before.begin(), before.end());
      ++counts[counts.size() - kinds_.size() + set.kind];
      choices.push_back({set.before, set.kind});
    }
    counts_ = std::move(counts);
    rounds_.push_back(std::move(choices));
    std::swap(sets_, next_);
  }

  std::vector<int> Trace() const {
    std::vector<int> order(rounds_.size());
    int set = 0;  // the only one of all tensors
    for (size_t round = rounds_.size(); round-- > 0;) {
      order[round] = rounds_[round][set].kind;
      set = rounds_[round][set].before;
    }
    return order;
  }

  const absl::Span<const PackingKind> kinds_;
  const int64_t part_size_;
  const int64_t capacity_;
  const PackingSearchOptions options_;
  std::vector<uint64_t> weights_;  // per kind
  std::vector<bool> is_soft_;      // per kind
  int tensors_ = 0;
  int64_t total_ = 0;

  std::vector<PlacedSet> sets_;  // of the last round
  std::vector<int> counts_;      // set by set: how many of each kind
  std::vector<PlacedSet> next_;
  absl::flat_hash_map<uint64_t, int> index_;  // of next_, by id
  std::vector<std::vector<Choice>> rounds_;
  bool kept_all_ = true;
  int64_t work_ = 0;
};

}  // namespace

int64_t EarliestBegin(const PackedTensor& tensor, int64_t at,
                      int64_t part_size) {
  const int64_t part_end = (at / part_size + 1) * part_size;
  if (at + tensor.size <= part_end) return at;
  const auto whole_granules = [&](int64_t room) {
    return room / tensor.granule * tensor.granule;
  };
  const int64_t head = whole_granules(part_end - at);
  if (tensor.size - head <= part_size || part_size % tensor.granule == 0) {
    return part_end - head;
  }
  return part_end + part_size - whole_granules(part_size);
}

bool FitsParts(const PackedTensor& tensor, int64_t part_size) {
  if (tensor.size <= part_size) return true;
  if (part_size % tensor.granule == 0) return true;
  const int64_t head = part_size / tensor.granule * tensor.granule;
  return tensor.size - head <= part_size;
}

PackingSearchResult SearchPacking(absl::Span<const PackingKind> kinds,
                                  int64_t parts, int64_t part_size,
                                  const PackingSearchOptions& options) {
  return Search(kinds, parts, part_size, options).Run();
}

}  // namespace tessera::internal
