"""Training by several processes: which rank a process is (`rank_environment`), how ranks exchange gradients (`mpi`,
`nccl`), and how those of one machine are started (`launch`)."""
