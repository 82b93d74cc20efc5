#include "server/access/auth_tokens.h"

#include <openssl/sha.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/test_folder.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kSecret[] = "s3cret-of-the-lab-0123456789";

class AuthTokensTest : public ::testing::Test {
 protected:
  void Write(const std::string& text) {
    std::ofstream(path_ + ".new") << text;
    std::filesystem::rename(path_ + ".new", path_);
  }
  void Read() {
    auto read = AuthTokens::Read(path_, std::chrono::hours(1));  // the test looks itself
    ASSERT_TRUE(read.ok()) << read.status();
    tokens_ = *std::move(read);
  }
  std::string NameFor(const std::string& authorization) {
    const auto caller = tokens_->Find(authorization);
    if (caller.ok()) return caller->name;
    EXPECT_TRUE(absl::IsUnauthenticated(caller.status())) << caller.status();
    EXPECT_TRUE(wire::HasReason(caller.status(), wire::reason::kAuthToken));
    EXPECT_THAT(std::string(caller.status().message()), Not(HasSubstr("s3cret")));
    return "";
  }
  static std::string Line(const std::string& name, const std::string& role,
                          const std::string& token) {
    return absl::StrCat(R"({"name": ")", name, R"(", "role": ")", role, R"(", "token": ")", token,
                        "\"}\n");
  }

  const std::string path_ = ::testing::TempDir() + "/auth_tokens_" +
                            ::testing::UnitTest::GetInstance()->current_test_info()->name();
  std::unique_ptr<AuthTokens> tokens_;
};

TEST_F(AuthTokensTest, ATokenNamesTheCaller) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  const std::string hashed = "another-secret-of-the-other";
  SHA256(reinterpret_cast<const unsigned char*>(hashed.data()), hashed.size(),
         reinterpret_cast<unsigned char*>(digest.data()));
  Write(absl::StrCat("# callers\n\n", R"({"name": "lab", "role": "submit", "token": ")", kSecret,
                     R"(", "jobs": 2, "tokens": 1000, "bytes": 5})", "\n",
                     R"({"name": "eye", "role": "observe", )", R"("sha256": ")",
                     absl::BytesToHexString(digest), "\"}\n"));
  Read();
  const auto lab = tokens_->Find(absl::StrCat("Bearer ", kSecret));
  ASSERT_TRUE(lab.ok()) << lab.status();
  EXPECT_EQ(lab->name, "lab");
  EXPECT_EQ(lab->turns, "lab");
  EXPECT_EQ(lab->role, Role::kSubmit);
  EXPECT_EQ(lab->quota, (Quota{.jobs = 2, .tokens = 1000, .bytes = 5}));
  const auto eye = tokens_->Find(absl::StrCat("bearer ", hashed));
  ASSERT_TRUE(eye.ok()) << eye.status();
  EXPECT_EQ(eye->name, "eye");
  EXPECT_EQ(eye->role, Role::kObserve);
  EXPECT_EQ(eye->quota, Quota());
  for (const std::string& wrong :
       {std::string(), std::string("Bearer"), std::string("Bearer "), std::string(kSecret),
        absl::StrCat("Basic ", kSecret), absl::StrCat("Bearer ", kSecret, "x"),
        absl::StrCat("Bearer ", absl::BytesToHexString(digest)),
        absl::StrCat("Bearer ", std::string(kSecret).substr(1)), std::string("Bearer x")}) {
    EXPECT_EQ(NameFor(wrong), "") << wrong;
  }
}

TEST_F(AuthTokensTest, ATokenMayNameAFolderOfItsFiles) {
  const auto line = [](const std::string& root) {
    return absl::StrCat(R"({"name": "lab", "role": "submit", "token": ")", kSecret,
                        R"(", "root": ")", root, "\"}\n");
  };
  for (const char* root : {"night/slides", "."}) {
    Write(line(root));
    Read();
    const auto caller = tokens_->Find(absl::StrCat("Bearer ", kSecret));
    ASSERT_TRUE(caller.ok()) << caller.status();
    EXPECT_EQ(caller->folder, root);
  }
  for (const char* root : {"", "..", "/night", "night/", "a/../b", "a//b"}) {
    Write(line(root));
    EXPECT_FALSE(AuthTokens::Read(path_).ok()) << root;
  }
  Write(line("night") + Line("lab", "submit", absl::StrCat(kSecret, "2")));
  EXPECT_FALSE(AuthTokens::Read(path_).ok()) << "one name has two roots";
}

TEST_F(AuthTokensTest, TheFileIsReadAgain) {
  const std::string first = absl::StrCat("Bearer ", kSecret), second = first + "-second";
  Write(Line("lab", "submit", kSecret));
  Read();
  EXPECT_EQ(NameFor(first), "lab");
  // Both tokens are valid for a while, then the second alone.
  Write(Line("lab", "submit", kSecret) + Line("lab", "submit", absl::StrCat(kSecret, "-second")));
  EXPECT_EQ(NameFor(second), "") << "no look has found it";
  tokens_->Look();
  EXPECT_EQ(NameFor(first), "lab");
  EXPECT_EQ(NameFor(second), "lab");
  Write(Line("lab", "submit", absl::StrCat(kSecret, "-second")));
  tokens_->Look();
  EXPECT_EQ(NameFor(first), "");
  EXPECT_EQ(NameFor(second), "lab");
  Write("{\"name\": \"lab\"}\n");
  tokens_->Look();
  EXPECT_EQ(NameFor(second), "lab");
  std::filesystem::remove(path_);
  tokens_->Look();
  EXPECT_EQ(NameFor(second), "lab");
  Write("");
  tokens_->Look();
  EXPECT_EQ(NameFor(second), "");
}

