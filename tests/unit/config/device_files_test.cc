// SPDX-License-Identifier: Apache-2.0
#include "config/device_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace plexrl::config {
namespace {

class DeviceFilesTest : public ::testing::Test {
 protected:
  DeviceFilesTest() {
    char folder[] = "/tmp/plexrl-dev-XXXXXX";
    folder_ = ::mkdtemp(folder);
    for (const char* name : {"gpu0", "gpu1", "other"}) {
      std::ofstream(folder_ + "/" + name) << "x";
      ::chmod((folder_ + "/" + name).c_str(), 0660);
    }
    std::filesystem::create_directory(folder_ + "/gpu-caps");
  }
  ~DeviceFilesTest() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};

TEST_F(DeviceFilesTest, FindsFilesAndNoFolders) {
  EXPECT_EQ(find_device_files(folder_ + "/gpu*"),
            (std::vector<std::string>{folder_ + "/gpu0", folder_ + "/gpu1"}));
  EXPECT_TRUE(find_device_files(folder_ + "/none*").empty());
  EXPECT_TRUE(find_device_files("").empty());
}

TEST_F(DeviceFilesTest, RefusesOneThatIsOpenToEverybody) {
  EXPECT_TRUE(check_device_files(folder_ + "/gpu*").ok());
  ::chmod((folder_ + "/other").c_str(), 0666);
  EXPECT_TRUE(check_device_files(folder_ + "/gpu*").ok());
  for (const mode_t mode : {0664U, 0662U, 0661U, 0666U}) {
    ::chmod((folder_ + "/gpu1").c_str(), mode);
    const Status status = check_device_files(folder_ + "/gpu*");
    EXPECT_EQ(status.code(), Code::PERMISSION);
    EXPECT_NE(status.text().find("gpu1"), std::string::npos);
  }
}

}  // namespace
}  // namespace plexrl::config
