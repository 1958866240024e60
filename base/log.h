#ifndef TESSERA_BASE_LOG_H_
#define TESSERA_BASE_LOG_H_

#include <functional>
#include <memory>

#include "absl/base/log_severity.h"
#include "absl/strings/string_view.h"

namespace tessera {

// Receives one line, without a trailing newline. Called from any thread, one
// call at a time per Logger.
using LogSink =
    std::function<void(absl::LogSeverity severity, absl::string_view line)>;

// Where the library's messages go: a cheap, copyable handle that is passed in
// options, never a global. Copies share one sink. Thread-safe.
class Logger {
 public:
  // Writes "tessera: <line>" to stderr from the level that the environment
  // variable TESSERA_LOG names: info, warning, error or off; warning where it
  // is unset. Any other value counts as warning, and the first line logged
  // says so.
  Logger();

  // Passes what is at least `min_severity` to `sink`. A null sink drops all.
  Logger(LogSink sink, absl::LogSeverity min_severity);

  // True if a line of this severity would be passed on. COST: no lock.
  bool enabled(absl::LogSeverity severity) const;

  void Log(absl::LogSeverity severity, absl::string_view line) const;
  void Info(absl::string_view line) const {
    Log(absl::LogSeverity::kInfo, line);
  }
  void Warning(absl::string_view line) const {
    Log(absl::LogSeverity::kWarning, line);
  }
  void Error(absl::string_view line) const {
    Log(absl::LogSeverity::kError, line);
  }

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace tessera

#endif  // TESSERA_BASE_LOG_H_
