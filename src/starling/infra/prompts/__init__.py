"""The sources of prompts: a folder of files, and Langfuse."""
