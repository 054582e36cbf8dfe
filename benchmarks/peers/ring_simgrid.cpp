// A ring all-reduce per tensor beside a backward pass, in SimGrid's S4U: one actor a node, every message of every round.
// Reads: nodes, bytes/s of a port, seconds of latency, number of tensors, then (ready time, bytes) of each tensor.
// Prints: simulated seconds, messages, CPU seconds. Build: g++ -O3 ring_simgrid.cpp -lsimgrid -o ring_simgrid
#include <ctime>
#include <fstream>
#include <iostream>
#include <simgrid/s4u.hpp>
#include <string>
#include <utility>
#include <vector>
namespace sg4 = simgrid::s4u;

static int nodes;
static std::vector<std::pair<double, double>> tensors;
static double finished = 0;

static void node(int me) {
  auto *to = sg4::Mailbox::by_name(std::to_string((me + 1) % nodes));
  auto *from = sg4::Mailbox::by_name(std::to_string(me));
  static int token = 0;
  for (auto const &[ready, bytes] : tensors) {
    if (sg4::Engine::get_clock() < ready) sg4::this_actor::sleep_until(ready);
    for (int round = 0; round < 2 * (nodes - 1); round++) {
      auto out = to->put_async(&token, static_cast<uint64_t>(bytes / nodes));
      from->get<int>();
      out->wait();
    }
  }
  finished = std::max(finished, sg4::Engine::get_clock());
}

int main(int argc, char **argv) {
  sg4::Engine e(&argc, argv);
  std::ifstream in(argv[1]);
  double bandwidth, latency;
  size_t count;
  in >> nodes >> bandwidth >> latency >> count;
  tensors.resize(count);
  for (auto &[ready, bytes] : tensors) in >> ready >> bytes;
  auto *zone = sg4::create_full_zone("cluster");
  std::vector<sg4::Host *> hosts;
  std::vector<const sg4::Link *> up, down;
  for (int i = 0; i < nodes; i++) {
    hosts.push_back(zone->create_host("n" + std::to_string(i), 1e9)->seal());
    up.push_back(zone->create_link("up" + std::to_string(i), bandwidth)->set_latency(latency)->seal());
    down.push_back(zone->create_link("down" + std::to_string(i), bandwidth)->set_latency(0)->seal());
  }
  for (int i = 0; i < nodes; i++) {
    int j = (i + 1) % nodes;
    zone->add_route(hosts[i]->get_netpoint(), hosts[j]->get_netpoint(), nullptr, nullptr, {sg4::LinkInRoute(up[i]), sg4::LinkInRoute(down[j])}, false);
  }
  zone->seal();
  for (int i = 0; i < nodes; i++) sg4::Actor::create("n" + std::to_string(i), hosts[i], [i] { node(i); });
  std::clock_t begin = std::clock();
  e.run();
  double cpu = double(std::clock() - begin) / CLOCKS_PER_SEC;
  std::cout.precision(12);
  std::cout << finished << " " << double(count) * 2 * (nodes - 1) * nodes << " " << cpu << std::endl;
}
