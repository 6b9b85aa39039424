"""Training by several processes: which rank a process is (`rank_environment`), how gradients are exchanged (`mpi`,
`nccl`), and how the ranks of one machine are started (`launch`)."""
