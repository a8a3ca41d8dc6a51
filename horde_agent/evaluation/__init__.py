"""Off-policy evaluation: the value of a policy from episodes that another policy made.

One module per estimator: importance sampling (`importance`), doubly robust (`doubly_robust`), the
fitted Q function (`fitted_q`) and the Horde's GVF (`horde_value`). `intervals` resamples episodes,
`judgement` joins everything to a table per policy, `verdict` says it in a sentence.
"""
