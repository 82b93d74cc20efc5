#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "server/process/settings_sources.h"
#include "tests/unit/process/parsed_settings.h"

namespace hilbert_ring::server {
namespace {

TEST(SettingsFile, AValueIsTakenLiterally) {
  for (const auto& [line, value] : {std::pair{"key=a", "a"},
                                    {" key = a \r", "a"},
                                    {"\xef\xbb\xbfkey=a", "a"},
                                    {"# one\n; two\n\n\tkey=a", "a"},
                                    {"key=a # b", "a"},
                                    {"key=a\t#b", "a"},
                                    {"key=/x/a#b", "/x/a#b"},
                                    {"key=#b", "#b"},
                                    {"key=a b,c", "a b,c"},
                                    {"key=a=b", "a=b"},
                                    {"key=[::1]", "[::1]"},
                                    {"key=[::1]:8003", "[::1]:8003"},
                                    {"key=\"a # b\" # c", "a # b"},
                                    {"key='a\"b'", "a\"b"},
                                    {"key=a\"b", "a\"b"},
                                    {"key=\" a \"", " a "}}) {
    const auto lines = ParseSettingsFile(line);
    ASSERT_TRUE(lines.ok()) << line << ": " << lines.status();
    ASSERT_EQ(lines->size(), 1u) << line;
    EXPECT_EQ(lines->front().key, "key") << line;
    EXPECT_EQ(lines->front().value, value) << line;
  }
  EXPECT_TRUE(ParseSettingsFile("").value().empty());
  EXPECT_TRUE(ParseSettingsFile("\xef\xbb\xbf").value().empty());
}

TEST(SettingsFile, AnInvalidLineIsNamed) {
  const std::string nul("key=a\0b", 7);
  for (const auto& [text, why] :
       {std::pair<std::string, const char*>{"key=", "key key has no value"},
        {"key= # a", "key key has no value"},
        {"key=\"\"", "key key has no value"},
        {"key=''", "key key has no value"},
        {"key=[]", "key key has no value"},
        {"key=[ , ]", "key key has no value"},
        {"key=[", "key key has no value"},
        {"key=[3", "key key has no value"},
        {"key=]", "key key has no value"},
        {"key=\"a", "must end with its quote"},
        {"key=\"", "must end with its quote"},
        {"key=\"a\"b", "must end with its quote"},
        {"key=\"a\"#b", "must end with its quote"},
        {"=x", "line 1 is \"=x\", must be key=value"},
        {"=", "must be key=value"},
        {"a=b\n\n[x", "line 3 is \"[x\", must be key=value"},
        {"x]", "must be key=value"},
        {"key", "line 1 is \"key\", must be key=value"},
        {"key value", "must be key=value"},
        {"[worker]", "section [worker] is given"},
        {"a=b\nkey=1\na=b", "key a has several values"},
        {nul, "has a control character"},
        {"key=a\x1b", "has a control character"},
        {"\xff\xfek\x01=\x01", "has a control character"}}) {
    const auto lines = ParseSettingsFile(text);
    EXPECT_TRUE(absl::IsInvalidArgument(lines.status())) << text;
    EXPECT_NE(lines.status().message().find(why), std::string::npos) << lines.status();
  }
}

TEST_F(Settings, AFilesValuesAreThoseOfFlags) {
  const std::string path = ::testing::TempDir() + "settings_lines_" + std::to_string(getpid());
  const auto with = [&path](const std::string& line) {
    std::ofstream(path) << line << "\n";
    return std::vector<std::string>{"--config=" + path};
  };
  EXPECT_EQ(Parsed(with("spawn-workers=010")).spawn_workers, 10);
  EXPECT_EQ(Parsed(with("data-root=/x/a#b")).data_root, "/x/a#b");
  EXPECT_EQ(Parsed(with("\xef\xbb\xbfmax-queue=3")).max_queue, 3);
  EXPECT_TRUE(Parsed(with("insecure=true")).security.insecure);
  EXPECT_FALSE(Parsed(with("insecure=false")).security.insecure);
  for (const auto& [line, why] : {std::pair{"max-queue=[]", "key max-queue has no value"},
                                  {"max-queue=1,2", "--max-queue: 1,2, must be a whole number"},
                                  {"max-queue=[3]", "--max-queue: [3], must be a whole number"},
                                  {"stream-memory=-1", "--stream-memory: -1, must be"},
                                  {"worker-timeout=0x10", "--worker-timeout: "}}) {
    const std::string refusal = RefusalOf(with(line));
    EXPECT_NE(refusal.find(why), std::string::npos) << line << ": " << refusal;
  }
  std::filesystem::remove(path);
}

TEST_F(Settings, OnlyARegularFileIsAConfiguration) {
  const std::string path = ::testing::TempDir() + "settings_link_" + std::to_string(getpid());
  EXPECT_NE(RefusalOf({"--config=/dev/zero"})
                .find("--config: /dev/zero must be a regular file, is a device"),
            std::string::npos);
  std::ofstream(path) << "grpc-port=1001\n";
  std::filesystem::create_symlink(path, path + ".link");
  EXPECT_EQ(Parsed({"--config=" + path + ".link"}).grpc_port, 1001);
  EXPECT_EQ(Parsed({"--config=/dev/zero", "--config=" + path}).grpc_port, 1001) << "the last";
  for (const char* end : {"", ".link"}) std::filesystem::remove(path + end);
}

TEST_F(Settings, AFileOfUnknownKeysIsRefused) {
  const std::string path = ::testing::TempDir() + "settings_unknown_test.ini";
  const auto refusal_of = [&path](const std::string& text) {
    std::ofstream(path) << text;
    return RefusalOf({"--config=" + path});
  };
  const std::string slip = refusal_of("max-queue=3\ngrpc-prot=1001\n");
  EXPECT_NE(slip.find("unknown key grpc-prot; the nearest known one is grpc-port"),
            std::string::npos)
      << slip;
  for (const char* other : {"grpc_port=1001", "--grpc-port=1001", "memory-share=0.5", "help=true",
                            "config=other.ini"}) {
    const std::string refusal = refusal_of(other);
    EXPECT_NE(refusal.find("unknown key"), std::string::npos) << other << ": " << refusal;
  }
  std::ofstream(path) << "# a comment\n\ngrpc-port = 1001  # and another\nlog-level=\"warn\"\n";
  EXPECT_EQ(Parsed({"--config=" + path}).grpc_port, 1001);
  EXPECT_EQ(Parsed({"--config=" + path}).log_level, "warn");
}

}  // namespace
}  // namespace hilbert_ring::server
