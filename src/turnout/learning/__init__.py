"""Federated learning: algorithms, tasks, clients' clipped updates, and server steps on a release.

`fedsgd.FedSGD` is the algorithm of plans: a `tasks.SupervisedTask` computes sums of clipped
updates, and an optimiser from `optimizers` (wrapped in `averaging.Averaged` where iterates are
averaged) turns each release into the next model. An optimiser needs numpy alone, a task PyTorch,
which takes seconds to load: so this package imports neither.
"""
