"""Who turns up when: one sampler for each participation law, and what the laws promise."""
