"""Scores: measured returns and the errors of predictions, and the value of a policy from recorded episodes.

Of predictions: `returns` measures, `nmsre` is the score, `return_errors` that of a life and
`excursion_table` its record; `mspbe` and `trace_growth` say when an estimate is valid.

Of policies, one module per estimator: importance sampling (`importance`), doubly robust
(`doubly_robust`), the fitted Q function (`fitted_q`) and the Horde's GVF (`horde_value`). `intervals`
resamples episodes, `judgement` joins everything to a table per policy, `verdict` says it in a sentence.
"""
