"""`offline:rules`: a rule-based model that demonstrates the platform without API key and network.

It calls a tool only if every word of a task is accounted for by the tool's definition or by an argument. `supervisor`
splits a request and assigns its parts, `matching` chooses an agent's calls, `results` has the review and the answer;
`language` finds words and values in texts, `prompt_parsing` reads the sections of prompts.
"""
