"""Training by several processes: where a process is among them (`place`), how they exchange gradients (`mpi`, `nccl`),
and how those of one machine are started (`launch`)."""
