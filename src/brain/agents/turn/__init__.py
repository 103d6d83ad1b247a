"""One turn of an agent: the pipeline around it, the prompt, and the review of the result."""
