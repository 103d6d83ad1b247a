"""The wordings of prompts: chosen from their sources, stored by hash, pinned by epochs."""
