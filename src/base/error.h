// The one error type of Hayfork. A library throws Error for what ends an operation; main prints it (what, where, why,
// next) and maps it to an exit code; the sample loop stores it with the sample. Nothing else catches.
#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace hayfork {

enum class ErrorCode {
  usage,        // wrong option or configuration: nothing was run
  not_found,    // a file, task, run or tensor that should be there is not
  corrupt,      // bytes from outside that break their format
  unsupported,  // a model, option or construct we know of but do not run
  resource,     // memory or disk
  device,       // no accelerator, too old, lost
  internal,     // our own mistake
};

// What the error is about; with the code it decides the exit code.
enum class ErrorSubject { general, model, data, database, memory, disk, remote };

struct ErrorDetail {
  std::string where;  // file, tensor, key, row: "model.safetensors, tensor model.norm.weight"
  std::string why;    // expected and found: "want bf16 [2048], file has f16 [4096]"
  std::string next;   // what the user can do now
};

class Error : public std::exception {
 public:
  Error(ErrorCode code, ErrorSubject subject, std::string what, ErrorDetail detail = {});

  ErrorCode code() const { return code_; }
  ErrorSubject subject() const { return subject_; }
  const std::string& summary() const { return summary_; }  // the first line alone
  const ErrorDetail& detail() const { return detail_; }

  // At most four lines: "error: …", then "  where …", "  why   …", "  next  …" for the fields that are set.
  std::string render() const;
  // One line for a sample's error column: "summary (where; why)".
  const char* what() const noexcept override { return line_.c_str(); }

 private:
  ErrorCode code_;
  ErrorSubject subject_;
  std::string summary_;
  ErrorDetail detail_;
  std::string line_;
};

std::string_view name(ErrorCode code);

// The program's exit status for an error: usage 2, database and disk 6, model 7,
// memory 8, remote 9, device 10, data 11, internal 70.
int exit_code(const Error& error);

[[noreturn]] void check_failed(const char* expression, const char* file, int line, const std::string& message);

}  // namespace hayfork

// For our own mistakes; on in release builds too. The message is optional.
#define HAY_CHECK(condition, ...)                                                                        \
  do {                                                                                                   \
    if (!(condition)) ::hayfork::check_failed(#condition, __FILE__, __LINE__, std::string{__VA_ARGS__}); \
  } while (false)
