// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_command.h"

#include "cli/bench/bench_decode.h"
#include "cli/bench/bench_http.h"
#include "cli/bench/bench_op.h"
#include "cli/bench/bench_sched.h"
#include "cli/bench/bench_swap.h"
#include "cli/bench/bench_tenants.h"
#include "cli/bench/cleanup.h"
#include "cli/output.h"

namespace plexrl::cli {
namespace {

Status run_op(const BenchOpOptions& options) {
  PLEXRL_TRY(Cleanup::catch_signals());
  print_progress("measuring a plexrld of its own; this takes about half a minute");
  PLEXRL_ASSIGN(const nlohmann::json rows, bench_op(options));
  if (options.json) {
    print_json(rows);
    return {};
  }
  Table table({"load", "clients", "p50 us", "p99 us", "ops/s", "raw p50 us", "raw p99 us"});
  for (const auto& row : rows)
    table.add({row["mode"].get<std::string>(), std::to_string(row["clients"].get<int>()),
               format_fixed(row["p50_us"].get<double>(), 0),
               format_fixed(row["p99_us"].get<double>(), 0),
               format_fixed(row["ops_per_s"].get<double>(), 0),
               format_fixed(row["raw_p50_us"].get<double>(), 0),
               format_fixed(row["raw_p99_us"].get<double>(), 0)});
  print_text(table.to_text());
  return {};
}

std::string number(const nlohmann::json& row, const char* key, int decimals) {
  const auto found = row.find(key);
  return found == row.end() ? "-" : format_fixed(found->get<double>(), decimals);
}

Status run_swap(const BenchSwapOptions& options) {
  PLEXRL_TRY(Cleanup::catch_signals());
  print_progress("moving state between the tiers of this machine; this takes some minutes");
  PLEXRL_ASSIGN(const nlohmann::json rows, bench_swap(options));
  if (options.json) {
    print_json(rows);
    return {};
  }
  Table moves({"path", "bytes", "GB/s", "raw GB/s", "ratio"});
  Table switches({"switch", "bytes", "exposed s", "hidden s", "raw copy s", "ratio", "step s"});
  for (const auto& row : rows) {
    const std::string bytes = format_bytes(row["bytes"].get<std::uint64_t>());
    if (row["path"] == "switch")
      switches.add({row["from"].get<std::string>() + " to " + row["to"].get<std::string>(), bytes,
                    number(row, "switch_exposed_s", 3), number(row, "switch_hidden_s", 3),
                    number(row, "raw_copy_s", 3), number(row, "exposed_ratio", 2),
                    number(row, "step_s", 3)});
    else
      moves.add({row["path"].get<std::string>(), bytes, number(row, "gbps", 2),
                 number(row, "raw_gbps", 2), number(row, "ratio", 2)});
  }
  print_text(moves.to_text() + "\n" + switches.to_text());
  return {};
}

Status run_sched(const BenchSchedOptions& options) {
  print_progress("deciding; this takes some seconds");
  PLEXRL_ASSIGN(const nlohmann::json rows, bench_sched(options));
  if (options.json) {
    print_json(rows);
    return {};
  }
  Table steps({"policy", "tenants", "ops", "step p50 us", "p99 us", "max us"});
  Table placements({"placement", "jobs", "devices", "placed", "ms"});
  for (const auto& row : rows) {
    if (row.contains("placement"))
      placements.add({row["placement"].get<std::string>(), number(row, "jobs", 0),
                      number(row, "devices", 0), number(row, "placed", 0),
                      number(row, "placement_ms", 1)});
    else
      steps.add({row["policy"].get<std::string>(), number(row, "tenants", 0), number(row, "ops", 0),
                 number(row, "step_us_p50", 1), number(row, "step_us_p99", 1),
                 number(row, "step_us_max", 0)});
  }
  print_text(steps.to_text() + "\n" + placements.to_text());
  return {};
}

Status run_decode(const BenchDecodeOptions& options) {
  PLEXRL_TRY(Cleanup::catch_signals());
  PLEXRL_ASSIGN(const nlohmann::json rows, bench_decode(options));
  if (options.json) {
    print_json(rows);
    return {};
  }
  Table table({"model", "dtype", "rows", "adapters", "tokens/s", "of a plain read"});
  for (const auto& row : rows)
    table.add({row["model"].get<std::string>(), row["dtype"].get<std::string>(),
               number(row, "rows", 0), number(row, "adapters", 0), number(row, "tokens_per_s", 1),
               number(row, "roofline_share", 3)});
  print_text(table.to_text());
  return {};
}

Status run_http(const BenchHttpOptions& options) {
  PLEXRL_TRY(Cleanup::catch_signals());
  print_progress("measuring a plexrld of its own; this takes about half a minute");
  PLEXRL_ASSIGN(const nlohmann::json rows, bench_http(options));
  if (options.json) {
    print_json(rows);
    return {};
  }
  Table table({"route", "clients", "p50 us", "p99 us", "requests/s", "op p50 us", "more p50 us"});
  for (const auto& row : rows)
    table.add({row["route"].get<std::string>(), number(row, "clients", 0), number(row, "p50_us", 0),
               number(row, "p99_us", 0), number(row, "requests_per_s", 0),
               number(row, "op_p50_us", 0), number(row, "overhead_p50_us", 0)});
  print_text(table.to_text());
  return {};
}

Status run_tenants(const BenchTenantsOptions& options) {
  PLEXRL_TRY(Cleanup::catch_signals());
  PLEXRL_ASSIGN(const nlohmann::json rows, bench_tenants(options));
  if (options.json) {
    print_json(rows);
    return {};
  }
  Table table({"duty", "busy alone", "overlapped", "together", "ratio", "of bound", "wall alone s",
               "together s", "saving", "reward alone", "together"});
  for (const auto& row : rows)
    table.add({number(row, "duty", 2), number(row, "utilisation_alone", 3),
               number(row, "utilisation_overlapped", 3), number(row, "utilisation_together", 3),
               number(row, "utilisation_ratio", 2), number(row, "share_of_bound", 2),
               number(row, "wall_alone_s", 1), number(row, "wall_together_s", 1),
               number(row, "wall_saving", 3), number(row, "reward_mean_alone", 4),
               number(row, "reward_mean_together", 4)});
  print_text(table.to_text());
  return {};
}

void add_tenants(CLI::App& bench, Run& chosen) {
  CLI::App* tenants = bench.add_subcommand("tenants", "many LoRA tasks on one base");
  auto options = std::make_shared<BenchTenantsOptions>();
  tenants->add_option("-n,--tenants", options->tenants, "tasks")
      ->check(CLI::Range(1U, 256U))
      ->capture_default_str();
  tenants->add_option("--alone", options->alone, "of them that are run one after the other")
      ->check(CLI::Range(1U, 256U))
      ->capture_default_str();
  tenants->add_option("--model", options->model, "tiny, smollm2-135m, or a directory")
      ->capture_default_str();
  tenants->add_option("--duty", options->duties, "share of its time that a task is busy alone")
      ->check(CLI::Range(0.001, 1.0))
      ->capture_default_str();
  tenants->add_option("--steps", options->steps, "of each task")
      ->check(CLI::Range(1U, 1000U))
      ->capture_default_str();
  tenants->add_option("--prompts", options->prompts, "of a step")
      ->check(CLI::Range(1U, 1024U))
      ->capture_default_str();
  tenants->add_option("--samples", options->samples, "of a prompt")
      ->check(CLI::Range(2U, 1024U))
      ->capture_default_str();
  tenants->add_option("--policy", options->policy, "of the pool")
      ->check(CLI::IsMember({"fifo", "round-robin", "hrrs", "least-slowdown"}))
      ->capture_default_str();
  tenants->add_option("--plexrld", options->plexrld, "the daemon's program");
  add_json_option(*tenants, options->json);
  tenants->parse_complete_callback([options] {
    if (options->alone > options->tenants)
      throw CLI::ValidationError("--alone", "there are no more than the --tenants");
  });
  on_chosen(*tenants, chosen, options, run_tenants);
}

void add_http(CLI::App& bench, Run& chosen) {
  CLI::App* http = bench.add_subcommand("http", "what HTTP adds to an operation");
  auto options = std::make_shared<BenchHttpOptions>();
  http->add_option("--clients", options->clients, "connections; repeatable")
      ->check(CLI::Range(1U, 1000U))
      ->capture_default_str();
  http->add_option("--seconds", options->seconds, "of each measurement")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  http->add_option("--repeats", options->repeats, "medians over so many")
      ->check(CLI::Range(1U, 1000U))
      ->capture_default_str();
  http->add_option("--plexrld", options->plexrld, "the daemon's program");
  add_json_option(*http, options->json);
  on_chosen(*http, chosen, options, run_http);
}

void add_decode(CLI::App& bench, Run& chosen) {
  CLI::App* decode = bench.add_subcommand("decode", "drawing tokens, with and without adapters");
  auto options = std::make_shared<BenchDecodeOptions>();
  decode->add_option("--model", options->models, "tiny, smollm2-135m, or a directory; repeatable");
  decode->add_option("--dtype", options->dtypes, "of the base; repeatable")
      ->check(CLI::IsMember({"float32", "bfloat16"}));
  decode->add_option("--threads", options->threads, "of the engine")
      ->check(CLI::Range(1U, 1024U))
      ->capture_default_str();
  decode->add_option("--seconds", options->seconds, "of each measurement")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  decode->add_option("--engine", options->engine, "the engine's program");
  add_json_option(*decode, options->json);
  on_chosen(*decode, chosen, options, run_decode);
}

void add_sched(CLI::App& bench, Run& chosen) {
  CLI::App* sched = bench.add_subcommand("sched", "a decision of the scheduler, and placing jobs");
  auto options = std::make_shared<BenchSchedOptions>();
  sched->add_option("--tenants", options->tenants, "on the device group")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  sched->add_option("--ops", options->ops, "queued at any time")->capture_default_str();
  sched->add_option("--steps", options->steps, "to measure")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  sched->add_option("--jobs", options->jobs, "to place at once")->capture_default_str();
  add_json_option(*sched, options->json);
  sched->parse_complete_callback([options] {
    if (options->ops < options->tenants)
      throw CLI::ValidationError("--ops", "give at least an op for each of the --tenants");
  });
  on_chosen(*sched, chosen, options, run_sched);
}

void add_swap(CLI::App& bench, Run& chosen) {
  CLI::App* swap = bench.add_subcommand("swap", "moves of state between the tiers");
  auto options = std::make_shared<BenchSwapOptions>();
  swap->add_option("--max-mib", options->max_mib, "largest segment, in MiB")
      ->check(CLI::Range(1U, 1U << 20))
      ->capture_default_str();
  swap->add_option("--directory", options->directory, "for the files of the disk rows");
  swap->add_option("--repeats", options->switch_repeats, "switches each way")
      ->check(CLI::Range(1U, 1000U))
      ->capture_default_str();
  swap->add_option("--plexrld", options->plexrld, "the daemon's program");
  swap->add_flag("!--no-disk", options->disk, "leave the disk rows out");
  swap->add_flag("!--no-switch", options->switches, "leave the switches out");
  add_json_option(*swap, options->json);
  on_chosen(*swap, chosen, options, run_swap);
}

}  // namespace

void add_bench(CLI::App& app, Run& chosen) {
  CLI::App* bench = app.add_subcommand("bench", "measure parts of the service");
  bench->require_subcommand(1);
  CLI::App* op = bench->add_subcommand("op", "cost of an operation in plexrld, without a model");
  auto options = std::make_shared<BenchOpOptions>();
  op->add_option("--clients", options->clients, "connections")
      ->check(CLI::Range(1U, 1000U))
      ->capture_default_str();
  op->add_option("--seconds", options->seconds, "of each measurement")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  op->add_option("--repeats", options->repeats, "medians over so many")
      ->check(CLI::Range(1U, 1000U))
      ->capture_default_str();
  op->add_option("--plexrld", options->plexrld, "the daemon's program");
  add_json_option(*op, options->json);
  on_chosen(*op, chosen, options, run_op);
  add_decode(*bench, chosen);
  add_http(*bench, chosen);
  add_swap(*bench, chosen);
  add_sched(*bench, chosen);
  add_tenants(*bench, chosen);
}

}  // namespace plexrl::cli
