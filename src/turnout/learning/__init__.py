"""Federated learning: algorithms, tasks, clients' clipped updates, and server steps on releases.

`algorithm.FedSGD` is the algorithm of plans: a `tasks.SupervisedTask` computes sums of clipped
updates, and an optimizer from `optimizers` computes the next model from each release. Importing
this package loads none of its modules, since most of them load PyTorch, which takes seconds.
"""
