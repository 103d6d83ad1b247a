"""`offline:rules`: a rule-based model that demonstrates the platform without API key and network.

It calls a tool only if every word of a task is accounted for. `supervisor` splits a request, `matching` chooses calls,
`skills` repeats those of a skill, `results` has review and answer, `designer` makes teams; the others read texts.
"""