// A read neither waits for a pipe nor fills the memory.
TEST_F(AuthTokensTest, OnlyARegularFileIsRead) {
  const testing::TestFolder folder;
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  const auto refusal = [](const std::string& path) {
    return std::string(AuthTokens::Read(path).status().message());
  };
  EXPECT_THAT(refusal(folder / "pipe"), HasSubstr("must be a regular file, is a FIFO"));
  EXPECT_THAT(refusal("/dev/zero"), HasSubstr("must be a regular file, is a device"));
  std::filesystem::create_directory(folder / "..data.1");
  std::ofstream(folder / "..data.1/tokens") << Line("lab", "submit", kSecret);
  std::filesystem::create_symlink("..data.1", folder / "..data");
  std::filesystem::create_symlink((folder / "..data/tokens"), path_);
  Read();
  std::filesystem::rename(folder / "pipe", path_);
  tokens_->Look();
  EXPECT_EQ(NameFor(absl::StrCat("Bearer ", kSecret)), "lab");
  std::filesystem::remove(path_);
}

// An editor or `cp --preserve` may leave such a file.
TEST_F(AuthTokensTest, AFileOfTheSameSizeAndTimeIsReadAgain) {
  std::string second = kSecret;
  second.back() ^= 1;
  Write(Line("lab", "submit", kSecret));
  Read();
  const auto time = std::filesystem::last_write_time(path_);
  std::ofstream(path_, std::ios::in) << Line("lab", "submit", second);  // in place
  std::filesystem::last_write_time(path_, time);
  tokens_->Look();
  EXPECT_EQ(NameFor(absl::StrCat("Bearer ", second)), "lab");
  EXPECT_EQ(NameFor(absl::StrCat("Bearer ", kSecret)), "");
}

TEST_F(AuthTokensTest, ErrorsAreNamedWithoutSecrets) {
  const auto wrong = [&](const std::string& text, const char* why) {
    Write(text);
    const auto read = AuthTokens::Read(path_);
    EXPECT_TRUE(absl::IsInvalidArgument(read.status())) << text << ": " << read.status();
    const std::string message(read.status().message());
    EXPECT_THAT(message, HasSubstr(path_));
    EXPECT_THAT(message, HasSubstr(why));
    EXPECT_THAT(message, Not(HasSubstr("s3cret")));
  };
  const std::string lab = Line("lab", "submit", kSecret);
  wrong(absl::StrCat("lab submit ", kSecret, "\n"), "line 1 is not a JSON object");
  wrong(lab + absl::StrCat("{\"token\": \"", kSecret, "\n"), "line 2 is not a JSON object");
  wrong(Line("", "submit", kSecret), "name must have 1 to 64");
  wrong(Line("lab", "root", kSecret), "role must be submit, observe or admin");
  wrong(Line("lab", "submit", "s3cret"), "token must have 16 to 4096");
  wrong("{\"name\": \"lab\", \"role\": \"submit\"}", "must have one of token and sha256");
  wrong("{\"name\": \"lab\", \"role\": \"submit\", \"sha256\": \"00\"}", "64 hexadecimal digits");
  wrong(lab + lab, "line 2 has the token of another line");
  wrong(lab + Line("lab", "admin", absl::StrCat(kSecret, "2")), "line 2 has another role or quota");
  wrong(absl::StrCat(R"({"name": "lab", "role": "submit", "jobs": 0, "token": ")", kSecret, "\"}"),
        "jobs must be an integer of 1 to 2^50");
  wrong(absl::StrCat(R"({"name": "lab", "role": "submit", "job": 1, "token": ")", kSecret, "\"}"),
        "has an unknown field");
  for (const char* twice : {R"("role": "admin")", R"("token": "another-secret-of-the-other")",
                            R"("name": "eye")", R"("jobs": 2, "jobs": 3)"}) {
    std::string line = Line("lab", "submit", kSecret);
    line.insert(line.rfind('}'), absl::StrCat(", ", twice));
    wrong(line, " more than once");
  }
  wrong(absl::StrCat(R"({"name": "lab", "role": "submit", ")", kSecret, R"(": 1, ")", kSecret,
                     "\": 1}"),
        "line 1 is not a JSON object");
  wrong(lab.substr(0, lab.size() - 1) + std::string("\0{}\n", 4), "line 1 is not a JSON object");
  EXPECT_TRUE(absl::IsInvalidArgument(AuthTokens::Read(path_ + ".none").status()));
}

}  // namespace
}  // namespace hilbert_ring::server
