// The sampler's options, one entry each: the member "sampler" of run.json. From this list come the struct (options.h),
// its reader and its checks (options.cc), and the table that `cohort-sampler --options` prints.
//
//   X(type, name, default, rule, "what it is")
//
// A rule is a function of options.cc that says what is wrong with a value; any: nothing can be. To add an option that a
// user gives, declare it in spec/run.py too, with for_sampler=True: launch then hands it on under its name.
#pragma once

// clang-format off
// How neighbours are drawn and seeds ordered: options of a short run that counts reads (presample.h), too; in
// spec/run.py for_draws=True.
#define COHORT_DRAW_OPTIONS(X) \
  X(std::string, weight_attr, "", one_of({"", "edge_weight"}), \
    "`edge_weight`: neighbours are drawn with probability proportional to the edge weights, which take 4 bytes per " \
    "edge and 4 per node beside the topology. Empty, and for relations without weights: draws are uniform") \
  X(std::string, weight_strategy, "random", one_of({"random", "top"}), \
    "with `weight_attr`: `random`; or `top`: the edges of greatest weight are drawn, of equal weights the first, which " \
    "takes 4 bytes per edge alone") \
  X(std::string, sampling, "neighbor", one_of({"neighbor", "labor"}), \
    "`neighbor`: each list is drawn from by itself; `labor`: lists of a hop agree on what they draw, so that batches " \
    "have fewer nodes (layer sampling, without weights or trees)") \
  X(int64_t, batch_dependency, 1, between(1, kMostDependency), \
    "with `labor`: for so many batches a node is drawn, or not, alike; at most 2^20") \
  X(bool, layer_dependency, false, any, "with `labor`: hops of a batch agree on what they draw, too") \
  X(bool, importance_sampling, false, any, \
    "with `labor`: nodes in short lists are drawn rather than others, and batches have `edge_weight`, float32: the " \
    "share of each edge in the mean over its list") \
  X(std::string, seed_order, "shuffle", any, \
    "`shuffle`; or a .npy file with the community of each node, int32 or int64 [nodes]: shuffled seeds of a community " \
    "come one after the other") \
  X(double, seed_mix, 0, from_0_to_1, "with `seed_order`: the share of seeds that come from all communities")

#define COHORT_SAMPLER_OPTIONS(X) \
  X(std::filesystem::path, dataset, {}, any, "folder of the data set") \
  X(std::filesystem::path, channel, {}, existing_folder, \
    "folder for the channel of rank 0; those of the other ranks are in it") \
  X(std::string, device, "cpu", one_of({"cpu", "cuda"}), "`cpu` or `cuda`") \
  X(int, num_ranks, 1, between(1, kMaxRanks), "trainers to serve, each by a pipeline of its own; at most 1024") \
  X(std::vector<int>, gpus, {0}, any, "for each rank, the ordinal of its GPU among the visible ones") \
  X(std::string, topology, "auto", one_of({"auto", "gpu", "host"}), \
    "where the topology is: `auto`, `gpu` or `host`") \
  X(std::string, compress, "auto", one_of({"auto", "none", "cache", "host", "both"}), \
    "where feature rows stay encoded: `none`, `cache`, `host`, `both`, or `auto`: for a prepared data set `both`, or " \
    "`host` if the cache of each GPU has room for all raw rows") \
  X(int, num_slots, 4, any, "batches that a channel holds") \
  X(int, fetch_sms, 0, at_least(0, "at least 1, or 0 for a default"), "GPU: SMs that fetch rows; 0: a default") \
  X(int, sampler_threads, 0, at_least(0, "at least 1, or 0 for a default"), \
    "CPU threads that draw and fetch for each trainer; 0: an equal part of OpenMP's threads") \
  X(bool, reuse, false, any, \
    "GPU: rows of earlier batches are found again in the pools (`cohort train` and loaders set true)") \
  X(double, pool_share, 0.5, share, \
    "GPU: share of the memory free before the first batch that pools take, if two batches need no more (1 with " \
    "`--cache-ratio auto`)") \
  X(uint64_t, seed, 0, any, "of all random numbers") \
  X(bool, in_place, false, any, \
    "CPU: the trainer reads rows in the data set's file, and slots have none, if rows are raw and no cache is planned " \
    "(`cohort train` sets true for SAGE and GCN with float32 features)") \
  X(bool, edge_ids, false, any, "batches have `e_id`: the position of each edge in the data set's indices") \
  X(bool, edge_weights, false, any, \
    "batches have `edge_weight`, float32, gathered from a copy beside the topology, in GPU or host memory; 1 for " \
    "relations without weights") \
  X(bool, edge_features, false, any, "batches have `edge_attr`, the feature rows of their edges, and `e_id`") \
  X(bool, edge_times, false, any, "edge times are kept beside the topology, for seeds with times") \
  X(std::vector<int64_t>, cache_bytes, {}, each_at_least(0, "0 bytes or more"), \
    "the cache budget of each rank's GPU, index included; none: no cache") \
  X(std::string, cache_policy, "plan", one_of({"plan", "degree", "random", "none"}), \
    "which rows are hot: `plan` (by the counts in `hotness`), `degree`, `random`; `none`: no cache") \
  X(int64_t, host_bytes, -1, at_least(-1, "0 bytes or more, or -1 for no limit"), \
    "host memory for feature rows, index included; rows that do not fit stay in the files of encoded rows (-1: all " \
    "rows are in memory); the counts of `hotness` decide which rows fit") \
  X(int, ahead, 8, at_least(1, "at least 1"), \
    "with rows on a disk or another machine: batches that are fetched at once; each has a slot") \
  X(std::string, order, "address", one_of({"address", "asis"}), \
    "the order in which host rows of a batch are read: `address` (ascending) or `asis`") \
  X(std::filesystem::path, hotness, {}, any, "the file of counts (`cache/FORMAT.md`) that policy `plan` needs") \
  X(std::vector<std::string>, rank_hotness, {}, any, \
    "instead of `hotness`, one file per rank, if cliques train on seeds of their own") \
  X(std::string, cliques, "auto", any, \
    "ranks that read each other's memory: `auto` (peer access), `none`, `all`, `2x4`, `3+5`") \
  X(Tiers, bytes_per_second, (Tiers{1500e9, 360e9, 51e9}), each_above_zero, \
    "rates at which a GPU reads local, peer and host memory") \
  X(Tiers, seconds_per_line, (Tiers{0, 0, 0}), each_not_negative, \
    "latency added for each line of 128 bytes of local, peer and host memory") \
  X(std::filesystem::path, plan_file, {}, any, "where the sampler writes the expectations of the plan, as JSON") \
  X(RowOwners, row_owners, {}, any, \
    "several machines, each of which keeps a part of the rows: `names`, `hosts` and `ports` of their samplers, by " \
    "machine; `own`: this machine; `listener`: the inherited descriptor on which this sampler listens; `key`: of this " \
    "attempt of the run; `seconds` in which a machine must answer") \
  X(int32_t, owner_pid, 0, any, "the process that started the run; the sampler ends when it does") \
  X(bool, end_with_parent, false, any, "the kernel ends the sampler with its parent") \
  X(bool, poison_slots, false, any, "tests only: a slot is filled with 0xFF before it is filled again") \
  X(int64_t, slow_fetch_us, 0, any, "tests only: each fetch is delayed by up to so many microseconds, at random") \
  X(int64_t, illegal_access_batch, -1, any, "tests only: this batch, counted from 0, makes an illegal access (GPU)")
// clang-format on
