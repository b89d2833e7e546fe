"""One file for each library that `benchmarks.peers` compares, and what all of them are given."""
