"""Finding agents, tools and skills by the text of a request: sparse and dense similarity, combined."""
