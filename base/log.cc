#include "tessera/base/log.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "tessera/base/mutex.h"

namespace tessera {

struct Logger::State {
  State(LogSink sink_in, absl::LogSeverity min_severity_in,
        std::string notice_in)
      : enabled(sink_in != nullptr),
        min_severity(min_severity_in),
        sink(std::move(sink_in)),
        notice(std::move(notice_in)) {}

  const bool enabled;
  const absl::LogSeverity min_severity;
  Mutex mutex;
  const LogSink sink ABSL_GUARDED_BY(mutex);
  // A warning that goes before the first line; empty once it is out.
  std::string notice ABSL_GUARDED_BY(mutex);
};

namespace {

void WriteToStderr(absl::LogSeverity, absl::string_view line) {
  const std::string text = absl::StrCat("tessera: ", line, "\n");
  std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace

Logger::Logger() {
  const char* variable = std::getenv("TESSERA_LOG");
  const absl::string_view level = variable == nullptr ? "warning" : variable;
  LogSink sink = WriteToStderr;
  absl::LogSeverity min_severity = absl::LogSeverity::kWarning;
  std::string notice;
  if (level == "info") {
    min_severity = absl::LogSeverity::kInfo;
  } else if (level == "error") {
    min_severity = absl::LogSeverity::kError;
  } else if (level == "off") {
    sink = nullptr;
  } else if (level != "warning") {
    notice = absl::StrCat("log: want TESSERA_LOG info, warning, error or off, ",
                          "found '", level, "', taken as warning");
  }
  state_ =
      std::make_shared<State>(std::move(sink), min_severity, std::move(notice));
}

Logger::Logger(LogSink sink, absl::LogSeverity min_severity)
    : state_(std::make_shared<State>(std::move(sink), min_severity, "")) {}

bool Logger::enabled(absl::LogSeverity severity) const {
  return state_->enabled && severity >= state_->min_severity;
}

void Logger::Log(absl::LogSeverity severity, absl::string_view line) const {
  if (!enabled(severity)) return;
  MutexLock lock(state_->mutex);
  if (!state_->notice.empty()) {
    const std::string notice = std::exchange(state_->notice, "");
    state_->sink(absl::LogSeverity::kWarning, notice);
  }
  state_->sink(severity, line);
}

}  // namespace tessera
