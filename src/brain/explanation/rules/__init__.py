"""The rules that name causes. A rule reads a history and returns incidents; `table` says in which order they are asked.

Of a failed task the first rule that fits names the cause, so that specific rules come before general ones.
"""
