// SPDX-License-Identifier: Apache-2.0
#include "coordinator/topology_file.h"

#include <fstream>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/scratch_folder.h"

namespace rn::coordinator {
namespace {

constexpr const char* kCampus = R"(version: 1
links:                    # a tree of switches; the root has no parent
  - name: campus
  - name: building-a
    parent: campus
    rate: 1gbit
    latency_ms: 1
  - name: floor-2
    parent: building-a
    rate: 10gbit
nodes:
  - name: lab-a-1
    at: floor-2
    rate: 1gbit
  - name: lab-b-1
    at: campus
    up: 100mbit
    down: 2.5gbit
)";

std::string with(const std::string& old, const std::string& fresh) {
  std::string text = kCampus;
  const std::size_t at = text.find(old);
  EXPECT_NE(at, std::string::npos) << old;
  return text.replace(at, old.size(), fresh);
}

NodeRow a_known_node(const char* id, const char* hostname) {
  NodeRow row;
  row.node = NodeId(id);
  row.facts.hostname = hostname;
  return row;
}

TEST(TopologyFile, the_example_of_the_docs_is_read) {
  const auto topology = parse_topology(kCampus);

  ASSERT_TRUE(topology) << topology.error().describe();
  EXPECT_EQ(topology->nodes(), (std::vector<std::string>{"lab-a-1", "lab-b-1"}));
  const auto there = topology->path(topology->find("lab-a-1", ""), topology->find("x", "lab-b-1"));
  const auto back = topology->path(topology->find("x", "lab-b-1"), topology->find("lab-a-1", ""));
  EXPECT_DOUBLE_EQ(there.rate, 1e9 / 8);
  EXPECT_DOUBLE_EQ(there.latency_s, 0.001);
  EXPECT_DOUBLE_EQ(back.rate, 100e6 / 8);
  EXPECT_EQ(there.links.size(), 4u);
}

struct BadFile {
  const char* name;
  const char* old;
  const char* fresh;
  const char* says;
};

class TopologyFileRefuses : public testing::TestWithParam<BadFile> {};

TEST(TopologyFile, what_others_send_over_a_line_is_not_to_be_had) {
  const auto topology = parse_topology(with("latency_ms: 1", "background: 300mbit"));

  ASSERT_TRUE(topology) << topology.error().describe();
  const auto way = topology->path(topology->find("lab-a-1", ""), std::nullopt);
  EXPECT_DOUBLE_EQ(way.rate, 700e6 / 8);
}

TEST_P(TopologyFileRefuses, what_is_wrong_and_says_where_and_what_next) {
  const auto topology = parse_topology(with(GetParam().old, GetParam().fresh));

  ASSERT_FALSE(topology);
  EXPECT_NE(topology.error().message.find(GetParam().says), std::string::npos)
      << topology.error().message;
  EXPECT_FALSE(topology.error().hint.empty());
}

INSTANTIATE_TEST_SUITE_P(
    TopologyFile,
    TopologyFileRefuses,
    testing::Values(
        BadFile{"a_negative_rate", "10gbit", "-10gbit", "links: 'floor-2': rate: '-10gbit'"},
        BadFile{"a_rate_of_zero", "10gbit", "0gbit", "'0gbit' is no rate"},
        BadFile{"an_absurd_rate", "10gbit", "10000gbit", "'10000gbit' is no rate"},
        BadFile{
            "a_rate_without_unit",
            "10gbit",
            "1000",
            "links[2].rate: expected a string, found the number 1000"},
        BadFile{"an_unknown_unit", "10gbit", "10gbyte", "'10gbyte' is no rate"},
        BadFile{"infinity", "10gbit", "infgbit", "'infgbit' is no rate"},
        BadFile{"no_rate", "    rate: 10gbit\n", "", "'floor-2': the rate of its line is missing"},
        BadFile{"only_one_direction", "    down: 2.5gbit\n", "", "'lab-b-1': the rate"},
        BadFile{
            "a_root_with_a_line",
            "- name: campus",
            "- {name: campus, rate: 1gbit}",
            "'campus' has a line and no parent"},
        BadFile{"an_unknown_field", "latency_ms", "latncy_ms", "latncy_ms"},
        BadFile{"a_latency_that_is_no_number", "latency_ms: 1", "latency_ms: soon", "latency_ms"},
        BadFile{"a_negative_latency", "latency_ms: 1", "latency_ms: -1", "'building-a'"},
        BadFile{
            "a_background_that_fills_the_line",
            "latency_ms: 1",
            "background: 1gbit",
            "'building-a': its background is not less than its rate"},
        BadFile{
            "a_background_without_unit", "latency_ms: 1", "background: '90'", "'90' is no rate"},
        BadFile{"a_name_with_blanks", "name: lab-a-1", "name: lab a 1", "nodes[0]: its name"},
        BadFile{"no_name", "name: lab-a-1", "name: ''", "nodes[0]: it has no name"},
        BadFile{"no_switch", "    at: campus\n", "", "'lab-b-1' hangs at ''"},
        BadFile{"an_unknown_parent", "parent: campus", "parent: campsu", "'campsu'"},
        BadFile{"another_version", "version: 1", "version: 2", "version 2"},
        BadFile{"no_version", "version: 1\n", "", "no version"},
        BadFile{"bad_syntax", "links: ", "links: [", "line "}
    ),
    [](const auto& test) { return test.param.name; }
);

TEST(TopologyFile, what_is_no_list_of_nodes_is_refused) {
  EXPECT_EQ(parse_topology("").error().code, ErrorCode::kInvalid);
  EXPECT_FALSE(parse_topology("hello"));
  EXPECT_FALSE(parse_topology("- 1\n- 2\n"));
  EXPECT_FALSE(parse_topology("version: 1\nlinks: [{name: campus}]\n"));
  EXPECT_FALSE(parse_topology(std::string((1 << 20) + 1, '#')));
  EXPECT_FALSE(parse_topology(std::string("version: 1\n\0links", 17)));
}

TEST(TopologyFile, folders_fifos_and_what_is_not_there_are_errors_that_say_so) {
  const ScratchFolder folder;
  const std::string fifo = folder.path() + "/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const std::string big = folder.path() + "/big";
  std::ofstream(big) << std::string((1 << 20) + 1, '#');
  const std::string good = folder.path() + "/good";
  std::ofstream(good) << kCampus;

  for (const std::string& path : {folder.path(), fifo, big, folder.path() + "/absent"}) {
    const auto topology = read_topology_file(path);
    ASSERT_FALSE(topology) << path;
    const std::string& message = topology.error().message;
    EXPECT_NE(message.find(path), std::string::npos);
    EXPECT_EQ(message.find(path), message.rfind(path)) << message;
    EXPECT_FALSE(topology.error().hint.empty());
  }
  for (const std::string& path : {folder.path(), fifo})
    EXPECT_EQ(read_topology_file(path).error().code, ErrorCode::kInvalid) << path;
  EXPECT_TRUE(read_topology_file(good));
  const std::string link = folder.path() + "/link";
  std::filesystem::create_symlink("good", link);
  EXPECT_TRUE(read_topology_file(link));
  EXPECT_TRUE(read_topology_file(std::filesystem::relative(good))) << "from where one stands";
}

TEST(TopologyFile, names_without_a_node_and_nodes_without_a_name_are_told) {
  const auto topology = parse_topology(kCampus);
  ASSERT_TRUE(topology);

  const auto warnings = topology_warnings(
      *topology,
      {a_known_node("n-1", "lab-a-1"), a_known_node("n-2", "lab-a-1"), a_known_node("n-3", "pc3")}
  );

  ASSERT_EQ(warnings.size(), 3u);
  EXPECT_EQ(warnings[0].substr(0, 34), "node n-3 (pc3) is not declared: on");
  EXPECT_EQ(warnings[1].substr(0, 27), "2 nodes are called 'lab-a-1");
  EXPECT_EQ(warnings[2].substr(0, 26), "'lab-b-1' is no node of th");
  EXPECT_TRUE(
      topology_warnings(*topology, {a_known_node("n-1", "lab-a-1"), a_known_node("lab-b-1", "x")})
          .empty()
  );
}

TEST(TopologyFile, where_the_coordinator_hangs_is_no_missing_node) {
  const auto known = std::vector<NodeRow>{a_known_node("n-1", "lab-a-1")};
  const auto by_word = parse_topology(with("lab-b-1", "coordinator"));
  const auto by_machine = parse_topology(kCampus);
  ASSERT_TRUE(by_word && by_machine);

  EXPECT_TRUE(topology_warnings(*by_word, known).empty());
  EXPECT_TRUE(topology_warnings(*by_machine, known, "lab-b-1").empty());
  EXPECT_EQ(topology_warnings(*by_machine, known, "campus-server").size(), 1u);
}

}  // namespace
}  // namespace rn::coordinator
