"""Finding agents, tools and skills by what a request says: sparse and dense similarity, combined."""
